"""One request that waits for the coordinator, and what the errors of a partition mean to it (shell).

Counterpart of the error conversion in Kafka's GroupCoordinatorService. A client knows nothing of the log behind a group. So
an error of the log becomes an error of the coordinator: look for another coordinator, or try again later.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode

SIZE_ERRORS = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

_COORDINATOR_ERRORS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def coordinator_error(error: ErrorCode, api_key: ApiKey | None = None) -> ErrorCode:
    """Returns what an error of the partition means to a client that sent this request."""
    if error in SIZE_ERRORS:
        is_commit = api_key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT)
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_commit else ErrorCode.UNKNOWN_SERVER_ERROR
    found = _COORDINATOR_ERRORS.get(error, error)
    if api_key is ApiKey.OFFSET_FETCH and found is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        # It ends Java's consumers before 3.9 and those of aiokafka, and librdkafka's never ask again. All of them wait for a
        # group that is being loaded.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return found


class WaitingRequest:
    """A request, or the part of a request about one group, with the future of its response. `refusal` builds the response
    that carries an error. The core knows this object as a Waiter and compares it by identity."""

    __slots__ = ("_api_key", "_refusal", "future")

    def __init__(self, api_key: ApiKey, refusal: Callable[[ErrorCode], Any]) -> None:
        self._api_key = api_key
        self._refusal = refusal
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(self, response: Any) -> None:
        """Gives the response, unless the request has one already."""
        if not self.future.done():
            self.future.set_result(response)

    def refuse(self, error: ErrorCode) -> None:
        """Answers with an error of the partition or of the coordinator, unless the request has a response already."""
        if not self.future.done():
            self.future.set_result(self._refusal(coordinator_error(error, self._api_key)))
