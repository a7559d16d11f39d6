"""The maximum number of records that one client request may write (core).

Counterpart of MAX_RECORDS_PER_USER_OP in Kafka's controller.
"""

from typing import Final

from common.protocol.errors import ApiError, ErrorCode

RECORDS_PER_REQUEST_MAX: Final = 10_000


def too_many_records() -> ApiError:
    """Returns the error for a request, or for a part of a request, that would exceed the limit."""
    return ApiError(ErrorCode.POLICY_VIOLATION, f"one request may write {RECORDS_PER_REQUEST_MAX} records at most")
