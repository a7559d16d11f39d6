"""Runs operations on the metadata, appends their records and responds when these are committed (shell).

Counterpart of Kafka's QuorumController. Every operation is one event of the queue:

    check that this node is active -> operation -> replay on the state -> schedule the append -> park the response

An operation on very many partitions works in slices, and other tasks run between them. It stays atomic: the next operation
waits until it has ended, it replays nothing before it has decided everything, and its records are one metadata transaction
unless they fit into one batch. Heartbeats that ask for nothing are answered between two slices.

A parked response is sent when the records are committed. An operation without records waits for the last scheduled record,
because it may have read uncommitted state. The operations that the controller starts by itself go through the same queue
(`controller/own_operations.py`).

Easy to get wrong: the active controller's state is ahead of the committed log. When it loses leadership, the state is
dropped and rebuilt from snapshot and log; no part of it may be kept.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from common.environment.interface import Environment
from common.ids import BrokerId, LeaderEpoch, Offset
from common.metadata.metadata_version import CONTROLLER_FEATURES
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState, ReplayError
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
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
from controller.core.controller_registration import handle_controller_registration, is_registered
from controller.core.fencing import unfenced_brokers
from controller.core.long_decisions import Sliced
from controller.core.presence import ABSENCE_MIN_NS, LOOK_INTERVAL_NS, Presence
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.settings import ControllerSettings
from controller.core.transactions import RECORDS_PER_BATCH_MAX, plan_append
from controller.core.turn import EarlyAnswer, Operation, Request, Response, Turn
from controller.core.unfencing import AwaitedReplicas
from controller.event_log import EventLog
from controller.event_queue import EventQueue, loop_turn
from controller.metadata_feed import MetadataFeed
from controller.own_operations import ControllerTimers, OwnOperations
from controller.term import Term

# How many records of an operation are replayed, encoded and scheduled before the event loop may run other tasks. The removal
# of a topic counts as one record for each of its partitions.
RECORDS_PER_SLICE = 1_000


class MetadataLogDriver(Protocol):
    """The part of the quorum driver that the controller needs."""

    @property
    def log_end_offset(self) -> Offset: ...

    def register(self, listener: MetadataListener) -> None: ...

    def unregister(self, listener: MetadataListener) -> None: ...

    def schedule_append(self, records: Sequence[ApiMessageAndVersion], *, epoch: int, atomic: bool = True) -> Offset: ...

    def resign(self, epoch: int) -> None: ...

    def load_bootstrap_records(self) -> list[ApiMessageAndVersion]: ...


@dataclass(frozen=True, slots=True)
class _Parked:
    """A response that waits for a commit: of the operation's own records or, if it has none, of all records appended
    before."""

    # The response may be sent once this offset is committed.
    offset: Offset
    # The future that `submit` returned. It is already done if the caller was cancelled.
    answer: "asyncio.Future[Any]"
    response: Any
    # The events to log when the response is sent. All of them have `is_about_commit`.
    events: Sequence[ControllerEvent]
    # When the operation began. The logged events report the time elapsed since.
    begun_ns: int


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """The operation that the queue carries out."""

    # The last offset before the operation's records.
    offset: Offset
    # The registrations before the operation.
    brokers: Mapping[BrokerId, BrokerRegistration]


class QuorumController:
    """One controller node, active or standby."""

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
        self._own_operations = OwnOperations(env, self, timers or ControllerTimers(), settings)
        self._records_per_batch_max = records_per_batch_max
        self._on_active = on_active
        # All operations that wait for their turn. The queue lives as long as the node: requests wait here across terms, and
        # get NOT_CONTROLLER if this node is not active when their turn comes.
        self._queue = EventQueue(env)
        # Remembers when the event loop last ran. Updated by a timer of its own, by session expiry and by every operation.
        self._presence = Presence(env.now_ns())
        # This node's term as the active controller; None on a standby. Set by `_become_active`, cleared by `_resign`.
        # Invariant: while a term is set, the feed is ahead of the log, and this node is the leader of the term's epoch as
        # far as this node knows.
        self._term: Term | None = None
        # The quorum's latest leader and epoch as reported to the feed.
        self._leader = LeaderAndEpoch(None, LeaderEpoch(0))
        # The feed, which owns the metadata state. Invariant: the only feed that is attached; `_resign` detaches it and makes
        # another one.
        self._feed = self._new_feed()
        # The operation that is being carried out in slices; None while the queue waits for its next event.
        self._under_way: _UnderWay | None = None
        # The responses that wait for a commit. Invariant: their offsets never descend, and all are beyond the committed
        # offset; empty while this node is a standby. Operations append on the right, commits pop from the left, `_resign`
        # fails all of them.
        self._parked: deque[_Parked] = deque()
        # What this node registers as. Set once, when the listeners are open; None before.
        self._own_registration: ControllerRegistrationRequest | None = None
        # Whether an operation that registers this node is queued or waits for its commit.
        self._is_registering = False
        self._event_log = EventLog(env)
        # Counts the changes to the state. Rises by one per replayed record on the active controller (NoOp records left out),
        # and by one per committed batch on a standby. Only compared for equality.
        self.change_count = 0
        # The counters below are metrics. They only rise and are kept across terms.
        self.new_active_count = 0
        self.timed_out_heartbeat_count = 0
        self.unclean_election_count = 0

    # --- queries ------------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        return self._term is not None

    @property
    def term(self) -> Term | None:
        """This node's term as the active controller; None on a standby."""
        return self._term

    @property
    def leader(self) -> LeaderAndEpoch:
        """The quorum's leader, which is the active controller, as far as this node knows."""
        return self._leader

    @property
    def state(self) -> MetadataState:
        """The metadata. On the active controller it may be ahead of the committed log."""
        return self._feed.state

    @property
    def settings(self) -> ControllerSettings:
        return self._settings

    @property
    def committed_offset(self) -> Offset:
        return self._feed.committed_offset

    @property
    def committed_wall_ms(self) -> int:
        """When the last committed record was appended."""
        return self._feed.committed_wall_ms

    @property
    def awaited_replica_count(self) -> int:
        """How many replicas keep their brokers fenced until their directories are known; 0 on a standby."""
        return 0 if self._term is None else self._term.awaited.total

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
        early: EarlyAnswer[Request, Response] | None = None,
    ) -> "asyncio.Future[Response]":
        """Queues an operation. The future gets the response once the operation's records are committed. If that fails, it
        gets an ApiError: the operation's own error, NOT_CONTROLLER if this node is not active or loses leadership, or
        REQUEST_TIMED_OUT if the operation was still queued at its deadline. While a long operation is under way, `early` may
        answer without an operation."""
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def time_out() -> None:
            if on_timeout is not None and self._term is not None:
                on_timeout(self._term.sessions)
            _fail(answer, ApiError(ErrorCode.REQUEST_TIMED_OUT, f"{name} waited too long for its turn"))

        def is_answered_early() -> bool:
            response = None if early is None else self._early_response(early, request)
            if response is not None and not answer.done():
                answer.set_result(response)
            return response is not None

        self._queue.put(
            name,
            lambda: self._carry_out(name, operation, request, answer),
            time_out,
            deadline_ns=deadline_ns,
            is_answered_early=None if early is None else is_answered_early,
        )
        return answer

    def _early_response(self, early: EarlyAnswer[Request, Response], request: Request) -> Response | None:
        term, under_way = self._term, self._under_way
        assert term is not None
        assert under_way is not None
        if under_way.offset > self._feed.committed_offset:
            # The registrations before the operation are not certain yet.
            return None
        return early(self._turn(term), under_way.brokers, request)

    async def _carry_out(
        self, name: str, operation: Operation[Request, Response], request: Request, answer: "asyncio.Future[Response]"
    ) -> None:
        term = self._term
        if term is None:
            _fail(answer, ApiError(ErrorCode.NOT_CONTROLLER))
            return
        begun_ns = self._env.now_ns()
        # When the process resumes after having been suspended, this operation may run before the timer does. If the
        # operation depends on sessions, it must see them extended.
        self.look_at_clock()
        turn = self._turn(term)
        self._under_way = _UnderWay(Offset(turn.next_write_offset - 1), dict(self.state.brokers))
        try:
            result = operation(turn, request)
            if isinstance(result, Generator):
                result = await self._decide_in_slices(term, result)
            assert turn.next_write_offset == self._driver.log_end_offset
            offset = await self._append_in_slices(name, term, result.records, is_atomic=result.is_atomic)
        except ApiError as error:
            _fail(answer, error)
            return
        finally:
            self._under_way = None
            self._excuse_long_operation(term, begun_ns)
        self._event_log.log([event for event in result.events if not event.is_about_commit], begun_ns)
        about_commit = [event for event in result.events if event.is_about_commit]
        self._park(_Parked(offset, answer, result.response, about_commit, begun_ns))

    def _excuse_long_operation(self, term: Term, begun_ns: int) -> None:
        """Extends all sessions if the operation took so long that a broker may look silent. The heartbeats that need a
        decision have waited for its end, and it may be a heartbeat itself."""
        now_ns = self._env.now_ns()
        if now_ns - begun_ns >= ABSENCE_MIN_NS:
            term.sessions.excuse(now_ns - begun_ns, now_ns)

    def _turn(self, term: Term) -> Turn:
        return Turn(
            state=self.state,
            sessions=term.sessions,
            awaited=term.awaited,
            settings=self._settings,
            now_ns=self._env.now_ns(),
            next_write_offset=self._driver.log_end_offset,
            rng=self._env.rng,
            new_uuid=self._env.uuid,
        )

    async def _decide_in_slices(
        self, term: Term, deciding: Sliced[ControllerResult[Response]]
    ) -> ControllerResult[Response]:
        state, last_offset = self.state, self.state.last_offset
        while True:
            try:
                next(deciding)
            except StopIteration as end:
                decided: ControllerResult[Response] = end.value
                return decided
            await self._yield_to_loop(term)
            assert self.state is state
            assert state.last_offset == last_offset, "the state has changed while an operation was deciding"

    async def _yield_to_loop(self, term: Term) -> None:
        """Lets other tasks run and answers what can be answered between two slices. Raises ApiError if this node is no
        longer active afterwards: the state has been dropped, and the next term aborts a transaction that was begun."""
        await loop_turn()
        if self._term is not term:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        self._queue.answer_early()

    async def _append_in_slices(
        self, name: str, term: Term, records: Sequence[ApiMessageAndVersion], *, is_atomic: bool
    ) -> Offset:
        """Replays the records and schedules their append. Returns the offset whose commit the response has to wait for.

        Raises ApiError if this node is no longer active or the records do not fit into the log.
        """
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
        last_offset = base_offset
        for start, piece in self._pieces(planned.records):
            if start > 0:
                await self._yield_to_loop(term)
            self._replay(term, piece, Offset(base_offset + start))
            if not planned.is_atomic:
                last_offset = self._schedule(name, term, piece, is_atomic=False)
        if planned.is_atomic:
            # One batch is encoded in one step. It has too few records to hold up the event loop for long.
            last_offset = self._schedule(name, term, planned.records, is_atomic=True)
        return last_offset

    def _pieces(self, records: Sequence[ApiMessageAndVersion]) -> Iterator[tuple[int, Sequence[ApiMessageAndVersion]]]:
        """Cuts the records into pieces, each with the number of records before it. The caller replays each before it takes
        the next."""
        start = cost = 0
        for number, written in enumerate(records, start=1):
            cost += self.state.replay_cost(written.record)
            if cost >= RECORDS_PER_SLICE or number == len(records):
                yield start, records[start:number]
                start, cost = number, 0

    def _schedule(self, name: str, term: Term, records: Sequence[ApiMessageAndVersion], *, is_atomic: bool) -> Offset:
        """Schedules the append of records that the state already has. Returns the last offset. Raises ApiError."""
        base_offset = self._driver.log_end_offset
        try:
            last_offset = self._driver.schedule_append(records, epoch=term.epoch, atomic=is_atomic)
        except NotLeader:
            # The replayed records need no rollback: the driver is about to report the leader change, and the state is then
            # dropped.
            raise ApiError(ErrorCode.NOT_CONTROLLER) from None
        except RecordsTooLarge as error:
            # The state now has records that the log will never have. Resign, so that this node rebuilds its state from the
            # log.
            self._env.log.error("operation_too_large", operation=name, reason=str(error))
            self._driver.resign(term.epoch)
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the change does not fit the metadata log") from None
        if last_offset != base_offset + len(records) - 1:
            self._fatal("metadata_offset_mismatch", expected=base_offset + len(records) - 1, got=last_offset)
        term.last_append_ns = self._env.now_ns()
        return last_offset

    def _replay(self, term: Term, records: Sequence[ApiMessageAndVersion], base_offset: Offset) -> None:
        for number, written in enumerate(records):
            record = written.record
            if isinstance(record, BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord):
                continue
            try:
                self.state.replay(record, offset=Offset(base_offset + number))
                if isinstance(record, FeatureLevelRecord):
                    self.state.require_supported_levels(CONTROLLER_FEATURES)
            except ReplayError as error:
                self._fatal("metadata_replay_failed", record=repr(record), reason=str(error))
            term.awaited.note(record)
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
        self._maybe_register()

    def _answer(self, parked: "_Parked") -> None:
        self._event_log.log(parked.events, parked.begun_ns)
        if not parked.answer.done():
            parked.answer.set_result(parked.response)

    def _fatal(self, event: str, **fields: Any) -> NoReturn:
        self._env.log.critical(event, **fields)
        self._env.exit(1)

    # --- leadership ---------------------------------------------------------------------------------------------

    def _handle_leader_change(self, feed: MetadataFeed, leader: LeaderAndEpoch) -> None:
        self._leader = leader
        if self._term is not None and (leader.leader_id != self._node_id or leader.epoch != self._term.epoch):
            self._resign()
            if leader.leader_id == self._node_id:
                # This node leads again, in a new epoch, but its state is being rebuilt. The driver reports the leadership to
                # the new feed once that feed has caught up.
                return
        if leader.leader_id == self._node_id and self._term is None:
            self._become_active(feed, leader.epoch)

    def _become_active(self, feed: MetadataFeed, epoch: LeaderEpoch) -> None:
        # The state is complete now. A newer release may have left a level in the log that this one cannot go on with.
        feed.state.require_supported_levels(CONTROLLER_FEATURES)
        now_ns = self._env.now_ns()
        sessions = BrokerSessions(self._settings.session_timeout_ns)
        sessions.begin(unfenced_brokers(feed.state), now_ns)
        term = Term(epoch, sessions, AwaitedReplicas(feed.state), last_append_ns=now_ns)
        bootstrap = [
            each.record for each in self._driver.load_bootstrap_records() if isinstance(each.record, FeatureLevelRecord)
        ]
        records = generate_activation_records(
            feed.state,
            bootstrap,
            is_transaction_open=feed.transactions.is_open,
            is_zk_migration_enabled=self._settings.is_zk_migration_enabled,
        )
        feed.is_ahead = True
        self._term = term
        self.new_active_count += 1
        try:
            if records:
                self._replay(term, records, self._driver.log_end_offset)
                self._schedule("activation", term, records, is_atomic=True)
        except ApiError:
            # This node has lost or resigned the leadership. The driver is about to report the leader change, which ends this
            # term.
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
        self._maybe_register()

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

    # --- registration -------------------------------------------------------------------------------------------

    def register_as(self, registration: ControllerRegistrationRequest) -> None:
        """Sets what this node registers as while it is the active controller. A standby does not register: as long as a
        cluster has a single voter, that voter is the active controller sooner or later. Counterpart of Kafka's
        ControllerRegistrationManager."""
        self._own_registration = registration
        self._maybe_register()

    def _maybe_register(self) -> None:
        """Registers this node unless it is registered. Called whenever that may have changed: after each commit, because
        metadata.version may have risen, and when a term begins."""
        request = self._own_registration
        if self._term is None or request is None or self._is_registering or is_registered(self.state, request):
            return
        self._is_registering = True
        self.submit("controller_registration", handle_controller_registration, request).add_done_callback(self._has_ended)

    def _has_ended(self, answer: "asyncio.Future[ControllerRegistrationResponse]") -> None:
        self._is_registering = False
        error = answer.exception()
        # The term has ended, and the next one may have begun already. After any other error the next commit tries again: at
        # once, the same request would be refused again, and so on without a pause.
        if isinstance(error, ApiError) and error.code is ErrorCode.NOT_CONTROLLER:
            self._maybe_register()

    # --- lifecycle ----------------------------------------------------------------------------------------------

    def start(self, task_group: asyncio.TaskGroup) -> None:
        """Registers with the driver and starts the queue and the timers. All tasks belong to `task_group`."""
        self._driver.register(self._feed)
        task_group.create_task(self._queue.run(), name="controller-events")
        task_group.create_task(self._event_log.run(), name="controller-log")
        task_group.create_task(self._keep_looking_at_clock(), name="controller-presence")
        self._own_operations.start(task_group)

    async def _keep_looking_at_clock(self) -> None:
        """Checks the clock at a fixed interval. Waits for nothing else, so a late check means that the event loop did not
        run."""
        while True:
            self.look_at_clock()
            await self._env.sleep_until(self._env.now_ns() + LOOK_INTERVAL_NS)

    def look_at_clock(self) -> None:
        """Extends all sessions if this process was suspended, because a suspended process receives no heartbeats."""
        now_ns = self._env.now_ns()
        absence_ns = self._presence.look(now_ns)
        if absence_ns and self._term is not None:
            self._env.log.warning("controller_was_stopped", absence_ms=absence_ns // NS_PER_MS)
            self._term.sessions.excuse(absence_ns, now_ns)


def _fail(answer: "asyncio.Future[Any]", error: ApiError) -> None:
    if not answer.done():
        answer.set_exception(error)
        # Retrieve the exception here: if the caller is gone, asyncio would log that it was never retrieved.
        answer.exception()
