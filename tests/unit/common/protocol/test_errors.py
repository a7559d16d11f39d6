"""Error codes and the errors of handlers: names, numbers, and messages that can always be encoded."""

from common.protocol.codec import encode
from common.protocol.errors import ApiError, ErrorCode, error_name
from common.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse


def test_a_message_that_quotes_the_longest_string_can_be_sent() -> None:
    """Any client can name a topic of 32,767 characters. A response that cannot be encoded would end the controller."""
    error = ApiError(ErrorCode.INVALID_REQUEST, "topic '" + "\N{EURO SIGN}" * 32_767 + "' occurs twice")
    response = CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t", error_code=error.code, error_message=error.message)]
    )
    assert encode(response, 7)
    assert error.message is not None
    assert error.message.endswith("...")


def test_an_ordinary_message_stays_as_it_is() -> None:
    """Only very long messages are cut."""
    error = ApiError(ErrorCode.INVALID_CONFIG, "segment.ms=x is not valid")
    assert error.message == "segment.ms=x is not valid"
    assert str(error) == "INVALID_CONFIG: segment.ms=x is not valid"
    assert ApiError(ErrorCode.NOT_CONTROLLER).message is None


def test_a_code_of_a_newer_kafka_is_shown_by_its_number() -> None:
    """The code of a newer Kafka is shown as a number."""
    assert error_name(57) == "LOG_DIR_NOT_FOUND"
    assert error_name(4711) == "4711"
