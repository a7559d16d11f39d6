"""What a consumer with read_committed sees of a log, compared with a model: random transactions and random damage.

Several producers write transactions at the same time, others write without any. In between, the log is rolled, truncated,
shortened, compacted, moved, closed, killed, or loses its power. The consumer reads in pieces of random sizes, from random
offsets, and skips aborted records by the rule of Kafka's clients. It must see what was committed and what never was in a
transaction, nothing else, and nothing beyond the first open transaction. After a compaction it may miss records whose keys
have later ones.
"""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ids import Offset
from common.records.batch import TRANSACTIONAL_BIT, read_header, split_batches
from common.records.end_transaction import EndTransactionMarker, decode_end_transaction, encode_marker_batch
from common.records.record import Record, encode_batch, iterate_records
from common.storage.compaction.log_compaction import CompactionSettings
from common.storage.log import Log
from common.storage.names import FolderKind, marked_partition_folder
from common.storage.read_limits import ReadLimits
from common.storage.transaction_index import AbortedTransaction
from tests.property.profiles import examples
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import (
    FOLDER,
    PATH,
    TOPIC_ID,
    append_batches,
    append_fetched,
    attached,
    content,
    created,
)
from tests.unit.common.storage.test_log_compaction import CONFIG, Pair, compact, latest

HORIZON_MS = 1000
STEPS = (
    "produce", "produce", "produce", "produce", "produce", "produce", "end", "end", "end", "plain", "roll", "flush",
    "truncate", "delete", "compact", "move", "close", "crash", "power cut",
)  # fmt: skip


@dataclass
class Written:
    """One batch of the model. `marker` is set in a control batch, `pairs` in the others."""

    offset: int
    producer_id: int
    is_transactional: bool
    pairs: list[Pair] = field(default_factory=list)
    marker: EndTransactionMarker | None = None

    @property
    def next_offset(self) -> int:
        return self.offset + max(len(self.pairs), 1)


class Model:
    """All batches that the log was given and did not lose."""

    def __init__(self) -> None:
        self.batches: list[Written] = []
        self.start = 0

    def open(self) -> dict[int, int]:
        """The first offsets of the open transactions by producer."""
        found: dict[int, int] = {}
        for batch in self.batches:
            if batch.marker is not None:
                found.pop(batch.producer_id, None)
            elif batch.is_transactional:
                found.setdefault(batch.producer_id, batch.offset)
        return found

    def cut(self, end: int) -> None:
        self.batches = [each for each in self.batches if each.next_offset <= end]

    def visible(self, end: int) -> dict[int, Pair]:
        """The records that a consumer may see, below `end`."""
        found: dict[int, Pair] = {}
        pending: dict[int, list[Written]] = {}
        for batch in self.batches:
            if batch.marker is not None:
                ended = pending.pop(batch.producer_id, [])
                for each in ended if batch.marker.is_commit else []:
                    found |= dict(enumerate(each.pairs, start=each.offset))
            elif batch.is_transactional:
                pending.setdefault(batch.producer_id, []).append(batch)
            else:
                found |= dict(enumerate(batch.pairs, start=batch.offset))
        return {offset: pair for offset, pair in sorted(found.items()) if self.start <= offset < end}


def consumed(data: bytes, aborted: list[AbortedTransaction], position: int) -> dict[int, Pair]:
    """What Kafka's consumer takes of one response (CompletedFetch.nextFetchedRecord)."""
    coming = sorted(aborted, key=lambda each: each.first_offset)
    aborted_producers: set[int] = set()
    found: dict[int, Pair] = {}
    for header, view in split_batches(data):
        while coming and coming[0].first_offset <= header.last_offset:
            aborted_producers.add(coming.pop(0).producer_id)
        if header.is_control:
            marker = decode_end_transaction(view)
            if marker is not None and not marker.is_commit:
                aborted_producers.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted_producers):
            for record in iterate_records(view):
                assert record.key is not None
                if record.offset >= position:
                    value = None if record.value is None else bytes(record.value).decode()
                    found[record.offset] = (bytes(record.key).decode(), value)
    return found


