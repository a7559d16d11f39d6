"""A loaded shard at work: carries out its steps, keeps its timers, and gives its answers once they may be given (shell).

Counterpart of the event processing in Kafka's CoordinatorRuntime.

1. The records of a step are one batch, appended at once; or the step is a transaction marker, which is a batch as well. The
   state has changed by then, so a step that cannot be appended or replicated ends this shard: its owner throws the shard
   away and loads the partition again.
2. Answers are given in the order of the steps. A step without records waits for the steps before it. So no answer shows
   state that could still be lost.
3. A step that is not replicated within offsets.commit.timeout.ms answers COORDINATOR_NOT_AVAILABLE (OffsetFetch:
   COORDINATOR_LOAD_IN_PROGRESS). Its records stay in the log and in the state, and later steps keep waiting.
4. No answer waits for a directory that is suspected of hanging, as in Produce: a step that would have to wait answers as if
   its time was over. It is carried out all the same, so that the members whose heartbeats it has do not expire meanwhile.
5. While the partition changes its directory, the appends are held back by the partition, and so are the answers.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic

from broker.coordinator.core.result import Answer, MarkersDue, Now, Step
from broker.coordinator.shard import Operation, S
from broker.coordinator.waiting_request import SIZE_ERRORS, WaitingRequest, coordinator_error
from broker.hosting.partition import Partition
from common.environment.interface import Environment, LogDirError
from common.ids import Offset
from common.protocol.errors import ErrorCode
from common.records.batch import TRANSACTIONAL_BIT, BatchHeader, read_header
from common.records.record import Record, encode_batch
from common.storage.errors import LogClosed
from common.storage.producers.state import ProducerRefused


@dataclass(slots=True, eq=False)
class _PendingStep:
    """A step whose answers are not given yet. `is_done` is set once its own records are replicated."""

    answers: Sequence[Answer]
    markers_due: Sequence[MarkersDue]
    deadline_ns: int
    is_done: bool = False


@dataclass(slots=True)
class _Timer:
    """`due_ns` is when to fire; `cancel` ends the wake-up, which may come earlier."""

    due_ns: int
    cancel: Callable[[], None] = field(default=lambda: None)


class OpenShard(Generic[S]):
    """See the module docstring. `on_failed` is called once, with the error of the append that ended the shard.
    `send_markers` gets the markers that a step makes due, once the step is replicated. `is_held_up` tells whether the
    partition's directory, here or at a follower, is suspected of hanging."""

    def __init__(
        self,
        env: Environment,
        partition: Partition,
        shard: S,
        *,
        commit_timeout_ns: int,
        on_failed: Callable[[ErrorCode], None],
        send_markers: Callable[[MarkersDue], None],
        is_held_up: Callable[[], bool],
    ) -> None:
        self._env = env
        self._partition = partition
        self.shard = shard
        self._commit_timeout_ns = commit_timeout_ns
        self._on_failed = on_failed
        self._send_markers = send_markers
        self._is_held_up = is_held_up
        # The steps whose answers are not given yet, in their order. Their deadlines ascend.
        self._pending: deque[_PendingStep] = deque()
        self._timers: dict[tuple[str, ...], _Timer] = {}
        self._cancel_deadline: Callable[[], None] | None = None
        # Set once, by `close` or a failed append. From then on nothing is carried out.
        self.is_closed = False

    def open(self) -> None:
        """Starts the timers of what was loaded."""
        self.perform(lambda shard, now: [shard.loaded(now)])

    def perform(self, operation: Operation[S]) -> None:
        """Carries out one operation of the shard."""
        for step in operation(self.shard, Now(ns=self._env.now_ns(), wall_ms=self._env.wall_ms())):
            self._carry_out(step)

    def close(self, error: ErrorCode) -> None:
        """Answers everything that waits with `error`, and cancels the timers."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._cancel_deadline is not None:
            self._cancel_deadline()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        pending, self._pending = self._pending, deque()
        for step in pending:
            _refuse(step.answers, error)
        for answer in self.shard.unloaded(coordinator_error(error)):
            _give(answer)

    # --- steps ---------------------------------------------------------------------------------------------------

    def _carry_out(self, step: Step) -> None:
        if self.is_closed:
            # A step before this one, of the same operation, could not be appended.
            _refuse(step.answers, ErrorCode.NOT_COORDINATOR)
            return
        for change in step.timers:
            self._set_timer(change.key, change.at_ns)
        has_records = bool(step.records) or step.marker is not None
        if not has_records and not self._pending:
            self._end_step(step.answers, step.markers_due)
            return
        deadline_ns = self._env.now_ns() + self._commit_timeout_ns
        pending = _PendingStep(step.answers, step.markers_due, deadline_ns, is_done=not has_records)
        if self._is_held_up():
            _time_out(pending)
        self._pending.append(pending)
        if self._cancel_deadline is None:
            self._watch_deadline()
        if has_records:
            self._partition.when_appendable(partial(self._append, pending, step))

    def _append(self, pending: _PendingStep, step: Step) -> None:
        if self.is_closed:
            # An append before this one failed while both were held back.
            return
        error = self._partition.leader_error()
        if error is ErrorCode.NONE and not self._partition.has_enough_in_sync():
            error = ErrorCode.NOT_ENOUGH_REPLICAS
        if error is not ErrorCode.NONE:
            self._fail(pending, error)
            return
        if step.marker is not None:
            self._try_append(pending, partial(self._partition.append_marker, step.marker))
            return
        header, batch = self._batch(step)
        config = self._partition.config
        if header.size > config.max_message_bytes:
            self._fail(pending, ErrorCode.MESSAGE_TOO_LARGE)
        elif header.size > config.segment_bytes:
            self._fail(pending, ErrorCode.RECORD_LIST_TOO_LARGE)
        else:
            self._try_append(pending, partial(self._partition.append_as_leader, [(header, batch)]))

    def _batch(self, step: Step) -> tuple[BatchHeader, memoryview]:
        wall_ms = self._env.wall_ms()
        records = [Record(key=each.key, value=each.value, timestamp_ms=wall_ms) for each in step.records]
        if step.transaction is None:
            batch = encode_batch(records)
        else:
            producer_id, producer_epoch = step.transaction
            batch = encode_batch(
                records, attributes=TRANSACTIONAL_BIT, producer_id=producer_id, producer_epoch=producer_epoch
            )
        return read_header(batch), memoryview(batch)

    def _try_append(self, pending: _PendingStep, append: Callable[..., object]) -> None:
        try:
            append(
                on_written=partial(self._written, pending),
                on_failed=lambda: self._fail(pending, ErrorCode.KAFKA_STORAGE_ERROR),
            )
        except (LogDirError, LogClosed):
            self._fail(pending, ErrorCode.KAFKA_STORAGE_ERROR)
        except ProducerRefused:
            # While the append was held back, the producer was fenced, or another marker came first.
            self._fail(pending, ErrorCode.INVALID_PRODUCER_EPOCH)

    def _written(self, pending: _PendingStep, end_offset: Offset) -> None:
        if not self.is_closed:
            self._partition.wait_until_replicated(end_offset, partial(self._replicated, pending), is_patient=True)

    def _replicated(self, pending: _PendingStep, error: ErrorCode) -> None:
        if self.is_closed:
            return
        if error is not ErrorCode.NONE:
            self._fail(pending, error)
            return
        pending.is_done = True
        while self._pending and self._pending[0].is_done:
            done = self._pending.popleft()
            self._end_step(done.answers, done.markers_due)

    def _end_step(self, answers: Sequence[Answer], markers_due: Sequence[MarkersDue]) -> None:
        for answer in answers:
            _give(answer)
        for due in markers_due:
            self._send_markers(due)

    def _fail(self, pending: _PendingStep, error: ErrorCode) -> None:
        if self.is_closed:
            return
        _refuse(pending.answers, error)
        # Only the step itself was too large. To everybody else the coordinator is away for a moment.
        self._on_failed(ErrorCode.COORDINATOR_NOT_AVAILABLE if error in SIZE_ERRORS else error)

    # --- the deadline of the steps ---------------------------------------------------------------------------------

    def give_up_waiting(self) -> None:
        """Answers every step that waits, because a directory is suspected (rule 4)."""
        for pending in self._pending:
            _time_out(pending)

    def _watch_deadline(self) -> None:
        waiting = next((each for each in self._pending if each.answers), None)
        if waiting is not None:
            self._cancel_deadline = self._env.call_at(waiting.deadline_ns, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        now_ns = self._env.now_ns()
        self._cancel_deadline = None
        for pending in self._pending:
            if pending.deadline_ns > now_ns:
                break
            _time_out(pending)
        self._watch_deadline()

    # --- timers --------------------------------------------------------------------------------------------------

    def _set_timer(self, key: tuple[str, ...], at_ns: int | None) -> None:
        timer = self._timers.get(key)
        if at_ns is None:
            if timer is not None:
                timer.cancel()
                del self._timers[key]
        elif timer is not None and timer.due_ns <= at_ns:
            # Nearly every heartbeat moves a timer back. Let it wake up at its old time, and look again then.
            timer.due_ns = at_ns
        else:
            if timer is not None:
                timer.cancel()
            self._start_timer(key, _Timer(at_ns))

    def _start_timer(self, key: tuple[str, ...], timer: _Timer) -> None:
        self._timers[key] = timer
        timer.cancel = self._env.call_at(timer.due_ns, partial(self._wake_up, key, timer))

    def _wake_up(self, key: tuple[str, ...], timer: _Timer) -> None:
        if self._env.now_ns() < timer.due_ns:
            self._start_timer(key, timer)
            return
        del self._timers[key]
        self.perform(lambda shard, now: shard.timer_fired(now, key))


def _give(answer: Answer) -> None:
    assert isinstance(answer.waiter, WaitingRequest)
    answer.waiter.answer(answer.response)


def _time_out(pending: _PendingStep) -> None:
    _refuse(pending.answers, ErrorCode.REQUEST_TIMED_OUT)
    pending.answers = ()


def _refuse(answers: Sequence[Answer], error: ErrorCode) -> None:
    for answer in answers:
        assert isinstance(answer.waiter, WaitingRequest)
        answer.waiter.refuse(error)
