"""Tests where the errors of whole responses are looked for."""

from admin.quorum import quorum_error
from admin.response_errors import not_controller
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from common.protocol.messages.describe_quorum import DescribeQuorumResponse, ResponsePartitionData, ResponseTopicData


def test_another_error_of_a_result_is_not_that_of_the_request() -> None:
    """A node that is not the controller says so in each result. Any other error is about one topic only."""
    error_of = not_controller(lambda response: response.topics)
    for code, expected in (
        (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE),
        (ErrorCode.NONE, ErrorCode.NONE),
    ):
        response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=code)])
        assert error_of(response) == (expected, None)


def test_the_error_of_the_metadata_partition_is_that_of_the_request() -> None:
    """Unless the response has an error of its own, or no partition."""
    partition = ResponsePartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    topics = [ResponseTopicData(partitions=[partition])]
    for response, expected in (
        (DescribeQuorumResponse(topics=topics), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (DescribeQuorumResponse(error_code=ErrorCode.NOT_CONTROLLER, topics=topics), ErrorCode.NOT_CONTROLLER),
        (DescribeQuorumResponse(), ErrorCode.NONE),
    ):
        assert quorum_error(response)[0] == expected
