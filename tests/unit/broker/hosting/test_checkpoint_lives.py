"""The checkpoint files of two directories agree with the truth through random lives of a broker.

Each seed gives a series of lives in which replicas are created, written to, flushed, truncated, emptied, compacted, moved to
the other directory, deleted and created again under the same name, while stores of the files are in flight and some of them
fail. A life ends with a kill or a power cut in the middle of an action. The next one loads what is left, and must not find
offsets of another log, of a truncated part, or of records that were not durable. The owner acts as the broker does around
each action; logs, partitions, copies, tables and loading are the broker's own.
"""

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from broker.core.partition_replica import PartitionReplica
from broker.hosting.directory_logs import LoadedLog, create_logs
from broker.hosting.hosted import Hosted, HostedDirectory
from broker.hosting.loading_progress import LoadingProgress
from broker.hosting.partition import IsrCounts, Partition, PlacedLog
from broker.hosting.replica_copy import ReplicaCopy
from broker.hosting.replica_loading import ReplicaLoading
from common.configuration.topic import TopicConfig
from common.environment.interface import LogDir, LogDirError
from common.ids import (
    BrokerId,
    DirectoryId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
    TopicIdPartition,
    Uuid,
)
from common.log_dirs.log_directories import LogDirectories, LogDirectory
from common.metadata.registrations import PartitionRegistration
from common.protocol.errors import ErrorCode
from common.records.batch import split_batches
from common.records.record import iterate_records
from common.storage.checkpoints import load_offset_checkpoint
from common.storage.log import Log
from common.storage.names import (
    CLEANER_CHECKPOINT_FILE,
    HIGH_WATERMARK_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    partition_folder,
)
from common.storage.new_log import NewLog
from common.storage.read_limits import ReadLimits
from common.storage.text_checkpoint import TopicPartition
from tests.simulation.checkers.durability import check_recovery_points
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.simulation.violations import InvariantViolated
from tests.unit.common.storage.batches import batch

BROKER = BrokerId(1)
CONFIG = TopicConfig(segment_bytes=600, index_interval_bytes=150)
PATHS = {DirectoryId(Uuid(bytes([letter]) * 16)): f"/{chr(letter)}" for letter in b"ab"}
METADATA = LogDirectory(path="/m", directory_id=DirectoryId(Uuid(b"m" * 16)))
# Seeds in which a life ends between the removal of a log's segments and the creation of the new one.
KILLS_IN_A_START_OVER = (1389, 1867, 2289, 2500)
NAMES: tuple[TopicPartition, ...] = (("t", 0), ("t", 1), ("u", 0))


class Replica:
    """What the test knows of one replica: its truth. Begins anew when the replica is created again."""

    def __init__(self, name: TopicPartition, topic_id: TopicId, directory_id: DirectoryId) -> None:
        self.name = name
        self.topic_id = topic_id
        # Where the metadata places the replica.
        self.directory_id = directory_id
        # None while the log is being created, and from the end of a life until the next one has loaded the log.
        self.partition: Partition | None = None
        # The timestamp of the record at each offset, and those that were truncated or lost.
        self.appended: dict[int, int] = {}
        self.cut_off: set[tuple[int, int]] = set()
        # The highest values since the last action that lowered them has ended. Of the high watermark it is the highest ever,
        # because a truncation leaves the lower one to the next periodic store.
        self.log_start = self.first_dirty = self.high_watermark = 0
        # Everything below is durable; the lowest since the last action that raised it has ended.
        self.durable = 0

    @property
    def key(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.name[1])

    def registration(self) -> PartitionRegistration:
        return PartitionRegistration(
            (BROKER,), (self.directory_id,), (BROKER,), (), (), BROKER, 0, LeaderEpoch(0), PartitionEpoch(0)
        )

    def note(self) -> None:
        """Takes over values that no action is about to lower."""
        assert self.partition is not None
        log = self.partition.log
        self.log_start, self.durable = log.log_start_offset, log.recovery_point
        self.first_dirty = min(self.partition.first_dirty_offset, log.log_end_offset)
        self.high_watermark = max(self.high_watermark, self.partition.high_watermark)

    @contextmanager
    def changing(self) -> Iterator[Partition]:
        """While an action is under way, the values of before it and those of after it both count."""
        assert self.partition is not None
        self.note()
        yield self.partition
        self.note()


