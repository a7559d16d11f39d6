"""The names that errors have in the output of Kafka's tools, which are written in Java (core)."""

from admin.errors import AdminError
from common.protocol.errors import ErrorCode

# The exceptions that are not called like their error code.
_NAMES = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
}
# What Kafka's clients say about an error code that came without a message.
_TEXTS = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "The requested offset is not within the range of offsets maintained by the server.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The request attempted to perform an operation on an invalid topic.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.POLICY_VIOLATION: "Request parameters do not satisfy the configured policy.",
    ErrorCode.KAFKA_STORAGE_ERROR: "Disk error when trying to access log file on the disk.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "For requests intended only for the leader, this error indicates that the broker is "
    "not the current leader. For requests intended for any replica, this error indicates that the broker is not a replica "
    "of the topic partition.",
    ErrorCode.INVALID_GROUP_ID: "The configured groupId is invalid.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Deleting offsets of a topic is forbidden while the consumer group is actively "
    "subscribed to it.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator is not aware of this member.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not authorized to access group: Group authorization failed.",
}


def exception_text(error: AdminError) -> str:
    """Returns the error as a Java tool prints it: the exception class of the Java client, and the message."""
    name = _NAMES.get(error.code) or "".join(map(str.capitalize, error.code.name.split("_"))) + "Exception"
    return f"org.apache.kafka.common.errors.{name}: {message_text(error)}"


def message_text(error: AdminError) -> str:
    """Returns the message of the error: the broker's, or else the one that the Java client has for the code."""
    return error.message or _TEXTS.get(error.code) or error.code.name
