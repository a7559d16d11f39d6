"""Holds back requests while the broker cannot know the right answer (shell over core/lease).

1. At startup, requests wait until the image is current and the logs are loaded.
2. If the process was stopped for longer than its session lasted, requests wait until the broker has applied everything that
   was committed meanwhile.
3. Requests that wait keep their order. A later request must not overtake them at the moment when they are released.
4. A request whose client has gone is dropped. Otherwise the retries of all clients would pile up as long as the wait lasts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from broker.core.lease import LOOK_INTERVAL_NS, Lease
from common.environment.interface import Environment
from common.net.request_context import ClientGone, Handler, RequestContext
from common.time_units import NS_PER_MS


class Serving:
    """Decides when requests may be handled. `catch_up` returns once this broker has applied everything that was committed
    when `catch_up` was called."""

    def __init__(
        self,
        env: Environment,
        *,
        session_timeout_ns: int,
        catch_up: Callable[[], Awaitable[None]],
        task_group: asyncio.TaskGroup,
    ) -> None:
        self._env = env
        self._lease = Lease(session_timeout_ns)
        self._catch_up = catch_up
        self._task_group = task_group
        self._may_serve = False
        # Wakes the requests that wait, in their order.
        self._waiters: dict[asyncio.Future[None], None] = {}
        self._waiting = 0
        self._cancel_timer: Callable[[], None] | None = None

    def begin(self) -> None:
        """Starts serving. Call it once the image is current and the logs are loaded."""
        self._release()
        self._look_again()

    def end(self) -> None:
        """Stops the periodic check of the lease."""
        if self._cancel_timer is not None:
            self._cancel_timer()

    def renew(self, asked_ns: int) -> None:
        """Extends the session: a heartbeat sent at `asked_ns` was answered "unfenced"."""
        self._look()
        self._lease.renew(asked_ns)

    def is_certain(self) -> bool:
        """Whether this broker may trust what it knows of its leaderships."""
        self._look()
        return self._may_serve

    def when_serving(self, handler: Handler) -> Handler:
        """Wraps a handler so that requests wait while the broker must not answer."""

        async def later(context: RequestContext, request: Any) -> Any:
            client_gone = context.client_gone
            try:
                while not self._may_serve:
                    await self._released_or(client_gone)
                    if client_gone.done():
                        return None
            finally:
                self._waiting -= 1
            answer = handler(context, request)
            # Drop our references, so that the handler can free the request's memory before it answers.
            del context, request
            return await answer if isinstance(answer, Awaitable) else answer

        def handle(context: RequestContext, request: Any) -> Any:
            self._look()
            if self._may_serve and not self._waiting:
                return handler(context, request)
            self._waiting += 1
            return later(context, request)

        return handle

    async def _released_or(self, client_gone: ClientGone) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object) -> None:
            if not waiter.done():
                waiter.set_result(None)

        self._waiters[waiter] = None
        client_gone.add_done_callback(wake)
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)
            client_gone.remove_done_callback(wake)

    def _release(self) -> None:
        self._may_serve = True
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _look_again(self) -> None:
        self._look()
        self._cancel_timer = self._env.call_at(self._env.now_ns() + LOOK_INTERVAL_NS, self._look_again)

    def _look(self) -> None:
        self._lease.look(self._env.now_ns())
        if self._lease.doubted_since_ns is not None and self._may_serve:
            self._may_serve = False
            self._env.log.warning("broker_was_stopped", absence_ms=self._lease.absence_ns // NS_PER_MS)
            self._task_group.create_task(self._become_certain())

    async def _become_certain(self) -> None:
        while self._lease.doubted_since_ns is not None:
            asked_ns = self._env.now_ns()
            await self._catch_up()
            # If the process was stopped again meanwhile, `look` renews the doubt, and `confirm` does not end it.
            self._lease.look(self._env.now_ns())
            self._lease.confirm(asked_ns)
        self._release()
        self._env.log.info("broker_metadata_current", requests=self._waiting)
