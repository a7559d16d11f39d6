"""TxnOffsetCommit: offsets that are pending until the marker of their transaction comes."""

import pytest

from broker.coordinator.core.group_shard import TOMBSTONES_AT_ONCE
from broker.coordinator.core.result import Caller, Step
from common.protocol.errors import ErrorCode
from common.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from common.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from common.protocol.schema import Uuid
from common.records.end_transaction import EndTransactionMarker
from common.records.group_records import OffsetCommitKey, decode_offset, encode_key
from tests.unit.broker.coordinator.core.group_world import CALLER, GroupWorld

OLD_PRODUCER = Caller("client", "/127.0.0.1", knows_missing_groups=False)
TOPIC = Uuid((1).to_bytes(16, "big"))
PRODUCER = 1000
OTHER = 2000


def commit(
    world: GroupWorld,
    offset: int,
    *,
    producer_id: int = PRODUCER,
    metadata: str = "",
    caller: Caller = CALLER,
    **membership: int | str | None,
) -> list[ErrorCode]:
    """Commits the offset of t-0 in the producer's transaction and returns the errors."""
    request = TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=str(membership.pop("group", "g")),
        producer_id=producer_id,
        producer_epoch=3,
        topics=[
            TxnOffsetCommitRequestTopic(
                name="t",
                topic_id=TOPIC,
                partitions=[TxnOffsetCommitRequestPartition(committed_offset=offset, committed_metadata=metadata)],
            )
        ],
    )
    for name, value in membership.items():
        setattr(request, name, value)
    waiter = world.waiter()
    # The log of the world holds plain records only, so the step is not carried out but its answers.
    step = world.shard.commit_transactional_offsets(world.now, waiter, caller, request)
    world.last_step = step
    world.deliver(step.answers)
    return [ErrorCode(each.error_code) for topic in world.answer(waiter).topics for each in topic.partitions]


def test_more_offsets_than_fit_any_batch_are_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("broker.coordinator.core.transactional_commit.encode_key")
    world = GroupWorld()
    partitions = [TxnOffsetCommitRequestPartition(partition_index=index) for index in range(100_000)]
    request = TxnOffsetCommitRequest(
        group_id="g", producer_id=PRODUCER, topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)]
    )
    waiter = world.waiter()
    world.deliver(world.shard.commit_transactional_offsets(world.now, waiter, CALLER, request).answers)
    (topic,) = world.answer(waiter).topics
    assert {each.error_code for each in topic.partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}


def end(world: GroupWorld, *, is_commit: bool, producer_id: int = PRODUCER) -> Step:
    """Ends the producer's transaction."""
    marker = EndTransactionMarker(producer_id, 3, 0, is_commit)
    waiter = world.waiter()
    step = world.shard.end_transaction(world.now, waiter, marker)
    assert (step.records, step.marker) == ([], marker)
    world.deliver(step.answers)
    assert world.answer(waiter).error_code == ErrorCode.NONE
    return step


def stable_fetch(world: GroupWorld) -> list[tuple[int, ErrorCode]]:
    """Returns offset and error of each partition of t, asked for with require_stable."""
    waiter = world.waiter()
    request = OffsetFetchRequestGroup(group_id="g")
    request.topics = None
    world.carry_out(world.shard.fetch_offsets(world.now, waiter, request, require_stable=True))
    return [
        (each.committed_offset, ErrorCode(each.error_code))
        for topic in world.answer(waiter).topics
        for each in topic.partitions
    ]


def test_a_committed_transaction_moves_the_offset() -> None:
    """Not before its marker. The records are part of the producer's transaction."""
    world = GroupWorld()
    assert commit(world, 7) == [ErrorCode.NONE]
    assert world.last_step.transaction == (PRODUCER, 3)
    assert [record.key for record in world.last_step.records] == [
        encode_key(OffsetCommitKey(group="g", topic="t", partition=0))
    ]
    assert world.fetch(("t", 0)) == {("t", 0): -1}
    end(world, is_commit=True)
    assert world.fetch(("t", 0)) == {("t", 0): 7}


def test_an_aborted_transaction_moves_nothing() -> None:
    world = GroupWorld()
    world.commit(5)
    commit(world, 7)
    end(world, is_commit=False)
    assert world.fetch(("t", 0)) == {("t", 0): 5}


def test_who_wants_stable_offsets_is_told_to_wait() -> None:
    """KIP-447: a new owner of the partition may not start below what is about to be committed."""
    world = GroupWorld()
    world.commit(5)
    commit(world, 7)
    assert stable_fetch(world) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    assert world.fetch(("t", 0)) == {("t", 0): 5}
    end(world, is_commit=True)
    assert stable_fetch(world) == [(7, ErrorCode.NONE)]


def test_a_marker_ends_the_transaction_of_its_producer_only() -> None:
    world = GroupWorld()
    commit(world, 7)
    commit(world, 8, producer_id=OTHER)
    end(world, is_commit=False, producer_id=OTHER)
    assert stable_fetch(world) == []
    end(world, is_commit=True)
    assert world.fetch() == {("t", 0): 7}


