"""Says which requests and responses are large (core).

A server counts the memory of a request from its arrival, so it has to estimate what the decoded request and the response
will take. What is long is decoded or encoded in slices, because nothing else runs on the event loop meanwhile.
"""

from typing import Final

from common.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from common.protocol.messages.create_topics import CreateTopicsResponse
from common.protocol.messages.describe_configs import DescribeConfigsResponse
from common.protocol.messages.describe_groups import DescribeGroupsResponse
from common.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from common.protocol.messages.describe_producers import DescribeProducersResponse
from common.protocol.messages.describe_transactions import DescribeTransactionsResponse
from common.protocol.messages.fetch import FetchRequest
from common.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from common.protocol.messages.list_groups import ListGroupsResponse
from common.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from common.protocol.messages.list_transactions import ListTransactionsResponse
from common.protocol.messages.metadata import MetadataResponse
from common.protocol.messages.offset_fetch import OffsetFetchResponse
from common.protocol.schema import Struct
from common.slices import ELEMENTS_PER_SLICE

# If the handler was a coroutine, responses of these types are encoded in slices, because a short request may ask for
# thousands of elements. So are the responses to long requests, and those to a Fetch that names very many partitions.
LONG_RESPONSES: Final = frozenset(
    (
        ConsumerGroupDescribeResponse,
        CreateTopicsResponse,
        DescribeConfigsResponse,
        DescribeGroupsResponse,
        DescribeLogDirsResponse,
        DescribeProducersResponse,
        DescribeTransactionsResponse,
        ListGroupsResponse,
        ListPartitionReassignmentsResponse,
        ListTransactionsResponse,
        MetadataResponse,
        OffsetFetchResponse,
    )
)

# A larger frame may have thousands of elements. It is decoded in slices, and its response is encoded in slices: half a
# million elements, the most that the memory for one request allows, take half a second. Produce is the exception, because
# its records are not decoded.
LONG_REQUEST_BYTES: Final = 64 * 1024

# A decoded request and its handler's work take several times the bytes received. Produce is the exception here, too.
DECODED_FACTOR: Final = 10


def is_of_follower(request: Struct) -> bool:
    """Whether the request is a follower's fetch."""
    return isinstance(request, FetchRequest) and (request.replica_id >= 0 or request.replica_state.replica_id >= 0)


def expected_response_size(request: Struct) -> int:
    """Returns the memory that the response will take, if that is large and known in advance, otherwise 0.

    A Fetch response holds only references to its records on disk, and other large responses are encoded at once. But what is
    answered in slices is not answered at once: without this, all fetches that a peer has pipelined would be started, even if
    it reads no answers. Where the request does not show that, the handler says so (`expect_response`)."""
    if isinstance(request, FetchRequest):
        is_sliced = sum(len(topic.partitions) for topic in request.topics) > ELEMENTS_PER_SLICE
        return max(0, request.max_bytes) if is_sliced else 0
    return max(0, request.max_bytes) if isinstance(request, FetchSnapshotRequest) else 0
