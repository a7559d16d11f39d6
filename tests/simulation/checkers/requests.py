"""What must be true of requests and their answers: I17 and I18.

Shell of the tests. The handlers of a server that runs are wrapped in place, one server object at a time. Easy to get wrong:
an epoch that is current when the request comes in may be stale when its turn comes, never the other way round. So only what
was stale from the start must be refused.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from common.net.request_context import Handler, RequestContext
from common.net.request_server import RequestServer
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from tests.simulation.checkers.image import ImageChecker, ImageModel
from tests.simulation.violations import InvariantViolated

BEARERS_OF_A_BROKER_EPOCH = (ApiKey.BROKER_HEARTBEAT, ApiKey.ALTER_PARTITION, ApiKey.ASSIGN_REPLICAS_TO_DIRS)
# No client of the simulation waits for longer.
ANSWER_BOUND_NS = 30_000_000_000


class RequestChecker:
    """`violation` is called in the step of the daemon that did wrong."""

    def __init__(self) -> None:
        # (node, API, begin) of what is not answered, by number.
        self._open: dict[int, tuple[str, ApiKey, int]] = {}
        self._count = 0
        self.violation: InvariantViolated | None = None

    def watch(self, node: str, server: RequestServer, image: ImageChecker) -> None:
        """Every request of this server is looked at from now on."""
        server.handlers = {
            key: partial(self._handle, node, key, handler, server, image) for key, handler in server.handlers.items()
        }

    def forget(self, node: str) -> None:
        """The node is dead and answers nothing any more."""
        for number in [number for number, (name, _, _) in self._open.items() if name == node]:
            del self._open[number]

    def check_open(self, now_ns: int, alive: Iterable[str]) -> None:
        """I18: nothing has waited for too long on a node that lives. Raises InvariantViolated."""
        living = frozenset(alive)
        for node, key, begun_ns in self._open.values():
            if node in living and now_ns - begun_ns > ANSWER_BOUND_NS:
                raise InvariantViolated("I18", f"{node} has not answered {key.name} for {(now_ns - begun_ns) / 1e9:.1f} s")

    def _handle(
        self,
        node: str,
        key: ApiKey,
        handler: Handler,
        server: RequestServer,
        image: ImageChecker,
        context: RequestContext,
        request: Any,
    ) -> Any:
        self._count += 1
        number = self._count
        stale = _stale_epoch(key, request, image.image)
        answer = handler(context, request)
        self._open[number] = (node, key, server.env.now_ns())
        if asyncio.isfuture(answer):
            answer.add_done_callback(partial(self._answered, number, key, stale))
            return answer
        if asyncio.iscoroutine(answer):
            return self._awaited(number, key, stale, answer)
        self._note_answer(number, key, stale, answer)
        return answer

    async def _awaited(self, number: int, key: ApiKey, stale: str | None, answer: Coroutine[Any, Any, Any]) -> Any:
        try:
            response = await answer
        finally:
            self._open.pop(number, None)
        self._note_answer(number, key, stale, response)
        return response

    def _answered(self, number: int, key: ApiKey, stale: str | None, answer: "asyncio.Future[Any]") -> None:
        if answer.cancelled() or answer.exception() is not None:
            self._open.pop(number, None)
        else:
            self._note_answer(number, key, stale, answer.result())

    def _note_answer(self, number: int, key: ApiKey, stale: str | None, response: Any) -> None:
        self._open.pop(number, None)
        if stale is not None and response.error_code == ErrorCode.NONE and self.violation is None:
            self.violation = InvariantViolated("I17", f"{key.name} of {stale} was accepted")


def _stale_epoch(key: ApiKey, request: Any, image: ImageModel) -> str | None:
    """Who asks, if the committed image knows a newer registration of it."""
    if key not in BEARERS_OF_A_BROKER_EPOCH:
        return None
    known = image.brokers.get(request.broker_id)
    if known is None or known.epoch <= request.broker_epoch:
        return None
    return f"broker {request.broker_id} in epoch {request.broker_epoch}, registered is {known.epoch},"