@pytest.mark.parametrize("first", [PRODUCER, OTHER])
def test_the_last_record_counts_whichever_marker_comes_first(first: int) -> None:
    world = GroupWorld()
    commit(world, 7)
    commit(world, 8, producer_id=OTHER)
    for producer_id in (first, PRODUCER + OTHER - first):
        end(world, is_commit=True, producer_id=producer_id)
    assert world.fetch() == {("t", 0): 8}


def test_an_offset_is_stored_with_the_id_of_its_topic() -> None:
    """So it is none of a later topic of this name."""
    world = GroupWorld()
    commit(world, 7)
    (record,) = world.last_step.records
    assert record.value is not None
    assert decode_offset(record.value).topic_id == TOPIC


def test_a_later_commit_without_a_transaction_replaces_what_is_pending() -> None:
    world = GroupWorld()
    commit(world, 7)
    world.commit(9)
    end(world, is_commit=True)
    assert world.fetch() == {("t", 0): 9}


def test_a_group_with_pending_offsets_exists_and_does_not_expire() -> None:
    world = GroupWorld()
    commit(world, 7)
    world.expire()
    assert world.state() == "Empty"
    end(world, is_commit=False)
    world.expire()
    assert list(world.shard.groups) == []


def test_deleting_a_group_deletes_what_is_pending() -> None:
    """With a tombstone, so that a load finds the same."""
    world = GroupWorld()
    commit(world, 7)
    assert world.delete_group() == "NONE"
    assert [value for _, value in world.log] == [None, None]
    end(world, is_commit=True)
    assert world.fetch() == {}


def test_deleting_an_offset_deletes_what_is_pending() -> None:
    """Also if nothing is committed yet. Otherwise the offset that was just deleted would come with the marker."""
    world = GroupWorld()
    commit(world, 7)
    assert world.delete_offsets(("t", 0)) == ["NONE"]
    assert [value for _, value in world.log] == [None]
    end(world, is_commit=True)
    assert world.fetch() == {}


def test_deleting_a_topic_deletes_what_is_pending() -> None:
    world = GroupWorld()
    commit(world, 7)
    world.carry_out(*world.shard.topics_deleted(world.now, ["t"]))
    end(world, is_commit=True)
    assert world.fetch() == {}


def test_no_offset_becomes_pending_before_the_last_tombstone_of_a_topic_of_its_name() -> None:
    world = GroupWorld()
    for partition in range(TOMBSTONES_AT_ONCE + 1):
        world.commit(7, partition=partition)
    world.carry_out(*world.shard.topics_deleted(world.now, ["t"]))
    assert commit(world, 8) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    world.advance(0)
    assert commit(world, 8) == [ErrorCode.NONE]


def test_an_offset_that_is_committed_and_pending_gets_one_tombstone() -> None:
    world = GroupWorld()
    world.commit(3)
    commit(world, 7)
    world.carry_out(*world.shard.topics_deleted(world.now, ["t"]))
    assert [record.value for record in world.last_step.records] == [None]


def test_a_producer_that_knows_its_member_is_fenced_with_it() -> None:
    """KIP-447. A producer without membership is fenced by its epoch only."""
    world = GroupWorld()
    member, _ = world.stable_group()
    generation = world.generation()
    assert commit(world, 7, member_id=member, generation_id=generation) == [ErrorCode.NONE]
    assert commit(world, 7, member_id=member, generation_id=generation - 1) == [ErrorCode.ILLEGAL_GENERATION]
    assert commit(world, 7, member_id="stranger", generation_id=generation) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(world, 7) == [ErrorCode.NONE]


def test_a_consumer_that_is_no_member_may_have_an_instance_id() -> None:
    """It assigns its partitions itself, and has no generation. It may commit as long as the group has no members."""
    world = GroupWorld()
    assert commit(world, 7, group_instance_id="i") == [ErrorCode.NONE]
    assert commit(world, 8, group_instance_id="i") == [ErrorCode.NONE]
    world = GroupWorld()
    world.stable_group()
    assert commit(world, 7, group_instance_id="i") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_member_of_a_missing_group_has_no_generation() -> None:
    """KIP-1319 gives it an error of its own."""
    world = GroupWorld()

    def refusal(generation_id: int, caller: Caller = CALLER) -> list[ErrorCode]:
        return commit(world, 7, caller=caller, member_id="m", generation_id=generation_id, group="missing")

    assert refusal(1, OLD_PRODUCER) == [ErrorCode.ILLEGAL_GENERATION]
    assert refusal(1) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert list(world.shard.groups) == []


def test_metadata_that_is_too_long_is_refused() -> None:
    world = GroupWorld(offset_metadata_max_bytes=3)
    assert commit(world, 7, metadata="four") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert world.last_step.records == []