class Run:
    """One log through several lives."""

    def __init__(self, world: SimulatedWorld, rng: random.Random) -> None:
        self.world = world
        self.rng = rng
        self.model = Model()
        self.life = 0
        self.moves = 0
        self.now_ms = 0
        # Everything below the one was compacted, and below the other replicated by then.
        self.clean_end = 0
        self.replicated_end = 0
        self.settings = CompactionSettings(
            segment_bytes=rng.choice([600, 1300]),
            segment_index_bytes=10 * 1024**2,
            index_interval_bytes=150,
            delete_retention_ms=HORIZON_MS,
            producer_expiration_ms=rng.choice([500, 10**9]),
            keys_max=rng.choice([4, 1000]),
            io_buffer_bytes=rng.choice([100, 10_000]),
        )

    async def run(self) -> None:
        log = await created(self.world, CONFIG)
        for _ in range(self.rng.randint(10, 60)):
            log = await self.step(log, self.rng.choice(STEPS))
            log.replicated_up_to(log.log_end_offset)
            await self.check(log)

    # --- steps ---------------------------------------------------------------------------------------------------
    async def step(self, log: Log, what: str) -> Log:
        self.now_ms += self.rng.choice([0, 0, HORIZON_MS // 2, 2 * HORIZON_MS])
        match what:
            case "produce":
                await self.produce(log, self.rng.randint(1, 3), is_transactional=True)
            case "plain":
                await self.produce(log, self.rng.choice([-1, 9]), is_transactional=False)
            case "end":
                await self.end(log)
            case "roll":
                await log.roll()
            case "flush":
                await log.flush()
            case "truncate":
                await self.truncate(log)
            case "delete":
                offset = self.rng.randint(log.log_start_offset, log.log_end_offset)
                self.model.start = max(self.model.start, offset)
                await log.delete_segments_before(Offset(offset))
            case "compact":
                unstable = log.first_unstable_offset
                end = log.log_end_offset if unstable is None else unstable
                first_dirty = max(self.clean_end, log.log_start_offset)
                result = await compact(log, first_dirty, end, now_ms=self.now_ms, settings=self.settings)
                self.clean_end = result.end_offset
                self.replicated_end = log.log_end_offset
            case "move":
                log = await self.move(log)
            case _:
                log = await self.restart(log, what)
        return log

    async def produce(self, log: Log, producer_id: int, *, is_transactional: bool) -> None:
        entry = log.producers.state.entries.get(producer_id)
        pairs: list[Pair] = []
        for _ in range(self.rng.randint(1, 3)):
            value = None if self.rng.random() < 0.2 else f"v{log.log_end_offset + len(pairs)}"
            pairs.append((f"key {self.rng.randint(0, 4)}", value))
        encoded = encode_batch(
            [Record(key.encode(), None if value is None else value.encode(), 100) for key, value in pairs],
            attributes=TRANSACTIONAL_BIT if is_transactional else 0,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else entry.epoch if entry is not None else 0,
            base_sequence=-1 if producer_id < 0 else 0 if entry is None else entry.last_sequence + 1,
        )
        header = read_header(encoded)
        assert producer_id < 0 or log.find_duplicate(header) is None
        self.model.batches.append(Written(log.log_end_offset, producer_id, is_transactional, pairs))
        await append_batches(log, [(header, memoryview(encoded))], epoch=0).written

    async def end(self, log: Log) -> None:
        """Ends the transaction of a producer, which may have none."""
        producer_id = self.rng.randint(1, 3)
        entry = log.producers.state.entries.get(producer_id)
        epoch = (0 if entry is None else entry.epoch) + self.rng.choice([0, 0, 1])
        marker = EndTransactionMarker(producer_id, epoch, self.life, is_commit=self.rng.random() < 0.5)
        log.producers.state.validate_marker(marker)
        encoded = encode_marker_batch(marker, timestamp_ms=100)
        self.model.batches.append(Written(log.log_end_offset, producer_id, True, marker=marker))
        await append_batches(log, [(read_header(encoded), memoryview(encoded))], epoch=0).written

    async def truncate(self, log: Log) -> None:
        # Compaction relies on markers below the high watermark, and no follower is truncated there.
        lowest = max(self.replicated_end, log.log_start_offset)
        offset = max(lowest, log.log_end_offset - self.rng.randint(0, 8))
        log.lower_recovery_point(Offset(offset))
        self.model.cut(await log.truncate_to(Offset(offset)))
        # If the batch that holds the log start is cut off, the log starts where the batch did.
        self.model.start = log.log_start_offset

    async def move(self, log: Log) -> Log:
        """Copies the log as a move to another directory does, and goes on with the copy."""
        self.moves += 1
        future = marked_partition_folder("t", 0, FolderKind.FUTURE, self.moves.to_bytes(16, "big"))
        start = min((await log.read(log.log_start_offset, ReadLimits(max_bytes=1))).first_offset, log.log_start_offset)
        copy = await Log.create(log.log_dir, future, CONFIG, TOPIC_ID, start_offset=start)
        while copy.log_end_offset < log.log_end_offset:
            data = await log.read_bytes(max(copy.log_end_offset, log.log_start_offset), ReadLimits(max_bytes=300))
            await append_fetched(copy, memoryview(bytearray(data))).written
        await copy.take_over(log)
        await log.delete_rename(self.moves.to_bytes(16, "little"))
        await copy.rename(FOLDER)
        return copy

    async def restart(self, log: Log, what: str) -> Log:
        recovery_point = self.rng.choice([log.recovery_start, Offset(0)])
        if what == "close":
            await log.close()
        self.world.crash(f"a{self.life}" if self.life else "a")
        if what == "power cut":
            self.world.disk(PATH).lose_unsynced(self.rng)
        self.life += 1
        log_dir = await attached(self.world, node=f"a{self.life}")
        loaded = await Log.load(
            log_dir,
            FOLDER,
            CONFIG,
            recovery_point=recovery_point,
            log_start_offset=Offset(self.model.start),
            clean=what == "close",
        )
        self.model.cut(loaded.log_end_offset)
        self.model.start = loaded.log_start_offset
        self.clean_end = min(self.clean_end, loaded.log_end_offset)
        return loaded

    # --- checks --------------------------------------------------------------------------------------------------
    async def check(self, log: Log) -> None:
        open_transactions = self.model.open()
        state = log.producers.state
        known = {
            producer_id: entry.transaction_first_offset
            for producer_id, entry in state.entries.items()
            if entry.transaction_first_offset >= 0
        }
        assert known == self.known(open_transactions, log)
        first = log.first_unstable_offset
        stable_end = log.log_end_offset if first is None else first
        expected = self.model.visible(stable_end)
        seen = await self.read(log, log.log_start_offset, stable_end)
        self.compare(seen, expected)
        position = self.rng.randint(log.log_start_offset, max(stable_end, log.log_start_offset))
        seen = await self.read(log, position, stable_end)
        self.compare(seen, {offset: pair for offset, pair in expected.items() if offset >= position})
        await self.check_indexes(log)

    def known(self, open_transactions: dict[int, int], log: Log) -> dict[int, int]:
        """A log that has lost its beginning may have lost the beginning of a transaction, or the whole."""
        state = log.producers.state
        found = {}
        for producer_id, first_offset in open_transactions.items():
            entry = state.entries.get(producer_id)
            known = -1 if entry is None else entry.transaction_first_offset
            if first_offset < self.model.start and known != first_offset:
                later = [
                    each.offset
                    for each in self.model.batches
                    if each.producer_id == producer_id and each.offset >= first_offset and each.marker is None
                ]
                assert known in later or (known == -1 and max(later) < self.model.start)
                if known >= 0:
                    found[producer_id] = known
            else:
                found[producer_id] = first_offset
        return found

    def compare(self, seen: dict[int, Pair], expected: dict[int, Pair]) -> None:
        if not self.clean_end:
            assert seen == expected
            return
        assert all(expected.get(offset) == pair for offset, pair in seen.items())
        assert values(seen) == values(expected)
        dirty = {offset: pair for offset, pair in expected.items() if offset >= self.clean_end}
        assert dirty.items() <= seen.items()

    async def read(self, log: Log, position: int, end: int) -> dict[int, Pair]:
        found: dict[int, Pair] = {}
        while position < end:
            size = self.rng.choice([1, 200, 500, 10_000])
            read, aborted = await log.read_with_aborted(position, ReadLimits(max_bytes=size, upper_offset=end))
            if not read.size:
                break
            found |= consumed(content(read), aborted, position)
            position = read.next_offset
        return found

    async def check_indexes(self, log: Log) -> None:
        """Every entry has its marker. An entry without one would hide the producer's next transaction."""
        for each in await log.aborted_transactions(0, log.log_end_offset):
            if each.last_offset >= log.log_start_offset:
                data = await log.read_bytes(each.last_offset, ReadLimits(max_bytes=1))
                header, view = split_batches(data)[0]
                marker = decode_end_transaction(view) if header.is_control else None
                assert header.last_offset == each.last_offset
                assert marker is not None
                assert (marker.producer_id, marker.is_commit) == (each.producer_id, False)


def values(found: dict[int, Pair]) -> dict[str, str | None]:
    return {key: value for key, value in latest(found).items() if value is not None}


@given(seed=st.integers(0, 2**32))
@pytest.mark.slow
@examples(150)
def test_a_consumer_with_read_committed_sees_what_was_committed(seed: int) -> None:
    async def scenario(world: SimulatedWorld) -> None:
        await Run(world, random.Random(seed)).run()

    SimulatedWorld(seed).run(scenario)
