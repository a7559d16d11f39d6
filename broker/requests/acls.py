"""Refuses the requests for ACLs in the way of a Kafka broker without an authorizer (shell without I/O; KIP-140).

They are served, not left out, because SECURITY_DISABLED is the answer that clients expect of such a cluster: MirrorMaker
copies ACLs by default, and takes any other error for a failure. This holds as well for ACLs that are only kept
(common/metadata/kept_records.py): they have no effect.
"""

from typing import NoReturn

from common.net.request_context import RequestContext
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.create_acls import CreateAclsRequest
from common.protocol.messages.delete_acls import DeleteAclsRequest
from common.protocol.messages.describe_acls import DescribeAclsRequest


def refuse_acls(_context: RequestContext, _request: DescribeAclsRequest | CreateAclsRequest | DeleteAclsRequest) -> NoReturn:
    """Raises the ApiError. Each ACL to be created and each filter of those to be deleted gets it."""
    raise ApiError(ErrorCode.SECURITY_DISABLED, "the cluster has no authorizer")
