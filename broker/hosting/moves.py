"""Moves replicas between the directories of this broker while clients use them (shell, KIP-113, KIP-858).

Counterpart of Kafka's ReplicaAlterLogDirsManager and ReplicaAlterLogDirsThread. The core (`ReplicaMovement`) knows the state
of each move, and `ReplicaCopy` copies and swaps. This module schedules the *turns* in which the moves make progress.

1. At most `threads()` moves have a turn at the same time, apart from rule 6. The others wait in a queue.
2. A turn lasts until the copy has caught up. While a move waits for the controller or for more records, it has no turn, so
   an unreachable controller does not hold up the other moves.
3. A move ends if its target directory runs out of room. Otherwise the next append would take the whole directory offline.
4. While records flow through the broker, copying gives way to them: a move copies smaller chunks, and rests after each for
   twice as long as the chunk took.
5. If the copy's log fails because the process ran out of file descriptors or memory, the copy is deleted and made again.
6. A move from or to a directory that is suspected of hanging gets no turn, and a turn that it has counts no longer, so that
   moves between other directories go on.
7. No client waits for a swap beyond diskraft.log.dir.suspect.ms. A directory is not suspected if only the rename or the sync
   of a swap hangs there, because in other cases no client waits for these.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass

from broker.core.hosted_replicas import HostedReplicas
from broker.core.rate_limit import RateLimit
from broker.hosting.directory_uses import DirectoryUses
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.log_deletion import LogDeletion
from broker.hosting.move_totals import MoveTotals
from broker.hosting.named_timers import NamedTimers
from broker.hosting.partition import Partition, PlacedLog
from broker.hosting.replica_copy import CHUNK_BYTES_BUSY, CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, MoveEnded, ReplicaCopy
from broker.hosting.traffic import Traffic
from common.environment.interface import Environment, LogDirError, SpaceStat
from common.ids import DirectoryId, Offset, TopicIdPartition, uuid_text
from common.log_dirs.suspected_directories import SuspectedDirectories
from common.protocol.errors import ErrorCode
from common.records.batch import BatchError
from common.storage.errors import LogClosed, LogExists, UnexpectedOffset
from common.storage.log import Log
from common.storage.move_origin import remove_move_origin
from common.time_units import NS_PER_MS, NS_PER_S

_RETRY_NS = NS_PER_S
# A copy that has caught up gets new records at intervals of this length, not after every append.
_FOLLOW_DELAY_NS = 20 * NS_PER_MS
# How long the broker counts as busy after records have gone through it.
_BUSY_NS = 100 * NS_PER_MS
# The longest rest after a chunk, however long the chunk took.
_REST_MAX_NS = 20 * NS_PER_MS
# A move that waits for the rate limit checks the rate again after at most this time, so that a change takes effect soon.
_PACE_STEP_NS = NS_PER_S


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """The settings of moves. All may change at any time."""

    threads: Callable[[], int]
    """num.replica.alter.log.dirs.threads"""

    bytes_per_s: Callable[[], int]
    """replica.alter.log.dirs.io.max.bytes.per.second"""

    free_bytes_min: int
    """diskraft.log.dir.free.bytes.floor"""

    hold_max_ns: int
    """diskraft.log.dir.suspect.ms"""


@dataclass(slots=True)
class MoveCounts:
    """Counters of the moves into one directory."""

    finished: int = 0
    failed: int = 0
    bytes_copied: int = 0
    throttled_ns: int = 0


@dataclass(slots=True, eq=False)
class _Move:
    """A move that has begun and not ended."""

    copy: ReplicaCopy
    changed: asyncio.Event
    """Set when the current log has changed, or the move has ended."""

    is_waiting: bool = False
    """Whether the move is in the queue."""

    is_active: bool = False
    """Whether the move has a turn."""

    paced_ns: int = 0
    """When the last chunk was allowed."""

    is_changed: bool = False
    """Whether something changed during the turn that makes another turn necessary."""


class Moves:
    """See the module docstring. `reconcile` is called when the directory to report for a replica may have changed, `follow`
    after a replica has moved to another directory, and `held_back` when clients no longer wait for a swap (rule 7)."""

    def __init__(
        self,
        env: Environment,
        settings: MoveSettings,
        *,
        known: HostedReplicas,
        hosted: Hosted,
        suspected: SuspectedDirectories,
        deletion: LogDeletion,
        timers: NamedTimers,
        task_group: asyncio.TaskGroup,
        space: Callable[[DirectoryId], SpaceStat | None],
        traffic: Traffic,
        reconcile: Callable[[TopicIdPartition], None],
        follow: Callable[[Partition], None],
        held_back: Callable[[], None],
    ) -> None:
        # The counters by target directory.
        self.counts: dict[DirectoryId, MoveCounts] = defaultdict(MoveCounts)
        self._env = env
        self._settings = settings
        self._known = known
        self._hosted = hosted
        self._suspected = suspected
        suspected.subscribe(self._suspicion_changed, self._suspicion_changed)
        self._deletion = deletion
        self._timers = timers
        self._task_group = task_group
        self._space = space
        self._traffic = traffic
        # When `_is_busy` was last called, and the bytes that had gone through the broker by then.
        self._looked_ns = 0
        self._bytes_seen = 0
        # Until when the broker counts as busy.
        self._busy_until_ns = 0
        self._reconcile = reconcile
        self._follow = follow
        self._held_back = held_back
        self._limit = RateLimit()
        # The moves by replica. Invariant: the same replicas as in `ReplicaMovement`.
        self._moves: dict[TopicIdPartition, _Move] = {}
        # The moves that are waiting for a turn, in the order in which they will get one.
        self._queue: deque[_Move] = deque()
        # The moves that have a turn, ended ones included. Invariant: at most `threads()` of them are not held up (rule 6),
        # unless `threads()` was lowered or a directory was trusted again meanwhile.
        self._turns: set[_Move] = set()
        self._totals = MoveTotals()
        self._is_stopped = False
        self.uses = DirectoryUses()
        """The directories between which a replica is being copied or swapped at this moment."""

    def __len__(self) -> int:
        return len(self._moves)

    # --- beginning and ending ------------------------------------------------------------------------------------

    def begin(self, partition: Partition, source: HostedDirectory, target: HostedDirectory) -> None:
        """Starts moving a replica. First cancels its earlier move, if any."""
        self.cancel(partition.key)
        move = self._add(partition, source, target, self._env.uuid())
        self._log("move_started", move, size_bytes=partition.log.size_bytes)
        self._submit_creation(move)

    def resume(self, partition: Partition, source: HostedDirectory, target: HostedDirectory, unique: bytes) -> None:
        """Continues a move whose copy was found at startup."""
        self._wake(self._add(partition, source, target, unique))

    def cancel(self, key: TopicIdPartition) -> None:
        """Ends the replica's move, if any, and deletes the copy."""
        move = self._moves.get(key)
        if move is not None:
            self._log("move_cancelled", move)
            self._end_and_delete(move)
            self._reconcile(key)

    def removed(self, partition: Partition) -> None:
        """Ends the move of a replica that the metadata no longer places here, and deletes the copy."""
        move = self._moves.get(partition.key)
        if move is not None:
            self._end_and_delete(move)

    def source_offline(self, directory_id: DirectoryId) -> None:
        """Ends the moves of the replicas whose current directory failed. The copies stay on their disks until a later
        startup decides what becomes of them."""
        for move in list(self._moves.values()):
            if move.copy.partition.directory_id == directory_id:
                self._log("move_interrupted", move, reason="the directory of the current log is offline")
                placed = self._end(move)
                if placed is not None:
                    self._close(placed.log, move.copy.target)

    def target_offline(self, directory_id: DirectoryId) -> None:
        """Ends the moves into a directory that failed. This reverts their assignments (rule 2 of `ReplicaMovement`)."""
        for key, move in list(self._moves.items()):
            if move.copy.target.directory_id == directory_id:
                self._log("move_failed", move, reason="the target directory is offline")
                self._counts(move).failed += 1
                placed = self._end(move)
                if placed is not None:
                    placed.log.lose_directory()
                self._reconcile(key)

    def assignment_changed(self, key: TopicIdPartition) -> None:
        """Queues the move if the new metadata may allow it to report its target or to swap. Without this, a move whose
        earlier assignment was just reverted would not go on until the next append."""
        move = self._moves.get(key)
        if move is not None and (self._known.movement.reported(key) is None or self._known.may_swap(key)):
            self._wake(move)

    def stop(self) -> None:
        """Prevents further turns, and makes those under way end early. One that waits for a hung disk takes longer
        (`uses`)."""
        self._is_stopped = True
        self._queue.clear()
        for move in self._moves.values():
            move.changed.set()

    def _add(self, partition: Partition, source: HostedDirectory, target: HostedDirectory, unique: bytes) -> _Move:
        self._totals.add(partition, target.directory_id)
        move = _Move(ReplicaCopy(self._env, partition, source, target, unique), asyncio.Event())
        self._moves[partition.key] = move
        self._known.movement.begin(partition.key, target.directory_id)
        partition.on_log_changed = lambda: self._log_changed(move)
        return move

    def _end(self, move: _Move) -> PlacedLog | None:
        """Removes the move from the tables. Returns the copy, if there is one."""
        partition = move.copy.partition
        del self._moves[partition.key]
        self._totals.remove(partition)
        self._known.movement.end(partition.key)
        move.copy.target.files.expect_no_more(partition.topic_partition)
        partition.on_log_changed = None
        placed, partition.future = partition.future, None
        move.changed.set()
        return placed

    def _end_and_delete(self, move: _Move) -> None:
        partition, target = move.copy.partition, move.copy.target
        placed = self._end(move)
        target.replicas.remove(partition.key)
        if placed is not None:
            self._delete(placed.log, partition, target)

    def _delete(self, log: Log, partition: Partition, target: HostedDirectory) -> None:
        delay_ms = partition.config.file_delete_delay_ms
        target.work.submit(lambda: self._deletion.delete(log, partition.key, delay_ms, target))

    @staticmethod
    def _close(log: Log, target: HostedDirectory) -> None:
        async def close() -> None:
            try:
                await log.close()
            except LogDirError:
                # If the directory is online, the process lacks file descriptors or memory.
                target.unclosed.append(log)
                raise

        target.work.submit(close)

    def _is_live(self, move: _Move) -> bool:
        partition = move.copy.partition
        return not self._is_stopped and self._moves.get(partition.key) is move and partition.gone is ErrorCode.NONE

    def _log(self, event: str, move: _Move, **details: object) -> None:
        copy = move.copy
        self._env.log.info(
            event,
            partition=copy.partition.name,
            source=copy.source.log_dir.path,
            source_directory_id=uuid_text(copy.source.directory_id),
            target=copy.target.log_dir.path,
            directory_id=uuid_text(copy.target.directory_id),
            **details,
        )

    def _counts(self, move: _Move) -> MoveCounts:
        return self.counts[move.copy.target.directory_id]

    # --- what the metrics and the tools show ---------------------------------------------------------------------

    @property
    def max_lag(self) -> int:
        """The number of records that the copy with the largest lag is missing."""
        lags = (
            partition.log.log_end_offset - partition.future.log.log_end_offset
            for partition in (move.copy.partition for move in self._moves.values())
            if partition.future is not None
        )
        return max(0, max(lags, default=0))

    def count_into(self, directory_id: DirectoryId) -> int:
        """Returns how many replicas are moving into this directory, including those that are waiting for a turn."""
        return self._totals.count_into(directory_id)

    def bytes_to_go(self, directory_id: DirectoryId) -> int:
        """Returns how many bytes the moves into this directory still have to copy, judging by the sizes of the logs."""
        self._totals.measure_some()
        return self._totals.bytes_into(directory_id)

    def has_room(self, directory_id: DirectoryId, size_bytes: int) -> bool:
        """Whether the directory has room for a copy of this size in addition to the moves under way."""
        space = self._space(directory_id)
        if space is None:
            return True
        return space.usable_bytes >= size_bytes + self._totals.bytes_into(directory_id) + self._settings.free_bytes_min

    # --- turns ---------------------------------------------------------------------------------------------------

    def _log_changed(self, move: _Move) -> None:
        move.changed.set()
        if move.is_active:
            move.is_changed = True
        elif not move.is_waiting:
            self._wake_later(move, _FOLLOW_DELAY_NS)

    def _wake_later(self, move: _Move, delay_ns: int) -> None:
        key = move.copy.partition.key
        timer = f"move {key.topic_id.hex()}-{key.partition}"
        if timer not in self._timers:
            self._timers.after(timer, delay_ns, lambda: self._wake(move))

    def _wake(self, move: _Move) -> None:
        """Queues the move for a turn."""
        if move.is_active:
            move.is_changed = True
        elif self._is_live(move) and not move.is_waiting and move.copy.partition.future is not None:
            move.is_waiting = True
            self._queue.append(move)
            self._start_turns()

    def _start_turns(self) -> None:
        while self._queue and sum(not self._is_held_up(move) for move in self._turns) < self._settings.threads():
            move = next((move for move in self._queue if not self._is_held_up(move)), None)
            if move is None:
                return
            self._queue.remove(move)
            move.is_waiting = False
            move.is_active = True
            self._turns.add(move)
            self._task_group.create_task(self._turn(move), name=f"move-{move.copy.partition.name}")

    def _is_held_up(self, move: _Move) -> bool:
        """Whether the move waits for a directory that is suspected of hanging (rule 6)."""
        return move.copy.source.directory_id in self._suspected or move.copy.target.directory_id in self._suspected

    def _suspicion_changed(self, _directory_id: DirectoryId) -> None:
        self._start_turns()

    async def _turn(self, move: _Move) -> None:
        move.is_changed = False
        try:
            with self.uses.of(move.copy.source.directory_id, move.copy.target.directory_id):
                await self._advance(move)
        except MoveEnded:
            # The code that ended the move has cleaned up after it.
            pass
        except (LogDirError, LogClosed, UnexpectedOffset) as error:
            self._turn_failed(move, error)
        except BatchError as error:
            self._give_up(move, f"the current log is damaged: {error}")
        finally:
            move.is_active = False
            self._turns.remove(move)
        # Not after a cancellation: then the daemon is ending, and its task group takes no more tasks.
        self._start_turns()
        if move.is_changed and self._is_live(move):
            self._wake_later(move, _FOLLOW_DELAY_NS)

    async def _advance(self, move: _Move) -> None:
        """Copies until the copy has caught up, then asks for the assignment or swaps, whichever is due."""
        copy, partition = move.copy, move.copy.partition
        while self._is_live(move) and copy.is_usable and not partition.is_restructuring:
            await copy.align()
            if not self._has_room_left(move):
                self._give_up(move, "the target directory has no room left")
                return
            if await self._copy_chunk(move):
                continue
            if not self._is_live(move):
                return
            if self._known.copy_caught_up(partition.key):
                self._log("move_caught_up", move, offset=partition.log.log_end_offset)
                self._reconcile(partition.key)
                await copy.flush()
            elif self._known.may_swap(partition.key):
                await self._swap(move)
                return
            else:
                return

    async def _copy_chunk(self, move: _Move) -> bool:
        before = self._size(move)
        copied = await move.copy.copy_chunk(self._chunk_bytes(), lambda size: self._pace(move, size))
        self._counts(move).bytes_copied += max(self._size(move) - before, 0)
        self._totals.measure(move.copy.partition)
        return copied

    @staticmethod
    def _size(move: _Move) -> int:
        future = move.copy.partition.future
        return 0 if future is None else future.log.size_bytes

    async def _pace(self, move: _Move, size: int) -> None:
        """Waits until rule 4 and the rate limit allow another chunk, and counts the chunk. A change of the rate takes effect
        within a second."""
        if self._is_busy():
            now_ns = self._env.now_ns()
            await self._env.sleep_until(now_ns + min(2 * (now_ns - move.paced_ns), _REST_MAX_NS))
        start_ns = self._env.now_ns()
        while not self._is_stopped:
            now_ns = self._env.now_ns()
            delay_ns = self._limit.delay_ns(self._settings.bytes_per_s(), now_ns)
            if delay_ns == 0:
                break
            await self._env.sleep_until(now_ns + min(_PACE_STEP_NS if delay_ns is None else delay_ns, _PACE_STEP_NS))
        self._limit.take(size)
        move.paced_ns = self._env.now_ns()
        self._counts(move).throttled_ns += self._env.now_ns() - start_ns

    def _is_busy(self) -> bool:
        """Whether records flow through the broker, for clients or followers."""
        now_ns, bytes_total = self._env.now_ns(), self._traffic.bytes_total
        # After a long time without a look, the bytes may have come at any time since.
        if bytes_total != self._bytes_seen and now_ns - self._looked_ns < _BUSY_NS:
            self._busy_until_ns = now_ns + _BUSY_NS
        self._looked_ns, self._bytes_seen = now_ns, bytes_total
        return now_ns < self._busy_until_ns

    def _chunk_bytes(self) -> int:
        """Returns the size of a chunk. At a low rate, a chunk is what the rate allows in a tenth of a second, so that the
        flow is even."""
        max_bytes = CHUNK_BYTES_BUSY if self._is_busy() else CHUNK_BYTES_MAX
        return max(min(self._settings.bytes_per_s() // 10, max_bytes), CHUNK_BYTES_MIN)

    def _has_room_left(self, move: _Move) -> bool:
        space = self._space(move.copy.target.directory_id)
        return space is None or space.usable_bytes >= self._settings.free_bytes_min + CHUNK_BYTES_MAX

    def _give_up(self, move: _Move, reason: str) -> None:
        if self._is_live(move):
            self._log("move_failed", move, reason=reason)
            self._counts(move).failed += 1
            self._end_and_delete(move)
            self._reconcile(move.copy.partition.key)

    def _turn_failed(self, move: _Move, error: Exception) -> None:
        """Retries a move later after an error. If the error took a directory offline, the move has already ended."""
        if not self._is_live(move):
            return
        partition = move.copy.partition
        if partition.future is not None and partition.future.log.failure is not None:
            self._make_again(move)
            return
        self._log("move_delayed", move, reason=str(error))
        self._wake_later(move, _RETRY_NS)

    def _make_again(self, move: _Move) -> None:
        """Deletes a copy whose state is unknown, and copies from the start again (rule 5)."""
        copy = move.copy
        placed = self._end(move)
        assert placed is not None
        self._delete(placed.log, copy.partition, copy.target)
        self.begin(copy.partition, copy.source, copy.target)
        # Takes the report of the target back. If the metadata no longer places the replica here, this ends the move.
        self._reconcile(copy.partition.key)

    # --- creating and swapping -----------------------------------------------------------------------------------

    def _submit_creation(self, move: _Move) -> None:
        """Creates the future log in two jobs, one in the work lane of each directory. A single job would block the target's
        lane, in which the logs of new topics are created, while the source hangs."""
        move.copy.source.work.submit(lambda: self._find_start(move))

    async def _find_start(self, move: _Move) -> None:
        if not self._is_live(move):
            return
        copy = move.copy
        try:
            start_offset = await copy.start_offset()
        except BatchError as error:
            self._give_up(move, f"the current log is damaged: {error}")
            return
        except LogDirError:
            if self._hosted.online_directory(copy.source.directory_id) is not None:
                # The process lacks file descriptors or memory.
                self._create_later(move)
            return
        copy.target.work.submit(lambda: self._create(move, start_offset))

    async def _create(self, move: _Move, start_offset: Offset) -> None:
        if not self._is_live(move):
            return
        copy = move.copy
        try:
            log = await copy.create(start_offset)
        except LogExists:
            raise AssertionError("the folder's name is unique") from None
        except LogDirError:
            if self._hosted.online_directory(copy.target.directory_id) is not None:
                # The process lacks file descriptors or memory. A folder left behind is empty; a later startup removes it.
                move.copy = ReplicaCopy(self._env, copy.partition, copy.source, copy.target, self._env.uuid())
                self._create_later(move)
            return
        if not self._is_live(move):
            delay_ms = copy.partition.config.file_delete_delay_ms
            await self._deletion.delete(log, copy.partition.key, delay_ms, copy.target)
            return
        copy.partition.future = PlacedLog(copy.target.directory_id, log)
        self._wake(move)

    def _create_later(self, move: _Move) -> None:
        key = move.copy.partition.key
        self._timers.after(
            f"create future {key.topic_id.hex()}-{key.partition}",
            _RETRY_NS,
            lambda: self._submit_creation(move),
        )

    async def _swap(self, move: _Move) -> None:
        """Makes the copy the current log. If that would hold appends back for too long, gives up and retries later."""
        copy, partition = move.copy, move.copy.partition
        await copy.prepare()
        if not (self._is_live(move) and copy.is_usable and copy.is_aligned) or partition.is_restructuring:
            # If the log was truncated meanwhile, the end of the truncation triggers another turn.
            return
        old = partition.log
        began_ns = self._env.now_ns()
        partition.begin_swap()
        end_hold = self._env.call_at(began_ns + self._settings.hold_max_ns, lambda: self._swap_overdue(partition))
        try:
            is_complete = await copy.complete(log_changed=lambda: self._wait_for_change(move))
            if not is_complete or not self._is_live(move):
                self._wake_later(move, _RETRY_NS)
                return
            folder = await copy.exchange()
            if self._is_live(move):
                self._swapped(move, old, folder, self._env.now_ns() - began_ns)
        finally:
            end_hold()
            partition.end_swap()
        if partition.gone is ErrorCode.NONE:
            self._follow(partition)
            self._reconcile(partition.key)

    def _swap_overdue(self, partition: Partition) -> None:
        partition.swap_overdue()
        self._held_back()

    async def _wait_for_change(self, move: _Move) -> None:
        move.changed.clear()
        await move.changed.wait()

    def _swapped(self, move: _Move, old: Log, folder: str, pause_ns: int) -> None:
        copy, partition = move.copy, move.copy.partition
        self._end(move)
        copy.source.replicas.remove(partition.key)
        self._counts(move).finished += 1
        self._log("move_finished", move, pause_ms=round(pause_ns / NS_PER_MS, 3))

        async def remove_old() -> None:
            # First, because closing may fail if the process is short of file descriptors. The folder goes in a later job.
            self._deletion.remove_later(copy.source, folder, partition.key, partition.config.file_delete_delay_ms)
            await old.close()

        copy.source.upkeep.submit(remove_old)
        log = partition.log
        copy.target.upkeep.submit(lambda: remove_move_origin(log.log_dir, log.name))
