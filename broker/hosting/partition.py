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

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial

from broker.core.changed_offsets import ChangedOffsets
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
    SessionClock,
)
from broker.core.replication_quota import is_throttled
from broker.core.verification_guards import VerificationGuard, VerificationGuards
from broker.hosting.purgatory import FetchWatchers, FollowersWake, ReplicationWaiters
from broker.hosting.readable_bytes import ReadableBytes, ReadIsolation
from common.configuration.topic import TopicConfig
from common.environment.interface import Environment
from common.ids import BrokerEpoch, BrokerId, DirectoryId, LeaderEpoch, Offset, TopicId, TopicIdPartition
from common.metadata.registrations import PartitionRegistration
from common.protocol.errors import ErrorCode
from common.records.batch import CONTROL_BIT, NO_PRODUCER_ID, TRANSACTIONAL_BIT, BatchHeader, read_header
from common.records.end_transaction import EndTransactionMarker, encode_marker_batch
from common.storage.log import Log
from common.storage.producers.state import (
    InvalidProducerEpoch,
    TransactionCoordinatorFenced,
)
from common.storage.retention import Expiry
from common.storage.segment_deletion import DeletedSegment
from common.time_units import NS_PER_MS, NS_PER_S

_REMOVAL_RETRY_NS = NS_PER_S

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
        on_moved: "Callable[[Partition, DirectoryId], None]",
        on_log_failed: "Callable[[Partition], None]",
        isr_counts: IsrCounts,
        resized: dict[TopicIdPartition, None],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.key = TopicIdPartition(topic_id, index)
        # The name of the replica's entries in checkpoint files.
        self.topic_partition = (topic, index)
        # Where the replica notes that an offset has changed that the checkpoint files of its directory hold. Changes when:
        # the replica comes to a directory, moves to another one or leaves. Without a directory nothing reads the notes.
        self.changed_offsets = ChangedOffsets()
        # The log that is served, and its directory. Change only in `replace_log`, and only together.
        self.log = log
        self.directory_id = directory_id
        # The copy in another directory that will become the current log (KIP-113). Set by `Moves`, and at startup.
        # Invariant: never in the directory of the current log. Reset to None when the copy becomes the current log.
        self.future: PlacedLog | None = None
        # Called after the current log was appended to, restructured or shortened, so that the move copies the change. Set
        # while the replica is moving, None otherwise.
        self.on_log_changed: Callable[[], None] | None = None
        # Compaction has made everything below this offset clean. Moves on with each compaction, and back with a truncation.
        # It moves to another directory together with the log.
        self.first_dirty_offset = Offset(0)
        # Counts the restructurings that have begun. Data that was read before a restructuring may no longer be in the log.
        self.log_generation = 0
        # Rule 4: whether a swap is under way. Invariant: implies `is_restructuring`.
        self.is_swapping = False
        # Whether the swap has lasted so long that no client waits for it any more. Invariant: False unless `is_swapping`.
        self.is_swap_overdue = False
        # The leader epochs of the notices about this partition that the leader has not answered (`halt_notices.py`).
        self.unanswered_notices: list[LeaderEpoch] = []
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
        # The transactional batches that are being verified. Empty unless this broker leads.
        self.verification_guards = VerificationGuards()
        # Called when a fetch of this follower may have to ask for something else: after a write or a restructuring, when the
        # log start moved, and when the topic's configuration changed. Set while a fetcher replicates this follower, None
        # otherwise.
        self.on_fetch_changed: Callable[[], None] | None = None
        # The newest metadata that arrived while restructuring; None at any other time.
        self._waiting_metadata: PartitionRegistration | None = None
        # When the log was last synced for flush.ms, or the partition was created.
        self._last_flush_ns = env.now_ns()
        self._env = env
        self._propose = propose
        self._on_role = on_role
        # Called with the former directory when the current log is in another one.
        self._on_moved = on_moved
        self._on_log_failed = on_log_failed
        self._isr_counts = isr_counts
        # All partitions of the broker share this dictionary, used as an ordered set. A partition notes itself here when the
        # size of its log may have changed, so that the metrics need not look at all logs.
        self._resized = resized
        self._adopt_log()
        self._replication_waiters = ReplicationWaiters()
        # Called when the low watermark may have risen. Invariant: empty unless a DeleteRecords request waits.
        # A dict used as an ordered set: a client may wait for the same partition very often.
        self._low_watermark_watchers: dict[Callable[[], None], None] = {}
        self.fetch_watchers = FetchWatchers()
        self._readable = ReadableBytes()
        self._followers_wake = FollowersWake(env, self.fetch_watchers, self._readable)
        self._count_from_here()

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        return self.gone is ErrorCode.NONE and self.replica.role is Role.LEADER

    @property
    def high_watermark(self) -> Offset:
        return self.replica.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """The outcome of every transaction with records below this offset is known and replicated. Never beyond the high
        watermark."""
        first_unstable = self.log.first_unstable_offset
        high_watermark = self.replica.high_watermark
        return high_watermark if first_unstable is None else min(first_unstable, high_watermark)

    # --- metadata ------------------------------------------------------------------------------------------------

    def apply(self, registration: PartitionRegistration) -> None:
        """Takes the role that the metadata gives this broker and calls `on_role`. If the log is being restructured, does so
        only when that has ended."""
        if self.is_restructuring:
            self._waiting_metadata = registration
            return
        before, leader_epoch = self.readers_view(), self.replica.leader_epoch
        if registration.leader == self.replica.local_id:
            effects = self._become_leader(registration)
        else:
            effects = []
            self.replica.become_follower(registration)
        if self.replica.role is not Role.LEADER:
            self._replication_waiters.complete_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.replica.leader_epoch != leader_epoch:
            self.verification_guards.clear()
        if self.readers_view() != before:
            # The waiting fetches were sent to this broker in another role or leader epoch, or while it was in the ISR.
            self.fetch_watchers.end_waits()
        else:
            # A follower may join the ISR now with its next fetch, although nothing else has changed for it.
            self.fetch_watchers.changed()
        self._carry_out(effects)
        self._note_low_watermark()
        self._on_role(self)

    def readers_view(self) -> tuple[Role, LeaderEpoch, bool]:
        """Returns what decides who may fetch here."""
        return self.replica.role, self.replica.leader_epoch, self.replica.is_readable_follower

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
        self.replica.truncated(log_start_offset=self.log.log_start_offset, log_end_offset=self.log.written_offset)
        self.first_dirty_offset = min(self.first_dirty_offset, self.log.log_end_offset)
        self._note_offsets()
        self._count_from_here()
        self.fetch_watchers.end_waits()
        registration, self._waiting_metadata = self._waiting_metadata, None
        if registration is not None and self.gone is ErrorCode.NONE:
            self.apply(registration)
        self._note_fetch_changed()
        self._note_log_changed()

    def begin_swap(self) -> None:
        """Holds appends back until `end_swap` (rule 4)."""
        self.begin_restructuring()
        self.is_swapping = True

    def swap_overdue(self) -> None:
        """Notes that no client waits for the swap any more."""
        self.is_swap_overdue = True
        self._note_fetch_changed()

    def notice_answered(self, leader_epoch: LeaderEpoch) -> None:
        """Notes that the leader has answered a notice, or that its connection has ended."""
        self.unanswered_notices.remove(leader_epoch)
        if not self.is_swap_overdue:
            self._note_fetch_changed()

    def end_swap(self) -> None:
        """Carries out the appends that were held back. If this replica no longer leads, they fail as they would have without
        a swap."""
        self.is_swapping = self.is_swap_overdue = False
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

    def waits_for_any(self, directories: Container[DirectoryId]) -> bool:
        """Whether an append has to wait for one of these directories. An overdue swap, which may wait for a directory that
        is not suspected, counts as a wait for any of them."""
        return self.directory_id in directories or self.is_swap_overdue

    def _note_fetch_changed(self) -> None:
        if self.on_fetch_changed is not None:
            self.on_fetch_changed()

    def _note_log_changed(self) -> None:
        if self.gone is ErrorCode.NONE:
            self._resized[self.key] = None
        if self.on_log_changed is not None:
            self.on_log_changed()

    def replace_log(self, placed: PlacedLog) -> None:
        """Makes `placed` the current log. Call it only while restructuring. The replica keeps its ISR and follower state: a
        leader that forgot its proposed ISR could acknowledge records that a proposed member lacks. Produce requests keep
        waiting if the new log holds their records; all other produce requests fail."""
        assert self.is_restructuring
        former_log, former_directory_id = self.log, self.directory_id
        self.log, self.directory_id = placed.log, placed.directory_id
        _disown(former_log)
        if former_directory_id != placed.directory_id:
            self._on_moved(self, former_directory_id)
        if placed == self.future:
            self.future = None
        self._adopt_log()
        self._replication_waiters.complete_beyond(placed.log.written_offset, ErrorCode.KAFKA_STORAGE_ERROR)
        if self.replica.role is Role.LEADER:
            # The new log may lack the entry of the leader's epoch: it may have been lost with a failed append.
            placed.log.begin_epoch(self.replica.leader_epoch)

    def _adopt_log(self) -> None:
        if self.gone is not ErrorCode.NONE:
            return
        self.log.on_failed = partial(self._on_log_failed, self)
        self.log.on_deleted = partial(self._remove_later, self.log)
        self.log.on_offsets_changed = self._note_log_offsets
        # The topic's configuration may have changed while the log was being created or loaded.
        self.log.config = self.config
        if self.log.failure is not None:
            # The log failed after it was loaded, before `on_failed` was set.
            self._on_log_failed(self)

    def _remove_later(self, log: Log, names: list[str]) -> None:
        """Removes the files of deleted segments after file.delete.delay.ms."""
        self._remove_after(log, names, self.config.file_delete_delay_ms * NS_PER_MS)

    def _remove_after(self, log: Log, names: list[str], delay_ns: int) -> None:
        self._env.call_at(self._env.now_ns() + delay_ns, partial(self._remove, log, names))

    def _remove(self, log: Log, names: list[str]) -> None:
        if not log.remove_deleted(names):
            self._remove_after(log, names, _REMOVAL_RETRY_NS)

    def leave(self, error: ErrorCode) -> None:
        """Stops serving: every waiting or later request gets `error`. Calls `on_role`. The log stays open, but no longer
        notifies this partition."""
        self.gone = error
        _disown(self.log)
        self._note_log_changed()
        self.replica.role = Role.NONE
        self._replication_waiters.complete_all(error)
        self.fetch_watchers.end_waits()
        self._on_role(self)
        self._note_low_watermark()

    def brokers_changed(self) -> None:
        """Notes that broker registrations changed, which may release the high watermark, or let a follower join the ISR with
        its next fetch."""
        self._carry_out(self.replica.brokers_changed(self._env.now_ns()))
        if self.replica.role is Role.LEADER and len(self.replica.committed_isr) < len(self.replica.replicas):
            self.fetch_watchers.changed()

    def set_config(self, config: TopicConfig) -> None:
        """Applies a change of the topic's configuration. Calls `on_role`."""
        self.config = config
        self.log.config = config
        if self.future is not None:
            self.future.log.config = config
        self._take_over_throttles()
        self._note_fetch_changed()
        self._carry_out(self.replica.set_min_insync_replicas(config.min_insync_replicas, self._env.now_ns()))
        # A coordinator may be waiting until the ISR has enough members.
        self._on_role(self)

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
        self.changed_offsets.high_watermarks.add(self.topic_partition)
        self._count_from_here()

    # --- retention and periodic syncs ----------------------------------------------------------------------------

    async def flush_if_due(self) -> None:
        """Syncs the log if it has unsynced records and its last periodic sync is flush.ms ago. Raises LogDirError and
        LogClosed."""
        now_ns = self._env.now_ns()
        is_due = now_ns - self._last_flush_ns >= self.config.flush_ms * NS_PER_MS
        if is_due and self.log.recovery_point < self.log.log_end_offset:
            self._last_flush_ns = now_ns
            await self.log.flush()

    async def delete_expired(self) -> None:
        """Deletes the segments that retention.ms and retention.bytes no longer keep, and those below the log start. Raises
        LogDirError and LogClosed."""
        expiry = Expiry(retention_ms=-1, retention_bytes=-1)
        if self.config.is_deleted_from:
            expiry = Expiry(retention_ms=self.config.retention_ms, retention_bytes=self.config.retention_bytes)
        deleted = await self.log.delete_expired(
            expiry, now_ms=self._env.wall_ms(), high_watermark=self.replica.high_watermark
        )
        self._note_deleted(deleted)

    def raise_log_start(self, offset: Offset) -> None:
        """Makes everything below `offset` unreadable, at most up to the high watermark. A leader notifies its followers at
        once: DeleteRecords waits for them."""
        self.log.raise_log_start_offset(Offset(min(offset, self.replica.high_watermark)))
        self.replica.log_start_offset = self.log.log_start_offset
        self._note_readable()
        self._note_fetch_changed()
        self.fetch_watchers.end_waits_of_followers()
        self._note_log_changed()

    def watch_low_watermark(self, look: Callable[[], None]) -> Callable[[], None]:
        """Calls `look` whenever the low watermark may have risen, or this broker no longer leads. Returns the function that
        ends that."""
        self._low_watermark_watchers[look] = None
        return lambda: self._low_watermark_watchers.pop(look, None)

    def _note_low_watermark(self) -> None:
        for look in [*self._low_watermark_watchers]:
            look()

    def _note_deleted(self, deleted: Sequence[DeletedSegment]) -> None:
        self.replica.log_start_offset = self.log.log_start_offset
        self._note_readable()
        self._note_fetch_changed()
        if deleted:
            self._note_log_changed()
            self._env.log.info(
                "segments_deleted",
                partition=self.name,
                segments=len(deleted),
                size_bytes=sum(segment.size for segment in deleted),
                log_start_offset=self.log.log_start_offset,
            )

    def compacted(self, end_offset: Offset) -> None:
        """Notes that a compaction has made everything below `end_offset` clean."""
        self.first_dirty_offset = end_offset
        self.changed_offsets.first_dirty_offsets.add(self.topic_partition)
        self._resized[self.key] = None

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

    def read_error(self, current_leader_epoch: int) -> ErrorCode:
        """Like `leader_error`, for a consumer that may also read from a follower in the ISR (KIP-392)."""
        error = self.leader_error(current_leader_epoch)
        if error is not ErrorCode.NOT_LEADER_OR_FOLLOWER or not self.replica.is_readable_follower:
            return error
        # While a follower truncates its log, the offset may be beyond the end for a moment. The consumer retries.
        return ErrorCode.OFFSET_NOT_AVAILABLE if self.is_restructuring and not self.is_swapping else ErrorCode.NONE

    def has_enough_in_sync(self) -> bool:
        """Whether acks=all may be served."""
        return self.replica.has_enough_in_sync()

    def append_as_leader(
        self,
        batches: list[tuple[BatchHeader, memoryview]],
        *,
        on_written: Callable[[Offset], None],
        on_failed: Callable[[], None],
        on_duplicate: Callable[[int], None] | None = None,
        must_be_verified: bool = False,
        guard: VerificationGuard | None = None,
    ) -> Offset:
        """Appends validated batches and returns the first offset. A transactional batch that `must_be_verified` needs an
        open transaction or a guard that nothing has ended (KIP-890). Calls `on_written` with the end of the append once the
        kernel has the batches, or `on_failed` if the append failed. If a batch is the duplicate of an earlier one (KIP-98),
        appends nothing, calls `on_duplicate` with the largest timestamp of the earlier one, and returns and calls the same
        as for that one. Raises ProducerRefused, LogClosed, and LogDirError if the log had failed before."""
        for header, _ in batches:
            if header.producer_id > NO_PRODUCER_ID and (earlier := self.log.find_duplicate(header)) is not None:
                if on_duplicate is not None:
                    on_duplicate(earlier.timestamp)
                # The earlier batch may still be on its way to the disk.
                acknowledge = partial(on_written, Offset(earlier.last_offset + 1))
                self.log.when_written(on_written=acknowledge, on_failed=lambda _: on_failed())
                return Offset(earlier.first_offset)
            if must_be_verified and header.is_transactional:
                self.verification_guards.validate_append(header, guard, self.log.producers.state)
        return self._append(batches, on_written=on_written, on_failed=on_failed)

    def transactional_append_error(
        self, producer_id: int, producer_epoch: int, *, must_be_verified: bool, guard: VerificationGuard | None
    ) -> ErrorCode:
        """Returns what would be wrong with a transactional batch without sequence numbers: NONE, INVALID_PRODUCER_EPOCH,
        or, if it `must_be_verified`, INVALID_TXN_STATE."""
        try:
            self.log.producers.state.validate_epoch(producer_id, producer_epoch)
        except InvalidProducerEpoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_verified = guard is not None and self.verification_guards.is_current(guard)
        if must_be_verified and not is_verified and not self._is_known_open(producer_id, producer_epoch):
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, begins_with_zero: bool = False
    ) -> VerificationGuard | None:
        """Returns the guard of a transactional batch that would begin a transaction here, so that the coordinator must be
        asked; None if the transaction is open. Raises InvalidProducerEpoch."""
        self.log.producers.state.validate_epoch(producer_id, producer_epoch)
        if self._is_known_open(producer_id, producer_epoch):
            return None
        return self.verification_guards.begin(
            producer_id,
            producer_epoch,
            sequence,
            leader_epoch=self.replica.leader_epoch,
            now_ns=self._env.now_ns(),
            begins_with_zero=begins_with_zero,
        )

    def _is_known_open(self, producer_id: int, producer_epoch: int) -> bool:
        # During a swap, the marker of the transaction may be among the appends that are held back.
        return not self.is_swapping and self.log.producers.state.has_open_transaction(producer_id, producer_epoch)

    def marker_error(self, marker: EndTransactionMarker) -> ErrorCode:
        """Returns what would be wrong with a marker: NONE, INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED."""
        try:
            self.log.producers.state.validate_marker(marker)
        except InvalidProducerEpoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        except TransactionCoordinatorFenced:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def append_marker(
        self, marker: EndTransactionMarker, *, on_written: Callable[[Offset], None], on_failed: Callable[[], None]
    ) -> None:
        """Appends the marker that ends a transaction, even if the transaction has no data here. Calls the same as
        `append_as_leader`. Raises InvalidProducerEpoch, TransactionCoordinatorFenced, LogClosed, and LogDirError if the log
        had failed before."""
        self.log.producers.state.validate_marker(marker)
        batch = memoryview(encode_marker_batch(marker, timestamp_ms=self._env.wall_ms()))
        self.end_guards(marker)
        self._append([(read_header(batch), batch)], on_written=on_written, on_failed=on_failed)

    def end_guards(self, marker: EndTransactionMarker) -> None:
        """Ends the verifications that this marker makes worthless."""
        self.verification_guards.end_by(marker, self.log.producers.state)

    def _append(
        self,
        batches: list[tuple[BatchHeader, memoryview]],
        *,
        on_written: Callable[[Offset], None],
        on_failed: Callable[[], None],
    ) -> Offset:
        size = 0
        for header, view in batches:
            size += len(view)
            if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) == TRANSACTIONAL_BIT:
                self.verification_guards.end(header.producer_id)

        def written() -> None:
            end_offset = Offset(appended.last_offset + 1)
            self.note_written([(end_offset, size)])
            on_written(end_offset)
            # Only now, because `on_written` lets a producer wait for the high watermark.
            self._note_records(end_offset)

        appended = self.log.append_as_leader(
            batches, leader_epoch=self.replica.leader_epoch, on_written=written, on_failed=lambda _: on_failed()
        )
        return appended.first_offset

    def append_as_follower(
        self,
        batches: Sequence[tuple[BatchHeader, memoryview]],
        view: memoryview,
        *,
        on_done: Callable[[bool], None],
    ) -> None:
        """Appends whole batches from the leader, which `view` holds one after the other. Calls `on_done` with True once the
        kernel has the batches, or with False if the append failed."""

        def written() -> None:
            # One by one, because the high watermark of a follower often advances inside of what it has fetched at once.
            self.note_written([(Offset(header.next_offset), header.size) for header, _ in batches])
            on_done(True)
            # This broker may have become the leader since, and followers wait for what it had not written.
            self._note_records(Offset(batches[-1][0].next_offset))

        self.log.append_as_follower(batches, view, on_written=written, on_failed=lambda _: on_done(False))

    def _note_records(self, end_offset: Offset) -> None:
        """Notes that followers can read up to this offset, unless later appends were written in the same step."""
        if end_offset == self.log.written_offset:
            self._followers_wake.note_records(is_awaited=len(self._replication_waiters) > 0)

    def note_written(self, writes: Sequence[tuple[Offset, int]]) -> None:
        """Notes that the log is written up to the end of each of these writes, at least one, which have this end offset and
        size."""
        assert writes, "an append has at least one batch"
        if self.gone is not ErrorCode.NONE:
            return
        for end_offset, size in writes:
            self._readable.written(end_offset, size)
        last_end_offset, _ = writes[-1]
        if last_end_offset < self.log.written_offset:
            # Later appends were written together with this one, and come here in the same step. What follows is needed only
            # once, for the last of them.
            return
        effects = self.replica.written(self.log.written_offset, self._env.now_ns())
        # The high watermark may have passed these bytes already, if an earlier append was written in the same step.
        self._note_readable()
        self._carry_out(effects)
        self._note_fetch_changed()
        self._note_log_changed()

    def note_wait(self) -> None:
        """Notes that a producer or a consumer begins to wait for the high watermark."""
        self._followers_wake.hurry()

    def wait_until_replicated(
        self, end_offset: Offset, on_done: Callable[[ErrorCode], None], *, is_patient: bool = False
    ) -> Callable[[], None] | None:
        """Calls `on_done` with NONE once the whole ISR has everything below `end_offset`, or with an error once this broker
        can no longer acknowledge that. Unless the caller `is_patient`, the error is REQUEST_TIMED_OUT while the disk of a
        follower may hang. If the result is known already, calls `on_done` at once and returns None. Otherwise returns a
        function that cancels the wait."""
        result = self.gone if self.gone is not ErrorCode.NONE else self.replica.acks_all_result(end_offset)
        if result is None and self.replica.is_held_up and not is_patient:
            result = ErrorCode.REQUEST_TIMED_OUT
        if result is None:
            self.note_wait()
            return self._replication_waiters.add(end_offset, on_done, is_patient=is_patient)
        on_done(result)
        return None

    def follower_fetched(
        self,
        broker_id: BrokerId,
        *,
        fetch_offset: Offset,
        log_start_offset: Offset,
        broker_epoch: BrokerEpoch,
        clock: SessionClock | None,
        is_halted: bool = False,
    ) -> None:
        """Notes that a follower has everything below `fetch_offset`. Without a session, `clock` is None. A follower that
        `is_halted` takes nothing, because its disk may hang."""
        was_held_up = self.replica.is_held_up
        self._carry_out(
            self.replica.follower_fetched(
                broker_id,
                fetch_offset=fetch_offset,
                log_start_offset=log_start_offset,
                broker_epoch=broker_epoch,
                now_ns=self._env.now_ns(),
                clock=clock,
                is_halted=is_halted,
            )
        )
        if self.replica.is_held_up and not was_held_up:
            self._held_up()
        if self._low_watermark_watchers:
            self._note_low_watermark()

    def follower_halted(self, broker_id: BrokerId) -> None:
        """Notes that a follower takes nothing, because its disk may hang, and that its log differs from this one."""
        was_held_up = self.replica.is_held_up
        self.replica.follower_halted(broker_id)
        if self.replica.is_held_up and not was_held_up:
            self._held_up()
            self._note_low_watermark()

    def _held_up(self) -> None:
        self._replication_waiters.complete_impatient(ErrorCode.REQUEST_TIMED_OUT)
        # A coordinator answers what waits for its records.
        self._on_role(self)

    def leader_high_watermark(self, high_watermark: Offset) -> None:
        """On a follower: adopts the leader's high watermark."""
        self._carry_out(self.replica.leader_high_watermark(high_watermark))

    def maybe_shrink_isr(self) -> None:
        """Proposes an ISR without members that have lagged for too long."""
        if self.gone is ErrorCode.NONE:
            self._carry_out(self.replica.maybe_shrink_isr(self._env.now_ns()))

    def readable_bytes(self, isolation: ReadIsolation) -> int:
        """Returns the running count of bytes that clients with this isolation may read."""
        return self._readable.of(isolation)

    def readable_end(self, isolation: ReadIsolation) -> Offset:
        """Returns the offset below which clients with this isolation may read."""
        match isolation:
            case ReadIsolation.LOG_END:
                return self.log.written_offset
            case ReadIsolation.HIGH_WATERMARK:
                return self.replica.high_watermark
            case ReadIsolation.TXN_COMMITTED:
                return self.last_stable_offset

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
                case IsrRejected(isr, error, again_ns):
                    self._isr_counts.failed_updates += 1
                    # The next fetch of a follower may propose it, that of the refused one after a pause.
                    self.fetch_watchers.changed()
                    if again_ns is not None:
                        self._env.call_at(again_ns, self.fetch_watchers.changed)
                    self._env.log.info("isr_change_refused", partition=self.name, isr=list(isr), error=error.name)

    def _high_watermark_advanced(self, high_watermark: Offset) -> None:
        self.changed_offsets.high_watermarks.add(self.topic_partition)
        self.log.replicated_up_to(high_watermark)
        self._note_readable()
        # Consumers come before producers, as in Kafka (DelayedOperations.checkAndCompleteAll).
        self.fetch_watchers.high_watermark_advanced()
        if self.replica.role is Role.LEADER:
            result = self.replica.acks_all_result(high_watermark)
            assert result is not None
            self._replication_waiters.complete_up_to(high_watermark, result)

    def _note_readable(self) -> None:
        self._readable.advanced(high_watermark=self.replica.high_watermark, last_stable_offset=self.last_stable_offset)
        self.fetch_watchers.readable(self._readable)

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

    def _note_log_offsets(self) -> None:
        changed = self.changed_offsets
        changed.recovery_points.add(self.topic_partition)
        changed.log_starts.add(self.topic_partition)
        # The entry is limited by the end of the log.
        changed.first_dirty_offsets.add(self.topic_partition)

    def _note_offsets(self) -> None:
        self._note_log_offsets()
        self.changed_offsets.high_watermarks.add(self.topic_partition)

    def _count_from_here(self) -> None:
        self.log.replicated_up_to(self.replica.high_watermark)
        self._readable.restart(
            log_end_offset=self.replica.log_end_offset,
            high_watermark=self.replica.high_watermark,
            last_stable_offset=self.last_stable_offset,
        )


def _disown(log: Log) -> None:
    """Drops the log's references to its partition. As parts of a cycle, the two would stay in memory until the next full
    garbage collection, which is rare by design."""
    log.on_failed = None
    log.on_offsets_changed = None
    # What is left in the folder goes with it, or is removed at the next start.
    log.on_deleted = _leave_in_folder


def _leave_in_folder(_names: list[str]) -> None:
    return