class Lives:
    """A broker with two directories, through several lives."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.rng = random.Random(f"{world.seed}/lives")
        self.replicas: dict[TopicPartition, Replica] = {}
        self.next_value = 0
        self.violations: list[InvariantViolated] = []
        self.is_at_rest = False
        self.tasks: set[asyncio.Task[bool]] = set()
        for path in PATHS.values():
            world.disk(path)
        world.operation_watchers.append(self.check_platter)

    async def run(self) -> None:
        for _ in range(self.rng.randint(2, 4)):
            await self.begin()
            for _ in range(self.rng.randint(2, 14)):
                self.store_sometimes()
                await self.act()
                assert not self.violations, self.violations
            await self.end()
        await self.begin()
        await self.settle()

    def check_platter(self, path: str, kind: str, _name: str) -> None:
        """A recovery point on the platter never vouches for what is not there."""
        if kind in ("replace_file", "rename", "truncate", "fsync_dir"):
            try:
                check_recovery_points(path, self.world.disk(path).durable_files())
            except InvariantViolated as violation:
                self.violations.append(violation)

    # --- lives ---------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        env = self.env = self.world.node("broker")
        found = [LogDirectory(path=path, directory_id=directory_id) for directory_id, path in PATHS.items()]
        self.hosted = Hosted(LogDirectories([*found, METADATA], data_dirs=[*PATHS.values()], metadata_dir=METADATA.path))
        for directory_id, path in PATHS.items():
            log_dir = env.log_dir(path, operation_timeout_ns=10**10)
            setattr(log_dir, "replace_file", partial(self.replace_file, log_dir, log_dir.replace_file))  # noqa: B010
            await log_dir.attach()
            self.hosted.add(HostedDirectory(directory_id, log_dir))
        placed = {each.key: each.registration() for each in self.replicas.values()}
        loading = ReplicaLoading(
            env,
            self.hosted,
            broker_id=BROKER,
            placed_here=placed.get,
            config_of=lambda _topic: CONFIG,
            topic_ids={},
            progress=LoadingProgress(env),
        )
        loaded: dict[TopicIdPartition, Partition] = {}
        for directory, content in await loading.load():
            directory.files.loaded(content.checkpoints)
            for log in content.logs:
                loaded[log.key] = self.host(env, log, directory)
        for name, replica in [*self.replicas.items()]:
            if replica.key in loaded:
                await self.check_loaded(replica, loaded[replica.key])
            else:
                assert not replica.appended, f"{replica.name} is gone"
                del self.replicas[name]

    def host(self, env: SimulatedEnvironment, loaded: LoadedLog, directory: HostedDirectory) -> Partition:
        partition = self.new_partition(env, loaded.topic, loaded.key, directory, loaded.log)
        partition.load_high_watermark(loaded.high_watermark)
        partition.first_dirty_offset = loaded.first_dirty_offset
        partition.future = loaded.future
        self.hosted.add_partition(partition)
        return partition

    def new_partition(
        self, env: SimulatedEnvironment, topic: str, key: TopicIdPartition, directory: HostedDirectory, log: Log
    ) -> Partition:
        replica = PartitionReplica(
            BROKER,
            lambda _broker: None,
            10**9,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.written_offset,
            high_watermark=log.log_start_offset,
        )
        return Partition(
            env,
            topic=topic,
            topic_id=key.topic_id,
            index=key.partition,
            directory_id=directory.directory_id,
            log=log,
            replica=replica,
            config=CONFIG,
            propose=lambda *_: None,
            on_role=lambda _partition: None,
            on_moved=self.hosted.moved,
            on_log_failed=lambda _partition: None,
            isr_counts=IsrCounts(),
            resized=self.hosted.resized,
        )

    async def check_loaded(self, replica: Replica, partition: Partition) -> None:
        """Compares what a life has loaded with the truth at the end of the one before."""
        log = partition.log
        assert log.log_start_offset <= replica.log_start, "the log start is another's"
        assert partition.high_watermark <= replica.high_watermark, "the high watermark is another's"
        assert partition.first_dirty_offset <= replica.first_dirty, "the first dirty offset is another's"
        found = await self.read(log)
        for offset, value in found.items():
            is_kept = replica.appended.get(offset) == value
            assert is_kept or (offset, value) in replica.cut_off, f"{value} was never at {offset} of {replica.name}"
        for offset in range(replica.log_start, replica.durable):
            assert found.get(offset) == replica.appended.get(offset), f"{offset} of {replica.name} was durable"
        replica.cut_off |= {(offset, value) for offset, value in replica.appended.items() if offset not in found}
        replica.appended = found
        replica.partition = partition
        replica.directory_id = partition.directory_id
        partition.apply(replica.registration())
        replica.note()

    async def read(self, log: Log) -> dict[int, int]:
        found: dict[int, int] = {}
        offset: int = log.log_start_offset
        while data := await log.read_bytes(Offset(offset), ReadLimits(max_bytes=500)):
            for header, view in split_batches(memoryview(bytearray(data))):
                found |= {each.offset: each.timestamp_ms for each in iterate_records(view) if each.offset >= offset}
                offset = header.last_offset + 1
        return found

    async def end(self) -> None:
        """Kills the broker or cuts the power in the middle of an action."""
        self.store_sometimes()
        acting = asyncio.ensure_future(self.act())
        await self.world.sleep(self.rng.choice((0.000_05, 0.000_4, 0.002, 0.006)))
        if acting.done():
            acting.result()
        if self.rng.random() < 0.5:
            self.world.crash("broker")
        else:
            self.world.power_cut("broker")
        for replica in self.replicas.values():
            replica.partition = None
        for path in PATHS.values():
            self.world.disk(path).heal()
        for task in [acting, *self.tasks]:
            task.cancel()
        await asyncio.gather(acting, *self.tasks, return_exceptions=True)

    # --- stores --------------------------------------------------------------------------------------------------

    def store_sometimes(self) -> None:
        """Starts stores as the upkeep does. Some find no memory, and the next one has to make up for them."""
        for directory in self.hosted.online_directories():
            files = directory.files
            stores = [
                files.store_recovery_points,
                files.store_log_starts,
                files.store_high_watermarks,
                files.store_first_dirty_offsets,
            ]
            for store in self.rng.sample(stores, self.rng.choice((0, 0, 1, 2, 4))):
                task = asyncio.get_running_loop().create_task(self.try_to(store))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)

    def replace_file(
        self,
        log_dir: LogDir,
        replace: Callable[[str, bytes | Callable[[], bytes]], Awaitable[None]],
        name: str,
        content: bytes | Callable[[], bytes],
    ) -> Awaitable[None]:
        """Fails now and then for lack of memory where a checkpoint file is stored: before anything is done, or once the
        thread has encoded the file."""
        is_of_a_log = "/" in name
        if isinstance(content, bytes) or is_of_a_log or self.is_at_rest or self.rng.random() < 0.8:
            return replace(name, content)
        begun = replace("never-renamed", content) if self.rng.random() < 0.5 else log_dir.stat(name)
        return fail_after(begun, LogDirError(log_dir.path, "replace_file", errno.ENOMEM, name))

    async def try_to(self, store: Callable[[], Awaitable[None]]) -> bool:
        """Returns False if there was no memory."""
        try:
            await store()
        except LogDirError as error:
            if error.errno_code != errno.ENOMEM:
                raise
            return False
        return True

    async def until_done(self, store: Callable[[], Awaitable[None]]) -> None:
        while not await self.try_to(store):
            pass

    async def settle(self) -> None:
        """Once all is stored, the files name exactly what is hosted, and a further store writes nothing."""
        await asyncio.gather(*self.tasks)
        for directory in self.hosted.online_directories():
            expected: dict[str, dict[TopicPartition, Offset]] = {}
            found: dict[str, dict[TopicPartition, int]] = {}
            # A recovery point may move in the background, also while the files are read.
            while (now := self.expected(directory)) != expected:
                expected = now
                await self.until_done(directory.files.store_all)
                found = {file: await load_offset_checkpoint(directory.log_dir, file) for file in expected}
            assert found == expected
            self.world.disk(directory.log_dir.path).fail_with(errno.EIO, {"replace_file"})
            self.is_at_rest = True
            await directory.files.store_all()
            self.is_at_rest = False
            self.world.disk(directory.log_dir.path).heal()

    def expected(self, directory: HostedDirectory) -> dict[str, dict[TopicPartition, Offset]]:
        """Returns what the files are to hold."""
        placed = self.hosted.in_directory(directory.directory_id)
        dirty = {each.topic_partition: min(each.first_dirty_offset, each.log.log_end_offset) for each in placed}
        return {
            RECOVERY_POINT_CHECKPOINT_FILE: {each.topic_partition: each.log.recovery_start for each in placed},
            LOG_START_OFFSET_CHECKPOINT_FILE: {each.topic_partition: each.log.log_start_offset for each in placed},
            HIGH_WATERMARK_CHECKPOINT_FILE: {each.topic_partition: each.high_watermark for each in placed},
            CLEANER_CHECKPOINT_FILE: {name: offset for name, offset in dirty.items() if offset},
        }

    # --- actions -------------------------------------------------------------------------------------------------

    async def act(self) -> None:
        name = self.rng.choice(NAMES)
        replica = self.replicas.get(name)
        await self.world.sleep(self.rng.choice((0, 0, 0.000_2, 0.003)))
        if replica is None:
            return await self.create(name)
        actions: list[Callable[[Replica], Coroutine[Any, Any, None]]] = [
            *[self.append] * 4,
            *[self.flush] * 2,
            *[self.truncate] * 2,
            *[self.move] * 2,
            self.raise_log_start,
            self.start_over,
            self.compact,
            self.delete,
            self.create_again,
        ]
        await self.rng.choice(actions)(replica)
        if self.rng.random() < 0.1:
            await self.settle()
        return None

    def directory(self, directory_id: DirectoryId) -> HostedDirectory:
        found = self.hosted.online_directory(directory_id)
        assert found is not None
        return found

    async def create(self, name: TopicPartition) -> None:
        topic_id = TopicId(Uuid(self.rng.randbytes(16)))
        replica = self.replicas[name] = Replica(name, topic_id, self.rng.choice([*PATHS]))
        directory = self.directory(replica.directory_id)
        await self.until_done(lambda: directory.files.forget([name]))
        [log] = await create_logs(self.env, directory.log_dir, [NewLog(partition_folder(*name), CONFIG, topic_id)])
        partition = self.new_partition(self.env, name[0], replica.key, directory, log)
        self.hosted.add_partition(partition)
        partition.apply(replica.registration())
        replica.partition = partition
        replica.note()

    async def append(self, replica: Replica) -> None:
        with replica.changing() as partition:
            ends = []
            for _ in range(self.rng.randint(1, 6)):
                records = self.rng.randint(1, 3)
                offset = partition.log.log_end_offset
                replica.appended |= {offset + number: self.next_value + number for number in range(records)}
                ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                partition.append_as_leader(
                    [batch(records, timestamp=self.next_value, size=self.rng.randint(0, 60))],
                    on_written=lambda _end, ended=ended: ended.set_result(None),  # type: ignore[misc]
                    on_failed=lambda ended=ended: ended.cancel(),  # type: ignore[misc]
                )
                ends.append(ended)
                self.next_value += records
            # All of it may be written, and so be below the high watermark, before this goes on.
            replica.high_watermark = max(replica.high_watermark, partition.log.log_end_offset)
            await asyncio.gather(*ends)

    async def flush(self, replica: Replica) -> None:
        with replica.changing() as partition:
            await partition.log.flush()

    async def raise_log_start(self, replica: Replica) -> None:
        with replica.changing() as partition:
            offset = Offset(self.rng.randint(partition.log.log_start_offset, partition.high_watermark))
            replica.log_start = offset
            partition.raise_log_start(offset)
            if self.rng.random() < 0.5:
                await partition.log.delete_segments_before(offset)

    async def restructure(self, replica: Replica, offset: Offset, change: Callable[[Log], Awaitable[object]]) -> None:
        """Changes a log as a follower does."""
        with replica.changing() as partition:
            replica.durable = min(replica.durable, offset)
            replica.high_watermark = max(replica.high_watermark, offset)
            files = self.directory(partition.directory_id).files
            partition.begin_restructuring()
            partition.log.lower_recovery_point(offset)
            replica.durable = min(replica.durable, partition.log.recovery_point)
            await self.until_done(lambda: files.lower(partition))
            await change(partition.log)
            end = partition.log.log_end_offset
            replica.cut_off |= {each for each in replica.appended.items() if each[0] >= end}
            replica.appended = {at: value for at, value in replica.appended.items() if at < end}
            await self.until_done(lambda: files.lower(partition))
            partition.end_restructuring()

    async def truncate(self, replica: Replica) -> None:
        assert replica.partition is not None
        log = replica.partition.log
        lowest = 0 if self.rng.random() < 0.2 else max(log.log_start_offset, log.log_end_offset - 30)
        offset = Offset(self.rng.randint(min(lowest, log.log_end_offset), log.log_end_offset))
        # The batch that holds the offset may begin earlier.
        replica.cut_off |= {each for each in replica.appended.items() if each[0] >= offset - 3}
        await self.restructure(replica, offset, lambda log: log.truncate_to(offset))

    async def start_over(self, replica: Replica) -> None:
        assert replica.partition is not None
        offset = Offset(replica.partition.log.log_end_offset + self.rng.randint(1, 9))
        replica.cut_off |= {*replica.appended.items()}
        replica.log_start = replica.durable = offset
        replica.high_watermark = max(replica.high_watermark, offset)
        await self.restructure(replica, Offset(0), lambda log: self.emptied(replica, log, offset))

    async def emptied(self, replica: Replica, log: Log, offset: Offset) -> None:
        replica.log_start, replica.durable = max(replica.log_start, offset), 0
        await log.truncate_fully_and_start_at(offset)
        replica.cut_off |= {*replica.appended.items()}
        replica.appended = {}

    async def compact(self, replica: Replica) -> None:
        with replica.changing() as partition:
            end = Offset(self.rng.randint(0, partition.log.recovery_point))
            replica.first_dirty = max(replica.first_dirty, end)
            partition.compacted(max(end, partition.first_dirty_offset))
            replica.first_dirty = min(partition.first_dirty_offset, partition.log.log_end_offset)
            await self.try_to(self.directory(partition.directory_id).files.store_first_dirty_offsets)

    async def delete(self, replica: Replica) -> None:
        partition = replica.partition
        assert partition is not None
        del self.replicas[replica.name]
        self.hosted.remove_partition(partition)
        if partition.future is not None:
            await self.abandon(partition)
        partition.leave(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await partition.log.delete_rename(self.env.uuid())

    async def create_again(self, replica: Replica) -> None:
        await self.delete(replica)
        await self.create(replica.name)

    async def move(self, replica: Replica) -> None:
        """Moves the replica to the other directory, or gives the move up right before the swap."""
        with replica.changing() as partition:
            source = self.directory(partition.directory_id)
            target = next(each for each in self.hosted.online_directories() if each is not source)
            if partition.future is not None:
                # An earlier life did not finish the move.
                await self.abandon(partition)
            copy = ReplicaCopy(self.env, partition, source, target, self.env.uuid())
            partition.future = PlacedLog(target.directory_id, await copy.create(await copy.start_offset()))
            await copy.align()
            while await copy.copy_chunk(10_000, no_pace):
                pass
            await self.until_done(copy.prepare)
            if self.rng.random() < 0.2:
                target.files.expect_no_more(replica.name)
                await self.abandon(partition)
                return
            old = partition.log
            replica.directory_id = target.directory_id
            partition.begin_swap()
            assert await copy.complete(log_changed=no_change)
            await copy.exchange()
            target.files.expect_no_more(replica.name)
            partition.end_swap()
            await old.close()

    async def abandon(self, partition: Partition) -> None:
        placed, partition.future = partition.future, None
        assert placed is not None
        await placed.log.delete_rename(self.env.uuid())


async def fail_after(begun: Awaitable[object], error: LogDirError) -> None:
    await begun
    raise error


async def no_pace(_size: int) -> None:
    return None


async def no_change() -> None:
    raise AssertionError("everything was written before the swap")


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [*(range(first, first + 50) for first in range(0, 100, 50)), KILLS_IN_A_START_OVER])
def test_the_checkpoint_files_never_say_what_is_not_so(seeds: Iterable[int]) -> None:
    for seed in seeds:
        world = SimulatedWorld(seed)
        try:
            world.run(lambda world: Lives(world).run())
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
