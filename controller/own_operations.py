"""The operations that the active controller starts by itself, at intervals (shell).

Each is an event of the controller's queue, as an operation that a request asks for: session expiry, the NoOp record of an
idle log, and the two sweeps that elect leaders.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from common.environment.interface import Environment
from common.ids import NO_LEADER
from common.metadata.metadata_version import NO_OP_LEVEL
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import NoOpRecord
from common.time_units import NS_PER_MS
from controller.core.fencing import fence_stale_broker, unfenced_brokers
from controller.core.leaderless import elect_leaderless
from controller.core.preferred import ELECTIONS_PER_PASS_MAX, elect_preferred_leaders
from controller.core.result import ControllerResult
from controller.core.settings import ControllerSettings
from controller.core.turn import Operation, Response, Turn
from controller.term import Term

# The longest time between two checks for expired sessions.
SESSION_CHECK_INTERVAL_NS = 500 * NS_PER_MS
LEADERLESS_SWEEP_INTERVAL_NS = 1_000 * NS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTimers:
    """The intervals at which the controller starts operations by itself. 0 switches a timer off."""

    idle_interval_ns: int = 500 * NS_PER_MS
    preferred_interval_ns: int = 0


class Controller(Protocol):
    """The part of QuorumController that these operations need."""

    @property
    def term(self) -> Term | None: ...

    @property
    def state(self) -> MetadataState: ...

    def look_at_clock(self) -> None: ...

    def submit(self, name: str, operation: Operation[None, Response], request: None) -> "asyncio.Future[Response]": ...


class OwnOperations:
    """See the module docstring."""

    def __init__(
        self, env: Environment, controller: Controller, timers: ControllerTimers, settings: ControllerSettings
    ) -> None:
        self._env = env
        self._controller = controller
        self._timers = timers
        self._settings = settings

    def start(self, task_group: asyncio.TaskGroup) -> None:
        """Starts the timers. All tasks belong to `task_group`."""
        task_group.create_task(self._expire_sessions(), name="controller-sessions")
        task_group.create_task(self._sweep_leaderless(), name="controller-leaderless")
        if self._timers.idle_interval_ns:
            task_group.create_task(self._keep_log_moving(), name="controller-no-op")
        if self._timers.preferred_interval_ns:
            task_group.create_task(self._balance_leaders(), name="controller-preferred")

    async def _expire_sessions(self) -> None:
        """Fences brokers whose session has expired, one broker per operation."""
        interval_ns = min(SESSION_CHECK_INTERVAL_NS, max(self._settings.session_timeout_ns // 8, NS_PER_MS))
        while True:
            now_ns = self._env.now_ns()
            deadline_ns = now_ns + interval_ns
            if self._controller.term is not None:
                expiry_ns = self._controller.term.sessions.next_expiry_ns(unfenced_brokers(self._controller.state), now_ns)
                deadline_ns = min(deadline_ns, max(expiry_ns, now_ns + NS_PER_MS))
            await self._env.sleep_until(deadline_ns)
            self._controller.look_at_clock()
            # Read the term again: a term may have started or ended during the sleep.
            term = self._controller.term
            if term is None:
                continue
            if term.sessions.longest_silent(unfenced_brokers(self._controller.state), self._env.now_ns()) is not None:
                await self._by_itself("fence_stale_broker", fence_stale_broker)

    async def _keep_log_moving(self) -> None:
        """Appends a NoOp record to an idle log once per interval, so that followers can tell an idle log from a stalled
        one."""
        interval_ns = self._timers.idle_interval_ns
        while True:
            term = self._controller.term
            last_ns = self._env.now_ns()
            # If NoOp records cannot be written, sleep a full interval from now. Measured from the last append, the interval
            # would soon be over, and this loop would wake up every millisecond.
            if term is not None and self._controller.state.metadata_version >= NO_OP_LEVEL:
                last_ns = term.last_append_ns
            await self._env.sleep_until(max(last_ns + interval_ns, self._env.now_ns() + NS_PER_MS))
            if term is None or term is not self._controller.term or self._controller.state.metadata_version < NO_OP_LEVEL:
                continue
            if self._env.now_ns() - term.last_append_ns >= interval_ns:
                await self._by_itself("no_op", _no_op)

    async def _sweep_leaderless(self) -> None:
        """Elects leaders for leaderless partitions once per interval. Skips the sweep if nothing that their elections depend
        on has changed since a sweep that elected no leader."""
        while True:
            await self._env.sleep_until(self._env.now_ns() + LEADERLESS_SWEEP_INTERVAL_NS)
            term, state = self._controller.term, self._controller.state
            if term is None or term.swept_count == state.election_changes or not state.leads_any(NO_LEADER):
                continue
            seen_count = state.election_changes
            elected = await self._by_itself("elect_leaderless", elect_leaderless)
            if not elected:
                term.swept_count = seen_count

    async def _balance_leaders(self) -> None:
        while True:
            await self._env.sleep_until(self._env.now_ns() + self._timers.preferred_interval_ns)
            moved: int | None = ELECTIONS_PER_PASS_MAX
            # If a pass reached its limit, start the next pass at once, as in Kafka, instead of after another interval.
            while self._controller.term is not None and moved == ELECTIONS_PER_PASS_MAX:
                moved = await self._by_itself("elect_preferred_leaders", elect_preferred_leaders)

    async def _by_itself(self, name: str, operation: Operation[None, Response]) -> Response | None:
        """Runs one of the controller's own operations. Returns None if this node is no longer active, or has just resigned
        because the change does not fit the metadata log."""
        try:
            return await self._controller.submit(name, operation, None)
        except ApiError as error:
            if error.code not in (ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR):
                raise
            return None


def _no_op(_turn: Turn, _request: None) -> ControllerResult[None]:
    return ControllerResult([ApiMessageAndVersion(NoOpRecord(), 0)], None)
