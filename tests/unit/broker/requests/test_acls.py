"""Requests for ACLs: a cluster without an authorizer says so, where the clients of each version look for it."""

import pytest

from broker.requests.acls import refuse_acls
from common.net.error_responses import error_response
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from common.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from common.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from common.protocol.schema import Struct
from tests.unit.broker.requests.contexts import context, over_the_wire, versions

WHY = "the cluster has no authorizer"
DISABLED = ErrorCode.SECURITY_DISABLED
CASES: list[tuple[ApiKey, DescribeAclsRequest | CreateAclsRequest | DeleteAclsRequest, Struct]] = [
    (ApiKey.DESCRIBE_ACLS, DescribeAclsRequest(), DescribeAclsResponse(error_code=DISABLED, error_message=WHY)),
    (
        ApiKey.CREATE_ACLS,
        CreateAclsRequest(creations=[AclCreation(), AclCreation()]),
        CreateAclsResponse(results=[AclCreationResult(error_code=DISABLED, error_message=WHY)] * 2),
    ),
    (
        ApiKey.DELETE_ACLS,
        DeleteAclsRequest(filters=[DeleteAclsFilter(), DeleteAclsFilter()]),
        DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error_code=DISABLED, error_message=WHY)] * 2),
    ),
]


@pytest.mark.parametrize(("api_key", "request_", "expected"), CASES, ids=[case[0].name for case in CASES])
def test_security_is_disabled(
    api_key: ApiKey, request_: DescribeAclsRequest | CreateAclsRequest | DeleteAclsRequest, expected: Struct
) -> None:
    for version in versions(api_key):
        received = over_the_wire(request_, version)
        assert received == request_
        with pytest.raises(ApiError) as raised:
            refuse_acls(context(api_key, version), request_)
        answer = error_response(received, api_key, raised.value.code, raised.value.message)
        assert answer is not None
        assert over_the_wire(answer, version) == expected
