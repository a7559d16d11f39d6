"""Which kind of node answers DescribeCluster (KIP-919) (core).

A broker's listener describes brokers, a controller's listener describes controllers. Clients before version 1 of the request
know no endpoint types and mean brokers, and they do not know the errors either.
"""

from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.describe_cluster import DescribeClusterRequest, EndpointType

# The first version whose clients know the errors of a wrong endpoint type.
ENDPOINT_ERRORS_FIRST_VERSION = 1


def check_endpoint_type(request: DescribeClusterRequest, version: int, *, served: EndpointType) -> None:
    """Raises ApiError unless the client asks for the kind of node that answers. Counterpart of the checks in Kafka's
    AuthHelper."""
    if request.endpoint_type == served:
        return
    code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {request.endpoint_type}"
    if request.endpoint_type in set(EndpointType):
        kind = served.name.lower()
        code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, f"this is the listener of a {kind}, which describes {kind}s"
    raise ApiError(code if version >= ENDPOINT_ERRORS_FIRST_VERSION else ErrorCode.INVALID_REQUEST, message)
