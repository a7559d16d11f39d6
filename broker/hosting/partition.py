"""One partition hosted on this broker: its logs, its replica state, and its waiting requests (shell).

Counterpart of the shell side of Kafka's Partition. It feeds log events into the core (`PartitionReplica`) and carries out
the effects: it completes waiting requests and sends ISR proposals to the controller.

1. `log.log_end_offset` includes batches still on their way to the disk. Only what is below `log.written_offset` may be read,
   replicated or acknowledged.
2. While the log is being truncated or replaced (`is_restructuring`), its end is unknown. New metadata waits until that is
   done, because a leader's epoch must not begin at an end that is about to change.
3. The replica outlives its log. `replace_log` swaps in another log from the same directory (a reloaded one) or from another
   directory (a future replica that has caught up). Requests keep waiting for records that the new log holds.
4. While a future replica takes the place of the current log (`is_swapping`), the partition is served, but appends are held
   back. When the swap ends, successfully or not, they are carried out in the order of their arrival.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from broker.core.partition_replica import (
    AlterPartitionResult,
    Effect,
    HighWatermarkAdvanced,
    IsrCommitted,
    IsrProposal,
    IsrRejected,
    PartitionReplica,
    ProposeIsr,
    Role,
)
from broker.core.replication_quota import is_throttled
from broker.hosting.purgatory import FetchWaiters, ReplicationWaiters
from common.configuration.topic import TopicConfig
from common.environment.interface import Environment
from common.ids import BrokerEpoch, BrokerId, DirectoryId, Offset, TopicId, TopicIdPartition
from common.metadata.registrations import PartitionRegistration
from common.protocol.errors import ErrorCode
from common.records.batch import BatchHeader
from common.storage.log import DeletedSegment, Log
from common.storage.retention import Expiry

ProposalSink = Callable[[TopicIdPartition, IsrProposal, Callable[[AlterPartitionResult], None]], None]


@dataclass(slots=True)
class IsrCounts:
    """Kafka's IsrShrinksPerSec, IsrExpandsPerSec and FailedIsrUpdatesPerSec, as counters."""

    shrinks: int = 0
    expands: int = 0
    failed_updates: int = 0


@dataclass(frozen=True, slots=True)
class PlacedLog:
    """A log, and the directory that holds it."""

    directory_id: DirectoryId
    log: Log


