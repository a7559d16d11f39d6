"""The errors that an AdminClient raises (core).

Every error is an AdminError with Kafka's error code and a message. There is a subclass for each kind of error that programs
handle differently; its docstring names its counterpart in Kafka. If a newer broker returns a code that this release does not
know, the error is UNKNOWN_SERVER_ERROR with the number in the message, as in Kafka.
"""

from typing import Final

from common.protocol.errors import ErrorCode, error_name, is_known_error


class AdminError(Exception):
    """The base of all errors of an AdminClient."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message or self.code.name


class RequestFailed(AdminError):
    """A node answered with an error code. Counterpart of Kafka's ApiException."""


class TimedOut(AdminError):
    """The timeout of the call has passed, or the client was closed; the message names what the call was waiting for. It is
    unknown whether the cluster has acted on the request. Counterpart of Kafka's TimeoutException."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class AttemptFailed(AdminError):
    """The only attempt at a node failed, and another node may answer. Counterpart of Kafka's DisconnectException."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class UnsupportedRequest(AdminError):
    """The node does not serve the API, or no version of it that we know. Counterpart of UnsupportedVersionException."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class InvalidArgument(AdminError):
    """The caller's arguments cannot be sent, or make no sense. Counterpart of Kafka's InvalidRequestException."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class InvalidSetting(AdminError):
    """A setting of the client is invalid, such as a bootstrap server. Counterpart of Kafka's ConfigException."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


# The client retries after these errors: the same request may succeed later, or at another node.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)

# The errors of a broker that does not lead a partition, or does not know yet that it does. Look the leader up again.
LEADER_CHANGED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


def failure(code: int, message: str | None = None) -> RequestFailed:
    """Returns the exception for an error code in an answer."""
    if is_known_error(code):
        return RequestFailed(ErrorCode(code), message)
    return RequestFailed(ErrorCode.UNKNOWN_SERVER_ERROR, message or f"error {error_name(code)}")


def check(code: int, message: str | None = None) -> None:
    """Raises RequestFailed unless the code is NONE."""
    if code != ErrorCode.NONE:
        raise failure(code, message)
