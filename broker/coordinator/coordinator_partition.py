"""One led partition of a coordinator: loads its shard, lets it work, and loads it again after a failure (shell).

Counterpart of a CoordinatorContext in Kafka's CoordinatorRuntime, without its snapshots: a shard whose append failed is
thrown away, and the log decides what happened.

1. A load reads up to the end that the log had when the load began, and waits until the high watermark has reached that end.
   A record above the high watermark might be lost again, although its effect would be visible.
2. Until the load is over, requests are answered with COORDINATOR_LOAD_IN_PROGRESS.
3. After a failure the next load waits. A lack of in-sync replicas usually lasts, and until it ends, a load only serves reads
   up to the next refused step. As it may read a large log each time, the pause doubles, as it does while the load itself
   fails; but it ends at once when the ISR has enough members again. After any other failed append the pause is short: if one
   batch was too large, nothing is wrong with the partition, and its other groups or transactional ids are waiting.
4. This object lives as long as one leadership. A new leader epoch means a new object, even on the same broker.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic

from broker.coordinator.core.result import MarkersDue, Now, Step
from broker.coordinator.log_replay import NotReplayed, Replayed, replay_log
from broker.coordinator.open_shard import OpenShard
from broker.coordinator.shard import Operation, S
from broker.coordinator.waiting_request import WaitingRequest
from broker.hosting.partition import Partition
from common.environment.interface import Environment
from common.ids import BrokerId, DirectoryId, Offset
from common.protocol.errors import ErrorCode
from common.slices import ITEMS_PER_SLICE, pause_before
from common.time_units import NS_PER_MS, NS_PER_S

_RETRY_MIN_NS = NS_PER_S
_RETRY_MAX_NS = 60 * NS_PER_S


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """What the shell of the coordinator takes from the configuration."""

    broker_id: BrokerId
    commit_timeout_ns: int
    expiry_interval_ns: int


@dataclass(slots=True)
class LoadCounts:
    """The loads of all partitions since the broker started."""

    loaded: int = 0
    failed: int = 0
    load_time_ns_sum: int = 0
    load_time_ns_max: int = 0


class CoordinatorPartition(Generic[S]):
    """See the module docstring. Begins to load at once. `send_markers` gets this partition and what a step makes due."""

    def __init__(
        self,
        env: Environment,
        partition: Partition,
        settings: CoordinatorSettings,
        *,
        new_shard: Callable[[], S],
        counts: LoadCounts,
        task_group: asyncio.TaskGroup,
        send_markers: "Callable[[CoordinatorPartition[S], MarkersDue], None]",
        suspected: Container[DirectoryId],
    ) -> None:
        self.partition = partition
        self.leader_epoch = partition.replica.leader_epoch
        self._env = env
        self._settings = settings
        self._new_shard = new_shard
        self._counts = counts
        self._task_group = task_group
        self._send_markers = send_markers
        self._suspected = suspected
        # The shard at work. None while it is being loaded, and after `close`.
        self._open: OpenShard[S] | None = None
        # The load under way, or the timer of the next one. Invariant: at most one of these and `_open` is set.
        self._load_task: asyncio.Task[None] | None = None
        self._cancel_retry: Callable[[], None] | None = None
        # How long the next load after a failure waits (rule 3).
        self._retry_ns = _RETRY_MIN_NS
        self._cancel_expiry: Callable[[], None] | None = None
        # Whether a task goes through what may expire.
        self._is_expiring = False
        # The operations to carry out once the shard is loaded. Invariant: empty while `_open` is set.
        self._deferred: list[Operation[S]] = []
        self._begin_load()

    @property
    def is_loaded(self) -> bool:
        return self._open is not None

    @property
    def shard(self) -> S | None:
        """The loaded shard; None while it is being loaded."""
        return None if self._open is None else self._open.shard

    def perform(self, waiting: WaitingRequest, operation: Operation[S]) -> None:
        """Carries out an operation for a request, or refuses the request."""
        if self._open is None:
            waiting.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        error = self.partition.leader_error()
        if error is not ErrorCode.NONE:
            waiting.refuse(error)
            return
        self._open.perform(operation)

    def perform_unasked(self, operation: Operation[S]) -> None:
        """Carries out an operation that no request asked for, if the shard is loaded. If the partition takes no records for
        now, the operation must not be dropped: a step of it that has records throws the shard away, so that the next one
        begins with what is in the log."""
        if self._open is not None:
            self._open.perform(operation)

    def perform_once_loaded(self, operation: Operation[S]) -> None:
        """Like `perform_unasked`, but a shard that is being loaded carries it out once it is loaded."""
        if self._open is None:
            self._deferred.append(operation)
        else:
            self.perform_unasked(operation)

    def partition_changed(self) -> None:
        """Ends the pause before the next load if the ISR has enough members. Call it when the ISR or min.insync.replicas may
        have changed, or what is known of the followers' directories."""
        self.look_for_hung_directories()
        if not self.partition.has_enough_in_sync():
            return
        self._retry_ns = _RETRY_MIN_NS
        if self._cancel_retry is not None:
            self._cancel_retry()
            self._begin_load()

    def look_for_hung_directories(self) -> None:
        """Answers what waits if the directory of the partition, or that of a follower, may hang."""
        if self._open is not None and self._is_held_up():
            self._open.give_up_waiting()

    def _is_held_up(self) -> bool:
        return self.partition.waits_for_any(self._suspected) or self.partition.replica.is_held_up

    def close(self, error: ErrorCode) -> None:
        """Ends the work: this broker no longer leads the partition. Everything that waits is refused with `error`."""
        if self._load_task is not None:
            self._load_task.cancel()
        if self._cancel_retry is not None:
            self._cancel_retry()
        self._throw_away(error)

    def _throw_away(self, error: ErrorCode) -> None:
        if self._cancel_expiry is not None:
            self._cancel_expiry()
            self._cancel_expiry = None
        shard, self._open = self._open, None
        if shard is not None:
            shard.close(error)
            self._env.log.info("coordinator_unloaded", partition=self.partition.name, reason=error.name)

    # --- loading -------------------------------------------------------------------------------------------------

    def _begin_load(self) -> None:
        self._cancel_retry = None
        end_offset = self.partition.log.log_end_offset
        if end_offset == self.partition.log.log_start_offset == self.partition.high_watermark:
            # A new partition. It can be served at once.
            self._loaded(self._new_shard(), end_offset, Replayed(), self._env.now_ns())
            return
        self._load_task = self._task_group.create_task(self._load(), name=f"load-{self.partition.name}")

    def _retry_later(self) -> None:
        self._cancel_retry = self._env.call_at(self._env.now_ns() + self._retry_ns, self._begin_load)
        self._retry_ns = min(2 * self._retry_ns, _RETRY_MAX_NS)

    async def _load(self) -> None:
        began_ns = self._env.now_ns()
        shard = self._new_shard()
        try:
            end_offset = await self._committed_end()
            replayed = await replay_log(self.partition, shard, end_offset)
        except NotReplayed as error:
            self._counts.failed += 1
            self._env.log.error("coordinator_load_failed", partition=self.partition.name, reason=str(error))
            self._retry_later()
            return
        finally:
            self._load_task = None
        self._loaded(shard, end_offset, replayed, began_ns)

    def _loaded(self, shard: S, end_offset: Offset, replayed: Replayed, began_ns: int) -> None:
        taken_ns = self._env.now_ns() - began_ns
        self._counts.loaded += 1
        self._counts.load_time_ns_sum += taken_ns
        self._counts.load_time_ns_max = max(self._counts.load_time_ns_max, taken_ns)
        self._env.log.info(
            "coordinator_loaded",
            partition=self.partition.name,
            leader_epoch=self.leader_epoch,
            end_offset=end_offset,
            records=replayed.records,
            size_bytes=replayed.size_bytes,
            duration_ms=taken_ns // NS_PER_MS,
        )
        self._open_shard(shard)

    async def _committed_end(self) -> Offset:
        """Returns the end of the log, once everything below it is committed (rule 1). Raises NotReplayed."""
        error = self.partition.leader_error()
        if error is not ErrorCode.NONE:
            raise NotReplayed(error.name)
        end_offset = self.partition.log.log_end_offset
        result: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        is_waiting = True

        def end_wait(error: ErrorCode) -> None:
            nonlocal is_waiting
            is_waiting = False
            if not result.done():
                result.set_result(error)

        give_up = self.partition.wait_until_replicated(end_offset, end_wait, is_patient=True)
        try:
            error = await result
        finally:
            if is_waiting and give_up is not None:
                give_up()
        if self.partition.high_watermark < end_offset:
            raise NotReplayed(error.name)
        return end_offset

    def _open_shard(self, shard: S) -> None:
        self._open = OpenShard(
            self._env,
            self.partition,
            shard,
            commit_timeout_ns=self._settings.commit_timeout_ns,
            on_failed=self._failed,
            send_markers=lambda due: self._send_markers(self, due),
            is_held_up=self._is_held_up,
        )
        self._expire_later()
        self._open.open()
        deferred, self._deferred = self._deferred, []
        for operation in deferred:
            self.perform_once_loaded(operation)

    def _failed(self, error: ErrorCode) -> None:
        """Throws the shard away, because one of its steps is not in the log or may be lost. Loads the partition again."""
        self._throw_away(error)
        if self.partition.has_enough_in_sync():
            self._retry_ns = _RETRY_MIN_NS
        self._retry_later()

    def _expire_later(self) -> None:
        self._cancel_expiry = self._env.call_at(self._env.now_ns() + self._settings.expiry_interval_ns, self._expire)

    def _expire(self) -> None:
        self._expire_later()
        if self._open is not None and not self._is_expiring:
            self._is_expiring = True
            self._task_group.create_task(self._expire_in_slices(self._open))

    async def _expire_in_slices(self, opened: OpenShard[S]) -> None:
        """Each slice is an operation, and others may come in between. Those may be about the same groups."""
        ids = opened.shard.expirable()
        for start in range(0, len(ids), ITEMS_PER_SLICE):
            await pause_before(start)
            if self._open is not opened:
                break
            self.perform_unasked(partial(_expire, ids=ids[start : start + ITEMS_PER_SLICE]))
        self._is_expiring = False


def _expire(shard: S, now: Now, *, ids: Sequence[str]) -> Iterable[Step]:
    return shard.expire(now, ids)