class Partition:
    """See the module docstring. Lives from when the log exists until its directory fails or the replica is removed."""

    def __init__(
        self,
        env: Environment,
        *,
        topic: str,
        topic_id: TopicId,
        index: int,
        directory_id: DirectoryId,
        log: Log,
        replica: PartitionReplica,
        config: TopicConfig,
        propose: ProposalSink,
        on_role: "Callable[[Partition], None]",
        on_log_failed: "Callable[[Partition], None]",
        isr_counts: IsrCounts,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key = TopicIdPartition(topic_id, index)
        # The log that is served. Changes only in `replace_log`; log and directory change together.
        self._current = PlacedLog(directory_id, log)
        # The copy in another directory that will become the current log (KIP-113). Set by `Moves`, and at startup.
        # Invariant: never in the directory of the current log. Reset to None when the copy becomes the current log.
        self.future: PlacedLog | None = None
        # Called after the current log was appended to, restructured or shortened, so that the move copies the change. Set
        # while the replica is moving, None otherwise.
        self.on_log_changed: Callable[[], None] | None = None
        # Counts the restructurings that have begun. Data that was read before a restructuring may no longer be in the log.
        self.log_generation = 0
        # Rule 4: whether a swap is under way. Invariant: implies `is_restructuring`.
        self.is_swapping = False
        # Rule 4: the appends held back, in the order of their arrival. Invariant: empty unless `is_swapping`.
        self._held_appends: list[Callable[[], None]] = []
        # The core of this replica: its role, ISR and high watermark. Every effect that it returns goes through `_carry_out`.
        self.replica = replica
        # The topic's configuration. Invariant: the current log and the replica use this configuration too.
        self.config = config
        replica.min_insync_replicas = config.min_insync_replicas
        self._take_over_throttles()
        # NONE while the partition is served; afterwards the error that every request gets. Changes only in `leave`.
        self.gone = ErrorCode.NONE
        # Whether the log is being truncated or replaced (rule 2). At most one task does that at a time.
        # Changes in `begin_restructuring` and `end_restructuring`.
        self.is_restructuring = False
        # Called after each write. Set while a fetcher replicates this follower, None otherwise.
        self.on_written: Callable[[], None] | None = None
        # The newest metadata that arrived while restructuring; None at any other time.
        self._waiting_metadata: PartitionRegistration | None = None
        self._env = env
        self._propose = propose
        self._on_role = on_role
        self._on_log_failed = on_log_failed
        self._isr_counts = isr_counts
        self._adopt_log()
        self._replication_waiters = ReplicationWaiters()
        self._fetch_waiters = FetchWaiters()
        # Running counts of bytes that became readable to followers and to consumers, for fetches that wait for min.bytes.
        # Invariant: no count decreases, and committed_bytes <= written_bytes. Only the difference between two readings of a
        # count has a meaning.
        self.written_bytes = 0
        self.committed_bytes = 0
        # (end offset, written_bytes at that offset) of each write that ends above the high watermark, ascending.
        self._uncommitted: deque[tuple[Offset, int]] = deque()
        self._count_from_here()

    @property
    def log(self) -> Log:
        """The current log."""
        return self._current.log

    @property
    def directory_id(self) -> DirectoryId:
        """The directory of the current log."""
        return self._current.directory_id

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        return self.gone is ErrorCode.NONE and self.replica.role is Role.LEADER

    @property
    def high_watermark(self) -> Offset:
        return self.replica.high_watermark

    # --- metadata ------------------------------------------------------------------------------------------------

    def apply(self, registration: PartitionRegistration) -> None:
        """Takes the role that the metadata gives this broker and calls `on_role`. If the log is being restructured, does so
        only when that has ended."""
        if self.is_restructuring:
            self._waiting_metadata = registration
            return
        before = (self.replica.role, self.replica.leader_epoch)
        if registration.leader == self.replica.local_id:
            effects = self._become_leader(registration)
        else:
            effects = []
            self.replica.become_follower(registration)
        if self.replica.role is not Role.LEADER:
            self._replication_waiters.complete_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if (self.replica.role, self.replica.leader_epoch) != before:
            # The waiting fetches were sent to this broker in another role or leader epoch.
            self._fetch_waiters.complete_all()
        self._carry_out(effects)
        self._on_role(self)

    def _become_leader(self, registration: PartitionRegistration) -> list[Effect]:
        end = self.log.log_end_offset
        effects = self.replica.become_leader(registration, now_ns=self._env.now_ns(), leader_epoch_start_offset=end)
        # Without an entry for its own epoch the leader could not answer a follower that asks where an earlier epoch ended.
        self.log.begin_epoch(registration.leader_epoch)
        return effects

    def begin_restructuring(self) -> None:
        """Starts truncating or replacing the log. Until `end_restructuring`, metadata waits."""
        assert not self.is_restructuring, "one task at a time"
        self.is_restructuring = True
        self.log_generation += 1

    def end_restructuring(self) -> None:
        """Takes over the log's new end, then applies the metadata that arrived meanwhile."""
        self.is_restructuring = False
        self.replica.truncated(self.log.written_offset)
        self.replica.log_start_offset = self.log.log_start_offset
        self._count_from_here()
        self._fetch_waiters.complete_all()
        registration, self._waiting_metadata = self._waiting_metadata, None
        if registration is not None and self.gone is ErrorCode.NONE:
            self.apply(registration)
        if self.on_written is not None:
            # The fetcher skipped this partition meanwhile; wake it up.
            self.on_written()
        self._note_log_changed()

    def begin_swap(self) -> None:
        """Holds appends back until `end_swap` (rule 4)."""
        self.begin_restructuring()
        self.is_swapping = True

    def end_swap(self) -> None:
        """Carries out the appends that were held back. If this replica no longer leads, they fail as they would have without
        a swap."""
        self.is_swapping = False
        self.end_restructuring()
        held, self._held_appends = self._held_appends, []
        for append in held:
            append()

    def when_appendable(self, append: Callable[[], None]) -> None:
        """Calls `append` at once or, during a swap, when the swap has ended."""
        if self.is_swapping:
            self._held_appends.append(append)
        else:
            append()

    def _note_log_changed(self) -> None:
        if self.on_log_changed is not None:
            self.on_log_changed()

    def replace_log(self, placed: PlacedLog) -> None:
        """Makes `placed` the current log. Call it only while restructuring. The replica keeps its ISR and follower state: a
        leader that forgot its proposed ISR could acknowledge records that a proposed member lacks. Produce requests keep
        waiting if the new log holds their records; all other produce requests fail."""
        assert self.is_restructuring
        self._current = placed
        if placed == self.future:
            self.future = None
        self._adopt_log()
        self._replication_waiters.complete_beyond(placed.log.written_offset, ErrorCode.KAFKA_STORAGE_ERROR)
        if self.replica.role is Role.LEADER:
            # The new log may lack the entry of the leader's epoch: it may have been lost with a failed append.
            placed.log.begin_epoch(self.replica.leader_epoch)

    def _adopt_log(self) -> None:
        self.log.on_failed = partial(self._on_log_failed, self)
        # The topic's configuration may have changed while the log was being created or loaded.
        self.log.config = self.config

    def leave(self, error: ErrorCode) -> None:
        """Stops serving: every waiting or later request gets `error`. Does not touch the log itself."""
        self.gone = error
        self._note_log_changed()
        self.replica.role = Role.NONE
        self._replication_waiters.complete_all(error)
        self._fetch_waiters.complete_all()

    def brokers_changed(self) -> None:
        """Notes that broker registrations changed, which may release the high watermark."""
        self._carry_out(self.replica.brokers_changed(self._env.now_ns()))

    def set_config(self, config: TopicConfig) -> None:
        """Applies a change of the topic's configuration."""
        self.config = config
        self.log.config = config
        if self.future is not None:
            self.future.log.config = config
        self._take_over_throttles()
        self._carry_out(self.replica.set_min_insync_replicas(config.min_insync_replicas, self._env.now_ns()))

    def _take_over_throttles(self) -> None:
        replica, config = self.replica, self.config
        replica.is_leader_throttled = is_throttled(
            config.leader_replication_throttled_replicas, self.index, replica.local_id
        )
        replica.is_follower_throttled = is_throttled(
            config.follower_replication_throttled_replicas, self.index, replica.local_id
        )

    def load_high_watermark(self, checkpointed: Offset) -> None:
        """Sets the high watermark from a checkpoint, for a log that was just loaded."""
        self.replica.load_high_watermark(checkpointed)
        self._count_from_here()

    # --- retention -----------------------------------------------------------------------------------------------

    async def delete_expired(self) -> None:
        """Deletes the segments that retention.ms and retention.bytes no longer keep. Raises LogDirError and LogClosed."""
        expiry = Expiry(retention_ms=self.config.retention_ms, retention_bytes=self.config.retention_bytes)
        deleted = await self.log.delete_expired(
            expiry, now_ms=self._env.wall_ms(), high_watermark=self.replica.high_watermark
        )
        self._note_deleted(deleted)

    async def delete_before(self, offset: Offset) -> None:
        """On a follower: deletes what the leader has deleted, but nothing beyond the local high watermark."""
        bounded = Offset(min(offset, self.replica.high_watermark))
        if self.gone is ErrorCode.NONE and not self.is_restructuring and bounded > self.log.log_start_offset:
            self._note_deleted(await self.log.delete_segments_before(bounded))

    def _note_deleted(self, deleted: Sequence[DeletedSegment]) -> None:
        self.replica.log_start_offset = self.log.log_start_offset
        if deleted:
            self._note_log_changed()
            self._env.log.info(
                "segments_deleted",
                partition=self.name,
                segments=len(deleted),
                size_bytes=sum(segment.size for segment in deleted),
                log_start_offset=self.log.log_start_offset,
            )

    # --- service -------------------------------------------------------------------------------------------------

    def leader_error(self, current_leader_epoch: int = -1) -> ErrorCode:
        """Returns NONE if this broker leads in the epoch that the client expects, else the error to answer. The epoch is -1
        if the client did not send one."""
        if self.gone is not ErrorCode.NONE:
            return self.gone
        if current_leader_epoch != -1:
            if current_leader_epoch < self.replica.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch > self.replica.leader_epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        if self.replica.role is not Role.LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.is_restructuring and not self.is_swapping:
            # Apart from a swap, a leader's log is restructured only if it has failed and is being reloaded: a storage error.
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def has_enough_in_sync(self) -> bool:
        """Whether acks=all may be served."""
        return self.replica.has_enough_in_sync()

    def append_as_leader(
        self,
        batches: list[tuple[BatchHeader, memoryview]],
        *,
        on_written: Callable[[Offset], None],
        on_failed: Callable[[], None],
    ) -> Offset:
        """Appends validated batches and returns the first offset. Calls `on_written` with the end of the append once the
        kernel has the batches, or `on_failed` if the append failed. Raises LogDirError if the log had failed before."""
        size = sum(len(view) for _, view in batches)

        def written() -> None:
            end_offset = Offset(appended.last_offset + 1)
            self.note_written(end_offset, size)
            on_written(end_offset)

        appended = self.log.append_as_leader(
            batches, leader_epoch=self.replica.leader_epoch, on_written=written, on_failed=lambda _: on_failed()
        )
        return appended.first_offset

    def append_as_follower(self, batches: memoryview, *, on_done: Callable[[bool], None]) -> None:
        """Appends whole batches from the leader. Calls `on_done` with True once the kernel has the batches, or with False if
        the append failed."""

        def written() -> None:
            self.note_written(Offset(appended.last_offset + 1), len(batches))
            on_done(True)

        appended = self.log.append_as_follower(batches, on_written=written, on_failed=lambda _: on_done(False))

    def note_written(self, end_offset: Offset, size: int) -> None:
        """Notes that the log is written up to `end_offset`."""
        if self.gone is not ErrorCode.NONE:
            return
        self.written_bytes += size
        self._uncommitted.append((end_offset, self.written_bytes))
        effects = self.replica.written(self.log.written_offset, self._env.now_ns())
        self._fetch_waiters.readable(written_bytes=self.written_bytes, committed_bytes=self.committed_bytes)
        self._carry_out(effects)
        if self.on_written is not None:
            self.on_written()
        self._note_log_changed()

    def wait_until_replicated(self, end_offset: Offset, on_done: Callable[[ErrorCode], None]) -> Callable[[], None] | None:
        """Calls `on_done` with NONE once the whole ISR has everything below `end_offset`, or with an error once this broker
        can no longer acknowledge that. If the result is known already, calls `on_done` at once and returns None. Otherwise
        returns a function that cancels the wait."""
        result = self.gone if self.gone is not ErrorCode.NONE else self.replica.acks_all_result(end_offset)
        if result is None:
            return self._replication_waiters.add(end_offset, on_done)
        on_done(result)
        return None

    def follower_fetched(
        self, broker_id: BrokerId, *, fetch_offset: Offset, log_start_offset: Offset, broker_epoch: BrokerEpoch
    ) -> None:
        """Notes that a follower has everything below `fetch_offset`."""
        self._carry_out(
            self.replica.follower_fetched(
                broker_id,
                fetch_offset=fetch_offset,
                log_start_offset=log_start_offset,
                broker_epoch=broker_epoch,
                now_ns=self._env.now_ns(),
            )
        )

    def leader_high_watermark(self, high_watermark: Offset) -> None:
        """On a follower: adopts the leader's high watermark."""
        self._carry_out(self.replica.leader_high_watermark(high_watermark))

    def maybe_shrink_isr(self) -> None:
        """Proposes an ISR without members that have lagged for too long."""
        if self.gone is ErrorCode.NONE:
            self._carry_out(self.replica.maybe_shrink_isr(self._env.now_ns()))

    def readable_bytes(self, *, uncommitted: bool) -> int:
        """Returns the running count of bytes that followers (`uncommitted`) or consumers may read."""
        return self.written_bytes if uncommitted else self.committed_bytes

    @property
    def fetch_waiters(self) -> FetchWaiters:
        return self._fetch_waiters

    # --- effects -------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced(high_watermark):
                    self._high_watermark_advanced(high_watermark)
                case ProposeIsr(proposal):
                    self._send_proposal(proposal)
                case IsrCommitted(before, after):
                    self._isr_committed(before, after)
                case IsrRejected(isr, error):
                    self._isr_counts.failed_updates += 1
                    self._env.log.info("isr_change_refused", partition=self.name, isr=list(isr), error=error.name)

    def _high_watermark_advanced(self, high_watermark: Offset) -> None:
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            self.committed_bytes = self._uncommitted.popleft()[1]
        if self.replica.role is Role.LEADER:
            result = self.replica.acks_all_result(high_watermark)
            assert result is not None
            self._replication_waiters.complete_up_to(high_watermark, result)
        self._fetch_waiters.readable(written_bytes=self.written_bytes, committed_bytes=self.committed_bytes)

    def _send_proposal(self, proposal: IsrProposal) -> None:
        def answered(result: AlterPartitionResult) -> None:
            if self.gone is ErrorCode.NONE:
                self._carry_out(self.replica.handle_alter_partition_result(proposal, result, self._env.now_ns()))

        self._env.log.info(
            "isr_change_proposed",
            partition=self.name,
            isr=list(proposal.isr),
            committed_isr=list(self.replica.committed_isr),
            partition_epoch=proposal.partition_epoch,
        )
        self._propose(self.key, proposal, answered)

    def _isr_committed(self, before: tuple[BrokerId, ...], after: tuple[BrokerId, ...]) -> None:
        if len(after) < len(before):
            self._isr_counts.shrinks += 1
        elif len(after) > len(before):
            self._isr_counts.expands += 1
        self._env.log.info("isr_changed", partition=self.name, before=list(before), isr=list(after))

    def _count_from_here(self) -> None:
        """Restarts the counts of readable bytes. All that is written but not committed counts as one byte. That is enough
        for nearly all consumers, because they wait for min.bytes=1."""
        self._uncommitted.clear()
        self.committed_bytes = self.written_bytes
        if self.replica.high_watermark < self.replica.log_end_offset:
            self.written_bytes += 1
            self._uncommitted.append((self.replica.log_end_offset, self.written_bytes))
