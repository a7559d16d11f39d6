"""The active controller's shell: events in, records out, answers when they are committed (shell).

Answers to Kafka's QuorumController. Every operation runs as one event: is this node still active? - operation - replay on
the state - schedule the append - park the answer until the records are committed. An operation without records waits for
the highest offset given out, because it may have read what is not committed yet. Timers put events of their own into the
same queue: session expiry, the NoOp record of an idle log, the sweeps. Easy to get wrong: the state is ahead of the log. On
losing leadership it is dropped and rebuilt from snapshot and log; nothing in it may be kept.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from common.environment.interface import Environment
from common.ids import NO_LEADER, LeaderEpoch, Offset
from common.metadata.metadata_version import NO_OP_LEVEL
from common.metadata.state import MetadataState, ReplayError
from common.protocol.errors import ApiError, ErrorCode
from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import RecordsTooLarge
from common.raft.errors import NotLeader
from common.raft.listener import MetadataListener
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
)
from common.time_units import NS_PER_MS
from controller.core.activation import generate_activation_records
from controller.core.broker_sessions import BrokerSessions
from controller.core.fencing import fence_stale_broker, unfenced_brokers
from controller.core.leaderless import elect_leaderless
from controller.core.preferred import ELECTIONS_PER_PASS_MAX, elect_preferred_leaders
from controller.core.presence import LOOK_INTERVAL_NS, Presence
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.settings import ControllerSettings
from controller.core.transactions import RECORDS_PER_BATCH_MAX, plan_append
from controller.core.turn import Operation, Request, Response, Turn
from controller.event_queue import EventQueue
from controller.metadata_feed import MetadataFeed

# How often sessions are looked at, at most.
SESSION_CHECK_INTERVAL_NS = 500 * NS_PER_MS
LEADERLESS_SWEEP_INTERVAL_NS = 1_000 * NS_PER_MS


class MetadataLogDriver(Protocol):
    """As much of the quorum driver as the controller needs."""

    @property
    def log_end_offset(self) -> Offset: ...

    def register(self, listener: MetadataListener) -> None: ...

    def unregister(self, listener: MetadataListener) -> None: ...

    def schedule_append(self, records: Sequence[ApiMessageAndVersion], *, epoch: int, atomic: bool = True) -> Offset: ...

    def resign(self, epoch: int) -> None: ...

    def load_bootstrap_records(self) -> list[ApiMessageAndVersion]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTimers:
    """When the controller acts by itself. 0 switches a timer off."""

    idle_interval_ns: int = 500 * NS_PER_MS
    preferred_interval_ns: int = 0


@dataclass(frozen=True, slots=True)
class _Parked:
    """An answer that waits for its records, or for what was appended before it, to be committed."""

    offset: Offset
    answer: "asyncio.Future[Any]"
    response: Any
    events: Sequence[ControllerEvent]
    begun_ns: int


@dataclass(slots=True)
class _Term:
    """One time of being the active controller."""

    epoch: LeaderEpoch
    sessions: BrokerSessions
    # The change_count up to which the last sweep found nothing more to elect.
    swept_count: int = -1
    last_append_ns: int = 0


class QuorumController:
    """One controller node, active or standing by."""

    def __init__(
        self,
        env: Environment,
        driver: MetadataLogDriver,
        settings: ControllerSettings,
        *,
        node_id: int,
        timers: ControllerTimers | None = None,
        records_per_batch_max: int = RECORDS_PER_BATCH_MAX,
        on_active: Callable[[], None] = lambda: None,
    ) -> None:
        self._env = env
        self._driver = driver
        self._settings = settings
        self._node_id = node_id
        self._timers = timers or ControllerTimers()
        self._records_per_batch_max = records_per_batch_max
        self._on_active = on_active
        self._queue = EventQueue(env)
        self._presence = Presence(env.now_ns())
        self._term: _Term | None = None
        self._leader = LeaderAndEpoch(None, LeaderEpoch(0))
        self._feed = self._new_feed()
        # Invariant: ascending offsets, all beyond what is committed.
        self._parked: deque[_Parked] = deque()
        # Counts the records that changed the state, by this node's operations or from the log.
        self.change_count = 0
        self.new_active_count = 0
        self.timed_out_heartbeat_count = 0
        self.unclean_election_count = 0

    # --- what there is to see -----------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._term is not None

    @property
    def leader(self) -> LeaderAndEpoch:
        """The active controller as far as this node knows."""
        return self._leader

    @property
    def state(self) -> MetadataState:
        """The cluster. On the active controller it may be ahead of what is committed."""
        return self._feed.state

    @property
    def settings(self) -> ControllerSettings:
        return self._settings

    @property
    def committed_offset(self) -> Offset:
        return self._feed.committed_offset

    @property
    def committed_wall_ms(self) -> int:
        """When the newest committed record was appended."""
        return self._feed.committed_wall_ms

    @property
    def queue(self) -> EventQueue:
        return self._queue

    # --- operations ---------------------------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        operation: Operation[Request, Response],
        request: Request,
        *,
        deadline_ns: int | None = None,
        on_timeout: Callable[[BrokerSessions], None] | None = None,
    ) -> "asyncio.Future[Response]":
        """Queues an operation. The future has its response once that is committed, or an ApiError: the operation's own,
        NOT_CONTROLLER where this node is not or no longer active, REQUEST_TIMED_OUT where its turn came too late."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def time_out() -> None:
            if on_timeout is not None and self._term is not None:
                on_timeout(self._term.sessions)
            _fail(answer, ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{name} waited too long for its turn"))

        self._queue.put(name, lambda: self._carry_out(name, operation, request, answer), time_out, deadline_ns)
        return answer

    def _carry_out(
        self, name: str, operation: Operation[Request, Response], request: Request, answer: "asyncio.Future[Response]"
    ) -> None:
        term = self._term
        if term is None:
            _fail(answer, ApiError(ErrorCode.NOT_CONTROLLER))
            return
        begun_ns = self._env.now_ns()
        # Before the operation: it may be about a session, and the timer may not have had its turn yet.
        self._look_at_clock()
        turn = Turn(
            state=self.state,
            sessions=term.sessions,
            settings=self._settings,
            now_ns=begun_ns,
            next_write_offset=self._driver.log_end_offset,
            rng=self._env.rng,
            new_uuid=self._env.uuid,
        )
        try:
            result = operation(turn, request)
            offset = self._append(name, term, result.records, is_atomic=result.is_atomic)
        except ApiError as error:
            _fail(answer, error)
            return
        self._log_events([event for event in result.events if not event.is_about_commit], begun_ns)
        about_commit = [event for event in result.events if event.is_about_commit]
        self._park(_Parked(offset, answer, result.response, about_commit, begun_ns))

    def _append(self, name: str, term: _Term, records: Sequence[ApiMessageAndVersion], *, is_atomic: bool) -> Offset:
        """Replays and schedules. Returns the offset to wait for. Raises ApiError when this node is not active any more."""
        if not records:
            return Offset(self._driver.log_end_offset - 1)
        planned = plan_append(
            records,
            is_atomic=is_atomic,
            level=self.state.metadata_version,
            name=name,
            batch_max=self._records_per_batch_max,
        )
        base_offset = self._driver.log_end_offset
        self._replay(planned.records, base_offset)
        try:
            last_offset = self._driver.schedule_append(planned.records, epoch=term.epoch, atomic=planned.is_atomic)
        except NotLeader:
            # The news of it is on its way and will drop the state that was just changed.
            raise ApiError(ErrorCode.NOT_CONTROLLER) from None
        except RecordsTooLarge as error:
            # The state has what the log will never have: only a new one, built from the log, is right again.
            self._env.log.error("operation_too_large", operation=name, reason=str(error))
            self._driver.resign(term.epoch)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the change does not fit the metadata log") from None
        if last_offset != base_offset + len(planned.records) - 1:
            self._fatal("metadata_offset_mismatch", expected=base_offset + len(planned.records) - 1, got=last_offset)
        term.last_append_ns = self._env.now_ns()
        return last_offset

    def _replay(self, records: Sequence[ApiMessageAndVersion], base_offset: Offset) -> None:
        for number, written in enumerate(records):
            record = written.record
            if isinstance(record, BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord):
                continue
            try:
                self.state.replay(record, offset=Offset(base_offset + number))
            except ReplayError as error:
                self._fatal("metadata_replay_failed", record=repr(record), reason=str(error))
            if isinstance(record, PartitionChangeRecord) and record.leader_recovery_state == 1:
                self.unclean_election_count += 1
            if not isinstance(record, NoOpRecord):
                self.change_count += 1

    def _park(self, parked: "_Parked") -> None:
        if parked.offset <= self._feed.committed_offset:
            self._answer(parked)
        else:
            self._parked.append(parked)

    def _handle_commit(self, offset: Offset) -> None:
        if self._term is None:
            self.change_count += 1
        while self._parked and self._parked[0].offset <= offset:
            self._answer(self._parked.popleft())

    def _answer(self, parked: "_Parked") -> None:
        self._log_events(parked.events, parked.begun_ns)
        if not parked.answer.done():
            parked.answer.set_result(parked.response)

    def _log_events(self, events: Sequence[ControllerEvent], begun_ns: int) -> None:
        for event in events:
            fields: dict[str, Any] = dict(event.fields)
            if event.is_about_commit:
                fields["elapsed_ms"] = round((self._env.now_ns() - begun_ns) / NS_PER_MS, 3)
            self._env.log.info(event.name, **fields)

    def _fatal(self, event: str, **fields: Any) -> NoReturn:
        self._env.log.critical(event, **fields)
        self._env.exit(1)

    # --- leadership ---------------------------------------------------------------------------------------------

    def _handle_leader_change(self, feed: MetadataFeed, leader: LeaderAndEpoch) -> None:
        self._leader = leader
        if self._term is not None and (leader.leader_id != self._node_id or leader.epoch != self._term.epoch):
            self._resign()
            if leader.leader_id == self._node_id:
                # The state is being rebuilt; the new feed hears of the leadership when it is complete.
                return
        if leader.leader_id == self._node_id and self._term is None:
            self._become_active(feed, leader.epoch)

    def _become_active(self, feed: MetadataFeed, epoch: LeaderEpoch) -> None:
        now_ns = self._env.now_ns()
        sessions = BrokerSessions(self._settings.session_timeout_ns)
        sessions.begin(unfenced_brokers(feed.state), now_ns)
        term = _Term(epoch, sessions, last_append_ns=now_ns)
        bootstrap = [
            each.record for each in self._driver.load_bootstrap_records() if isinstance(each.record, FeatureLevelRecord)
        ]
        records = generate_activation_records(feed.state, bootstrap, is_transaction_open=feed.transactions.is_open)
        feed.is_ahead = True
        self._term = term
        self.new_active_count += 1
        try:
            self._append("activation", term, records, is_atomic=True)
        except ApiError:
            # Deposed in the same step; the next leader change says so.
            return
        self._env.log.info(
            "controller_active",
            epoch=epoch,
            offset=self._driver.log_end_offset,
            brokers=len(feed.state.brokers),
            partitions=feed.state.partition_count,
            activation_records=len(records),
        )
        self._on_active()

    def _resign(self) -> None:
        term, self._term = self._term, None
        self._env.log.warning("controller_resigned", epoch=None if term is None else term.epoch)
        self._feed.detach()
        self._driver.unregister(self._feed)
        self._feed = self._new_feed()
        parked, self._parked = self._parked, deque()
        for each in parked:
            _fail(each.answer, ApiError(ErrorCode.NOT_CONTROLLER))
        self._driver.register(self._feed)

    def _new_feed(self) -> MetadataFeed:
        return MetadataFeed(self._env, on_leader_change=self._handle_leader_change, on_commit=self._handle_commit)

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self, task_group: asyncio.TaskGroup) -> None:
        """Registers with the driver and starts consuming; all tasks live in `task_group`."""
        self._driver.register(self._feed)
        task_group.create_task(self._queue.run(), name="controller-events")
        task_group.create_task(self._keep_looking_at_clock(), name="controller-presence")
        task_group.create_task(self._expire_sessions(), name="controller-sessions")
        task_group.create_task(self._sweep_leaderless(), name="controller-leaderless")
        if self._timers.idle_interval_ns:
            task_group.create_task(self._keep_log_moving(), name="controller-no-op")
        if self._timers.preferred_interval_ns:
            task_group.create_task(self._balance_leaders(), name="controller-preferred")

    async def _keep_looking_at_clock(self) -> None:
        """Waits for nothing but the clock: what it is late by is time in which the event loop did not run."""
        while True:
            self._look_at_clock()
            await self._env.sleep_until(self._env.now_ns() + LOOK_INTERVAL_NS)

    def _look_at_clock(self) -> None:
        """Silence of a broker while this process itself was stopped does not count."""
        now_ns = self._env.now_ns()
        absence_ns = self._presence.look(now_ns)
        if absence_ns and self._term is not None:
            self._env.log.warning("controller_was_stopped", absence_ms=absence_ns // NS_PER_MS)
            self._term.sessions.excuse(absence_ns, now_ns)

    async def _expire_sessions(self) -> None:
        """Fences silent brokers, one per event."""
        interval_ns = min(SESSION_CHECK_INTERVAL_NS, max(self._settings.session_timeout_ns // 8, NS_PER_MS))
        while True:
            now_ns = self._env.now_ns()
            deadline_ns = now_ns + interval_ns
            if self._term is not None:
                expiry_ns = self._term.sessions.next_expiry_ns(unfenced_brokers(self.state), now_ns)
                deadline_ns = min(deadline_ns, max(expiry_ns, now_ns + NS_PER_MS))
            await self._env.sleep_until(deadline_ns)
            self._look_at_clock()
            # A term may have begun or ended meanwhile.
            term = self._term
            if term is None:
                continue
            if term.sessions.longest_silent(unfenced_brokers(self.state), self._env.now_ns()) is not None:
                await self._by_itself("fence_stale_broker", fence_stale_broker)

    async def _keep_log_moving(self) -> None:
        """An idle log still gets a record now and then, so that followers can tell idleness from silence."""
        interval_ns = self._timers.idle_interval_ns
        while True:
            term = self._term
            last_ns = self._env.now_ns()
            # Where nothing may be written, the last append lies ever further back and would be no reason to sleep.
            if term is not None and self.state.metadata_version >= NO_OP_LEVEL:
                last_ns = term.last_append_ns
            await self._env.sleep_until(max(last_ns + interval_ns, self._env.now_ns() + NS_PER_MS))
            if term is None or term is not self._term or self.state.metadata_version < NO_OP_LEVEL:
                continue
            if self._env.now_ns() - term.last_append_ns >= interval_ns:
                await self._by_itself("no_op", _no_op)

    async def _sweep_leaderless(self) -> None:
        """Only a change of the metadata can make a leaderless partition electable, so that an idle cluster costs a look."""
        while True:
            await self._env.sleep_until(self._env.now_ns() + LEADERLESS_SWEEP_INTERVAL_NS)
            term = self._term
            if term is None or term.swept_count == self.change_count or not self.state.leads_any(NO_LEADER):
                continue
            seen_count = self.change_count
            elected = await self._by_itself("elect_leaderless", elect_leaderless)
            if not elected:
                term.swept_count = seen_count

    async def _balance_leaders(self) -> None:
        while True:
            await self._env.sleep_until(self._env.now_ns() + self._timers.preferred_interval_ns)
            moved: int | None = ELECTIONS_PER_PASS_MAX
            # Whom a pass had to leave over comes next, as in Kafka, and not after another interval.
            while self._term is not None and moved == ELECTIONS_PER_PASS_MAX:
                moved = await self._by_itself("elect_preferred_leaders", elect_preferred_leaders)

    async def _by_itself(self, name: str, operation: Operation[None, Response]) -> Response | None:
        """An operation that nobody asked for. None when this node stopped being active meanwhile."""
        try:
            return await self.submit(name, operation, None)
        except ApiError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise
            return None


def _no_op(_turn: Turn, _request: None) -> ControllerResult[None]:
    return ControllerResult([ApiMessageAndVersion(NoOpRecord(), 0)], None)


def _fail(answer: "asyncio.Future[Any]", error: ApiError) -> None:
    if not answer.done():
        answer.set_exception(error)
        # Whoever asked may be gone; asking marks the error as seen.
        answer.exception()
