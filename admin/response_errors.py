"""Where a response has the error of its request as a whole (core).

RequestSender retries after such an error if it is retriable, and leaves any other to the caller.
"""

from collections.abc import Callable, Iterable
from typing import Any

from common.protocol.errors import ErrorCode

ErrorOf = Callable[[Any], tuple[int, str | None]]
"""Returns the error code and the message of a response that failed as a whole, or NONE."""


def no_error(_response: Any) -> tuple[int, str | None]:
    """The `error_of` for a response that has no error for the request as a whole."""
    return ErrorCode.NONE, None


def top_level(response: Any) -> tuple[int, str | None]:
    return response.error_code, response.error_message


def code_only(response: Any) -> tuple[int, str | None]:
    return response.error_code, None


def not_controller(results_of: Callable[[Any], Iterable[Any]]) -> ErrorOf:
    """Returns an `error_of` that looks for NOT_CONTROLLER in every result. A node that is not the controller does nothing
    and returns that code in each result."""

    def error_of(response: Any) -> tuple[int, str | None]:
        is_refused = any(result.error_code == ErrorCode.NOT_CONTROLLER for result in results_of(response))
        return (ErrorCode.NOT_CONTROLLER if is_refused else ErrorCode.NONE), None

    return error_of
