"""Offsets in transactions against a model: the last record of each key counts, if its transaction is committed.

Any sequence of commits within and outside of transactions, deletions and markers. After each step, the shard must show what
the model says, and must equal one that replays the log, whole or compacted up to the first open transaction.
"""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from common.records.end_transaction import EndTransactionMarker
from common.records.group_records import OffsetCommitKey, OffsetCommitValue, encode_key, encode_offset
from tests.property.profiles import examples

NO_PRODUCER = -1
PRODUCERS = st.sampled_from([NO_PRODUCER, 1, 2, 3])
KEYS = st.sampled_from([("g", "t", 0), ("g", "t", 1), ("h", "t", 0)])


@dataclass(frozen=True)
class Data:
    """A record of an offset; None deletes it. `producer_id` is NO_PRODUCER outside of transactions."""

    producer_id: int
    key: tuple[str, str, int]
    offset: int | None


@dataclass(frozen=True)
class End:
    """A marker."""

    producer_id: int
    is_commit: bool


ENTRIES = st.lists(
    st.builds(Data, PRODUCERS, KEYS, st.integers(0, 99))
    | st.builds(Data, st.just(NO_PRODUCER), KEYS, st.none())
    | st.builds(End, st.integers(1, 3), st.booleans()),
    max_size=30,
)


def outcome(log: list[Data | End], position: int) -> bool | None:
    """Returns whether the record is committed; None while its transaction is open."""
    entry = log[position]
    assert isinstance(entry, Data)
    if entry.producer_id == NO_PRODUCER:
        return True
    later = (each for each in log[position:] if isinstance(each, End) and each.producer_id == entry.producer_id)
    end = next(later, None)
    return None if end is None else end.is_commit


def expected(log: list[Data | End]) -> dict[tuple[str, str, int], int]:
    """Returns the offsets by the rule of the module docstring."""
    found: dict[tuple[str, str, int], int] = {}
    for position, entry in enumerate(log):
        if isinstance(entry, Data) and outcome(log, position):
            found.pop(entry.key, None)
            if entry.offset is not None:
                found[entry.key] = entry.offset
    return found


def compacted(log: list[Data | End]) -> list[Data | End]:
    """Returns the log as the cleaner leaves it: below the first open record, without what is aborted or replaced."""
    open_records = [at for at, each in enumerate(log) if isinstance(each, Data) and outcome(log, at) is None]
    stable_end = min(open_records, default=len(log))
    kept: list[Data | End] = []
    for position, entry in enumerate(log):
        if isinstance(entry, Data) and position < stable_end:
            is_replaced = any(
                isinstance(each, Data) and each.key == entry.key and outcome(log, at)
                for at, each in enumerate(log[:stable_end])
                if at > position
            )
            if is_replaced or not outcome(log, position):
                continue
        kept.append(entry)
    return kept


def replayed(log: list[Data | End]) -> GroupShard:
    shard = GroupShard(GroupSettings())
    for entry in log:
        if isinstance(entry, End):
            shard.replay_marker(EndTransactionMarker(entry.producer_id, 0, 0, entry.is_commit))
            continue
        group, topic, partition = entry.key
        key = encode_key(OffsetCommitKey(group=group, topic=topic, partition=partition))
        value = None if entry.offset is None else encode_offset(OffsetCommitValue(offset=entry.offset))
        if entry.producer_id == NO_PRODUCER:
            shard.replay(key, value)
        else:
            shard.replay_transactional(entry.producer_id, key, value)
    return shard


def offsets(shard: GroupShard) -> dict[tuple[str, str, int], int]:
    return {
        (group, topic, partition): value.offset
        for group in ("g", "h")
        for topic, partitions in shard.offsets.of_group(group).items()
        for partition, value in partitions.items()
    }


@given(ENTRIES)
@examples(60)
def test_the_last_committed_record_counts(log: list[Data | End]) -> None:
    for size in range(len(log) + 1):
        prefix = log[:size]
        assert offsets(replayed(prefix)) == expected(prefix)
        assert offsets(replayed(compacted(prefix))) == expected(prefix)


@given(ENTRIES, ENTRIES)
@examples(100)
def test_a_compacted_log_goes_on_like_the_whole_one(log: list[Data | End], rest: list[Data | End]) -> None:
    """Also where transactions that were open at the time end later."""
    assert offsets(replayed(compacted(log) + rest)) == expected(log + rest)
