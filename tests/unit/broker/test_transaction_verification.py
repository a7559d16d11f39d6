"""A leader asks the coordinator before a transaction begins in its partition (KIP-890).

The test is the coordinator.
"""

import asyncio
import weakref
from collections.abc import Awaitable, Callable

import pytest

from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.transactions.partitions import partition_results
from broker.requests.produce import ProduceHandler
from common.ids import TopicId, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from common.records.batch import TRANSACTIONAL_BIT
from common.records.end_transaction import EndTransactionMarker
from tests.unit.broker.cluster import TOPIC, Cluster, batch, run
from tests.unit.broker.requests.contexts import context
from tests.unit.broker.test_idempotent_produce import elect, sent
from tests.unit.broker.test_transactions import ID, RecordedMarkers, end, send

STATE = TopicId(Uuid(b"S" * 16))
UNKNOWN = TopicId(Uuid(b"?" * 16))
OFFSETS = TopicId(Uuid(b"O" * 16))
QUESTION = ("tx", ID, 0, [("t", [0])])
KEY = "transaction.partition.verification.enable"

Scenario = Callable[[Cluster, "Coordinator"], Awaitable[None]]


class Coordinator:
    """Answers with `answer`, once `may_answer` is set."""

    def __init__(self, cluster: Cluster) -> None:
        # The transactions of each request.
        self.asked: list[list[tuple[str, int, int, list[tuple[str, list[int]]]]]] = []
        self.answer = ErrorCode.NONE
        # The error of a whole request.
        self.error = ErrorCode.NONE
        self.may_answer = asyncio.Event()
        # Whether leaders ask to add the partitions.
        self.is_adding = False
        cluster.marked_offsets = RecordedMarkers()
        cluster.coordinate = self.add_or_verify

    async def add_or_verify(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        assert all(each.verify_only is not self.is_adding for each in request.transactions)
        self.asked.append(
            [
                (
                    each.transactional_id,
                    each.producer_id,
                    each.producer_epoch,
                    [(topic.name, topic.partitions) for topic in each.topics],
                )
                for each in request.transactions
            ]
        )
        await self.may_answer.wait()
        results = [partition_results(each, lambda _: self.answer) for each in request.transactions]
        return AddPartitionsToTxnResponse(error_code=self.error, results_by_transaction=results)


def log_end(cluster: Cluster) -> int:
    return cluster[1].partition().log.log_end_offset


def run_verified(scenario: Scenario, *, partitions: int = 1, **properties: str) -> None:
    async def prepared(cluster: Cluster) -> None:
        coordinator = Coordinator(cluster)
        cluster.new_shard = lambda: GroupShard(GroupSettings())
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic(*([1, 2] for _ in range(partitions)))
        await cluster.started()
        cluster.controller.create_topic([1, 2], name="__transaction_state", topic_id=STATE)
        await cluster.started(topic_id=STATE)
        await scenario(cluster, coordinator)

    run(prepared, seed=1, **properties)


def test_only_the_first_batch_of_a_transaction_is_verified() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.may_answer.set()
        assert [await send(cluster, 1, number, "x") for number in range(3)] == [ErrorCode.NONE] * 3
        assert coordinator.asked == [[QUESTION]]
        assert await end(cluster, 1, is_commit=True) is ErrorCode.NONE
        assert await send(cluster, 1, 3, "x") is ErrorCode.NONE
        assert coordinator.asked == [[QUESTION]] * 2
        assert (await cluster.produce(1, "without a transaction")).error_code == ErrorCode.NONE
        assert coordinator.asked == [[QUESTION]] * 2
        assert len(cluster[1].partition().verification_guards) == 0

    run_verified(scenario)


def test_batches_that_arrive_meanwhile_keep_their_order() -> None:
    """One question for all. That of another producer goes with the next request."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        sending = []
        for number in range(4):
            sending.append(asyncio.ensure_future(send(cluster, 1, number, f"{number}")))
            await cluster.world.sleep(0.1)
        other = asyncio.ensure_future(send(cluster, 1, 0, "other", producer_id=ID + 1))
        await cluster.world.sleep(0.1)
        assert coordinator.asked == [[QUESTION]]
        assert log_end(cluster) == 0
        assert (await cluster.produce(1, "without a transaction")).base_offset == 0
        coordinator.may_answer.set()
        assert await asyncio.gather(*sending, other) == [ErrorCode.NONE] * 5
        assert [[each[1] for each in asked] for asked in coordinator.asked] == [[ID], [ID + 1]]
        assert await cluster.read_all(1, 1) == ["0", "1", "2", "3", "other"]

    run_verified(scenario)


def test_all_partitions_of_a_request_are_verified_together() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.may_answer.set()
        records = sent(0, "x", producer_id=ID, attributes=TRANSACTIONAL_BIT)
        data = [PartitionProduceData(index=index, records=bytes(records)) for index in range(3)]
        topic_data = [TopicProduceData(name="t", partition_data=data)]
        response = await cluster.request(
            1, ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=10_000, topic_data=topic_data), version=11
        )
        assert [each.error_code for each in response.responses[0].partition_responses] == [ErrorCode.NONE] * 3
        assert coordinator.asked == [[("tx", ID, 0, [("t", [0, 1, 2])])]]

    run_verified(scenario, partitions=3)


RETRIED = ErrorCode.NOT_ENOUGH_REPLICAS


@pytest.mark.parametrize(
    ("answer", "version", "expected"),
    [
        (ErrorCode.INVALID_TXN_STATE, 11, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 10, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 11, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.PRODUCER_FENCED, 11, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_REQUEST, 11, ErrorCode.INVALID_REQUEST),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 11, RETRIED),
        (ErrorCode.NOT_COORDINATOR, 11, RETRIED),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 11, RETRIED),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3, RETRIED),
    ],
)
def test_a_batch_that_is_not_confirmed_is_refused(answer: ErrorCode, version: int, expected: ErrorCode) -> None:
    """The next batch is verified again. Only what the producer retries leaves a guard, and nothing is stored."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.answer = answer
        coordinator.may_answer.set()
        records = sent(0, "x", producer_id=ID, attributes=TRANSACTIONAL_BIT)
        refused = await cluster.produce(1, records=records, transactional_id="tx", version=version)
        assert (refused.error_code, refused.base_offset) == (expected, -1)
        assert (log_end(cluster), len(cluster[1].partition().verification_guards)) == (0, expected is RETRIED)
        coordinator.answer = ErrorCode.NONE
        assert await send(cluster, 1, 0, "x") is ErrorCode.NONE
        assert len(coordinator.asked) == 2
        assert cluster[1].verifier is not None
        assert (cluster[1].verifier.counts.asked, cluster[1].verifier.counts.failed) == (2, 1)

    run_verified(scenario)


def test_a_refused_batch_does_not_stay_in_memory() -> None:
    """Another batch of the request waits for the followers. The request does not count as memory then."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.answer = ErrorCode.INVALID_TXN_STATE
        cluster.world.network.cut("broker-2", "broker-1")
        records = [memoryview(sent(0, "x", producer_id=ID, attributes=TRANSACTIONAL_BIT)), memoryview(batch("x"))]
        data = [PartitionProduceData(index=index, records=each) for index, each in enumerate(records)]
        kept = [weakref.ref(each) for each in records]
        request = ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name="t", partition_data=data)],
        )
        broker = cluster[1]
        handler = ProduceHandler(broker.env, broker.replicas, is_certain=lambda: True, verifier=broker.verifier)
        answer = handler.handle(context(ApiKey.PRODUCE, 11), request)
        del records, data, request
        await cluster.until(lambda: coordinator.asked)
        coordinator.may_answer.set()
        await cluster.world.sleep(1)
        assert answer is not None
        assert not answer.done()
        assert [each() for each in kept] == [None, None]

    run_verified(scenario, partitions=2)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NETWORK_EXCEPTION, RETRIED),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_of_the_whole_request_is_that_of_each_batch(error: ErrorCode, expected: ErrorCode) -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.error = error
        coordinator.may_answer.set()
        assert await send(cluster, 1, 0, "x") is expected

    run_verified(scenario)


def test_without_a_coordinator_the_producer_is_to_try_again() -> None:
    """The partition of `__transaction_state` has no leader, or its leader is fenced, or answers no request."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        cluster.controller.change(topic_id=STATE, leader=-1)
        assert await send(cluster, 1, 0, "x") is RETRIED
        cluster.controller.change(topic_id=STATE, leader=2)
        # Broker 2 serves no AddPartitionsToTxn in this test, so it stands for an older release: nothing is verified.
        assert await send(cluster, 1, 0, "x") is ErrorCode.NONE
        cluster.controller.fence(2)
        assert await send(cluster, 1, 0, "x", producer_id=ID + 1) is RETRIED
        cluster.controller.remove_topic(STATE)
        assert await send(cluster, 1, 0, "x", producer_id=ID + 1) is RETRIED
        assert coordinator.asked == []

    run_verified(scenario)


def test_a_coordinator_that_dies_is_asked_again_by_the_retry() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        cluster.controller.change(topic_id=STATE, leader=2)
        cluster.crash(2)
        assert await send(cluster, 1, 0, "x", acks=1) is RETRIED
        coordinator.may_answer.set()
        cluster.controller.change(topic_id=STATE, leader=1)
        assert await send(cluster, 1, 0, "x", acks=1) is ErrorCode.NONE

    run_verified(scenario)


def test_a_marker_that_overtakes_the_answer_makes_it_worthless() -> None:
    """The transaction that was confirmed has ended. A delayed batch must not begin another one."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        sending = asyncio.ensure_future(send(cluster, 1, 0, "delayed"))
        await cluster.world.sleep(0.1)
        assert await end(cluster, 1, is_commit=False) is ErrorCode.NONE
        coordinator.may_answer.set()
        assert await sending is ErrorCode.INVALID_TXN_STATE
        assert log_end(cluster) == 1
        assert cluster[1].partition().last_stable_offset == 1

    run_verified(scenario)


def test_an_answer_counts_only_for_the_transaction_that_it_is_about() -> None:
    """Kafka's ABA: the answer comes after the marker, when the next transaction of the producer is being verified."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        delayed = asyncio.ensure_future(send(cluster, 1, 0, "delayed"))
        await cluster.world.sleep(0.1)
        assert await end(cluster, 1, is_commit=False) is ErrorCode.NONE
        following = asyncio.ensure_future(send(cluster, 1, 0, "next"))
        await cluster.world.sleep(0.1)
        coordinator.may_answer.set()
        assert await delayed is ErrorCode.INVALID_TXN_STATE
        assert await following is ErrorCode.NONE
        assert coordinator.asked == [[QUESTION]] * 2
        assert await cluster.read_all(1, 1) == ["next"]

    run_verified(scenario)


def test_a_leader_that_was_deposed_meanwhile_appends_nothing() -> None:
    """Also if it leads again when the answer comes: it may not have seen every marker."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        sending = asyncio.ensure_future(send(cluster, 1, 0, "x"))
        await cluster.world.sleep(0.1)
        cluster.controller.change(leader=2, isr=[1, 2])
        coordinator.may_answer.set()
        assert await sending is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await elect(cluster, 1, isr=[1, 2])
        coordinator.may_answer.clear()
        sending = asyncio.ensure_future(send(cluster, 1, 0, "x"))
        await cluster.world.sleep(0.1)
        await elect(cluster, 2, isr=[1, 2])
        await elect(cluster, 1, isr=[1, 2])
        coordinator.may_answer.set()
        assert await sending is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert log_end(cluster) == 0

    run_verified(scenario)


def test_a_later_batch_does_not_overtake_one_that_is_to_be_sent_again() -> None:
    """The log knows nothing of the producer, so any sequence number would do. The producer would then be stuck, because its
    first batch would be out of order forever."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.may_answer.set()
        coordinator.answer = ErrorCode.NOT_COORDINATOR
        assert await send(cluster, 1, 0, "first") is RETRIED
        coordinator.answer = ErrorCode.NONE
        assert await send(cluster, 1, 1, "second") is RETRIED
        assert await send(cluster, 1, 0, "first") is ErrorCode.NONE
        assert await send(cluster, 1, 1, "second") is ErrorCode.NONE
        assert await cluster.read_all(1) == ["first", "second"]

    run_verified(scenario)


def test_a_producer_that_is_known_to_be_fenced_is_refused_without_a_question() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        assert await end(cluster, 1, is_commit=False, epoch=3) is ErrorCode.NONE
        assert await send(cluster, 1, 0, "x", epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert (coordinator.asked, log_end(cluster)) == ([], 1)

    run_verified(scenario)


def test_verification_can_be_turned_off_while_the_broker_runs() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        assert await send(cluster, 1, 0, "x") is ErrorCode.NONE
        assert coordinator.asked == []
        assert await end(cluster, 1, is_commit=True) is ErrorCode.NONE
        cluster.controller.configure_broker("", KEY, "true")
        coordinator.answer = ErrorCode.INVALID_TXN_STATE
        coordinator.may_answer.set()
        assert await send(cluster, 1, 1, "x") is ErrorCode.INVALID_TXN_STATE
        cluster.controller.configure_broker("", KEY, None)
        assert await send(cluster, 1, 1, "x") is ErrorCode.NONE

    run_verified(scenario, transaction_partition_verification_enable="false")


def test_a_marker_and_a_batch_that_are_held_back_by_a_swap_keep_their_order() -> None:
    """The transaction looks open when the batch arrives, because the marker before it is not appended yet."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.may_answer.set()
        assert await send(cluster, 1, 0, "x") is ErrorCode.NONE
        partition = cluster[1].partition()
        partition.begin_swap()
        ending = asyncio.ensure_future(end(cluster, 1, is_commit=True))
        await cluster.world.sleep(0.1)
        coordinator.answer = ErrorCode.INVALID_TXN_STATE
        assert await send(cluster, 1, 1, "late") is ErrorCode.INVALID_TXN_STATE
        partition.end_swap()
        assert await ending is ErrorCode.NONE
        assert partition.last_stable_offset == log_end(cluster) == 2

    run_verified(scenario)


def test_a_batch_that_is_held_back_by_a_swap_is_checked_when_it_is_appended() -> None:
    """Its transaction was open when it arrived, and its marker has come before the end of the swap."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        partition = cluster[1].partition()
        sending = asyncio.ensure_future(send(cluster, 1, 0, "confirmed"))
        await cluster.world.sleep(0.1)
        partition.begin_swap()
        ending = asyncio.ensure_future(end(cluster, 1, is_commit=False))
        await cluster.world.sleep(0.1)
        coordinator.may_answer.set()
        await cluster.world.sleep(0.1)
        partition.end_swap()
        assert await ending is ErrorCode.NONE
        assert await sending is ErrorCode.INVALID_TXN_STATE
        assert partition.last_stable_offset == log_end(cluster) == 1

    run_verified(scenario)


def test_forgotten_guards_expire_with_the_producers() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.may_answer.set()
        coordinator.answer = ErrorCode.NOT_COORDINATOR
        assert await send(cluster, 1, 0, "never sent again") is RETRIED
        guards = cluster[1].partition().verification_guards
        assert len(guards) == 1
        await cluster.until(lambda: not len(guards))

    run_verified(scenario, producer_id_expiration_ms="10000", producer_id_expiration_check_interval_ms="5000")


# --- transactions of version 2 -------------------------------------------------------------------------------------------


def test_a_leader_adds_its_partition_whether_or_not_it_has_to_verify() -> None:
    """Once in each transaction. The marker brings the epoch of the next one."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.is_adding = True
        coordinator.may_answer.set()
        assert [await send(cluster, 1, number, "x", version=12) for number in (0, 1)] == [ErrorCode.NONE] * 2
        assert coordinator.asked == [[QUESTION]]
        assert await end(cluster, 1, is_commit=True, epoch=1, version=2) is ErrorCode.NONE
        assert await send(cluster, 1, 2, "late", version=12) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert await send(cluster, 1, 0, "y", epoch=1, version=12) is ErrorCode.NONE
        assert coordinator.asked == [[QUESTION], [("tx", ID, 1, [("t", [0])])]]

    run_verified(scenario, transaction_partition_verification_enable="false")


@pytest.mark.parametrize("version", [2, 0])
def test_while_markers_are_written_a_leader_asks_again(version: int) -> None:
    """The producer has its next epoch at once. Its batches wait, in order, and the marker does not end their guard, even if
    it comes from a coordinator that does not name its version."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.is_adding = True
        coordinator.may_answer.set()
        assert await send(cluster, 1, 0, "z", version=12) is ErrorCode.NONE
        coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
        sending = [asyncio.ensure_future(send(cluster, 1, 0, "a", epoch=1, version=12))]
        await cluster.until(lambda: len(coordinator.asked) > 2)
        sending.append(asyncio.ensure_future(send(cluster, 1, 1, "b", epoch=1, version=12)))
        assert await end(cluster, 1, is_commit=True, epoch=1, version=version) is ErrorCode.NONE
        coordinator.answer = ErrorCode.NONE
        assert await asyncio.gather(*sending) == [ErrorCode.NONE] * 2
        assert await cluster.read_all(1, 2) == ["a", "b"]
        coordinator.answer = ErrorCode.CONCURRENT_TRANSACTIONS
        assert await end(cluster, 1, is_commit=True, epoch=2, version=2) is ErrorCode.NONE
        assert await send(cluster, 1, 0, "c", epoch=2, version=12) is ErrorCode.CONCURRENT_TRANSACTIONS

    run_verified(scenario)


def test_a_marker_that_comes_twice_does_not_end_the_next_transaction() -> None:
    """Both have the same epoch. Without one that is open, the marker is written again."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.is_adding = True
        coordinator.may_answer.set()
        assert await send(cluster, 1, 0, "a", version=12) is ErrorCode.NONE
        for _ in range(2):
            assert await end(cluster, 1, is_commit=True, epoch=1, version=2) is ErrorCode.NONE
        assert await send(cluster, 1, 0, "b", epoch=1, version=12) is ErrorCode.NONE
        assert await end(cluster, 1, is_commit=True, epoch=1, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert cluster[1].partition().last_stable_offset == 3

    run_verified(scenario)


def test_a_producer_that_the_log_does_not_know_begins_with_zero() -> None:
    """It has a new epoch in each transaction, so what comes with another number follows a batch that is lost."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        coordinator.may_answer.set()
        assert await send(cluster, 1, 5, "x") is ErrorCode.NONE
        coordinator.is_adding = True
        late = send(cluster, 1, 5, "x", producer_id=ID + 1, version=12)
        assert await late is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log_end(cluster) == 1

    run_verified(scenario)


# --- offsets of groups ---------------------------------------------------------------------------------------------------


async def with_offsets_topic(cluster: Cluster) -> None:
    cluster.controller.create_topic([1, 2], name="__consumer_offsets", topic_id=OFFSETS)
    await cluster.started(topic_id=OFFSETS)


async def commit(cluster: Cluster, *, version: int = 4) -> ErrorCode:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=ID,
        producer_epoch=0,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=partitions)],
    )
    response = await cluster.request(1, request, version=version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def write_marker(cluster: Cluster) -> "asyncio.Future[ErrorCode]":
    done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    marker = EndTransactionMarker(ID, 0, 0, is_commit=True)
    cluster[1].groups.write_marker(cluster[1].partition(topic_id=OFFSETS), marker, done.set_result)
    return done


def test_only_the_first_commit_of_a_transaction_is_verified() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        await with_offsets_topic(cluster)
        coordinator.may_answer.set()
        assert [await commit(cluster), await commit(cluster)] == [ErrorCode.NONE] * 2
        question = ("tx", ID, 0, [("__consumer_offsets", [0])])
        assert coordinator.asked == [[question]]
        assert await write_marker(cluster) is ErrorCode.NONE
        assert await commit(cluster) is ErrorCode.NONE
        assert coordinator.asked == [[question]] * 2

    run_verified(scenario)


@pytest.mark.parametrize(
    ("answer", "version", "expected"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 4, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.PRODUCER_FENCED, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NETWORK_EXCEPTION, 4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, 4, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_commit_that_is_not_confirmed_is_refused(answer: ErrorCode, version: int, expected: ErrorCode) -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        await with_offsets_topic(cluster)
        coordinator.answer = answer
        coordinator.may_answer.set()
        assert await commit(cluster, version=version) is expected
        assert cluster[1].partition(topic_id=OFFSETS).log.log_end_offset == 0

    run_verified(scenario)


def test_a_commit_of_version_five_adds_the_partition_of_its_offsets() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        await with_offsets_topic(cluster)
        coordinator.is_adding = True
        coordinator.may_answer.set()
        assert [await commit(cluster, version=5), await commit(cluster, version=5)] == [ErrorCode.NONE] * 2
        assert coordinator.asked == [[("tx", ID, 0, [("__consumer_offsets", [0])])]]

    run_verified(scenario, transaction_partition_verification_enable="false")


@pytest.mark.parametrize("version", [5, 6])
def test_offsets_of_a_transaction_are_committed_by_name_and_by_id(version: int) -> None:
    """From version 6 on, topics have ids (KIP-1319). What does not exist has an error of its own."""

    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        await with_offsets_topic(cluster)
        coordinator.is_adding = True
        coordinator.may_answer.set()
        partitions = [TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=7) for index in (0, 9)]
        topics = [
            TxnOffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)
            for name, topic_id in (("t", TOPIC), ("u", UNKNOWN))
        ]
        request = TxnOffsetCommitRequest(
            transactional_id="tx", group_id="g", producer_id=ID, producer_epoch=0, topics=topics
        )
        response = await cluster.request(1, request, version=version)
        found = {
            (topic.topic_id if version == 6 else topic.name, part.partition_index): ErrorCode(part.error_code)
            for topic in response.topics
            for part in topic.partitions
        }
        known, missing = (TOPIC, UNKNOWN) if version == 6 else ("t", "u")
        missing_error = ErrorCode.UNKNOWN_TOPIC_ID if version == 6 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found == {
            (known, 0): ErrorCode.NONE,
            (known, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            (missing, 0): missing_error,
            (missing, 9): missing_error,
        }
        assert len(response.topics) == 2

    run_verified(scenario)


def test_a_commit_whose_transaction_ends_meanwhile_is_refused() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        await with_offsets_topic(cluster)
        committing = asyncio.ensure_future(commit(cluster))
        await cluster.world.sleep(0.1)
        assert await write_marker(cluster) is ErrorCode.NONE
        coordinator.may_answer.set()
        assert await committing is ErrorCode.INVALID_TXN_STATE
        assert cluster[1].partition(topic_id=OFFSETS).last_stable_offset == 1

    run_verified(scenario)


def test_a_commit_whose_coordinator_moves_meanwhile_is_refused() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        await with_offsets_topic(cluster)
        committing = asyncio.ensure_future(commit(cluster))
        await cluster.world.sleep(0.1)
        cluster.controller.change(topic_id=OFFSETS, leader=2)
        await cluster.world.sleep(1)
        cluster.controller.change(topic_id=OFFSETS, leader=1)
        await cluster.world.sleep(1)
        coordinator.may_answer.set()
        assert await committing is ErrorCode.NOT_COORDINATOR

    run_verified(scenario)


def test_a_commit_during_a_swap_is_verified_although_its_marker_is_held_back() -> None:
    async def scenario(cluster: Cluster, coordinator: Coordinator) -> None:
        await with_offsets_topic(cluster)
        coordinator.may_answer.set()
        assert await commit(cluster) is ErrorCode.NONE
        partition = cluster[1].partition(topic_id=OFFSETS)
        partition.begin_swap()
        marked = write_marker(cluster)
        coordinator.answer = ErrorCode.INVALID_TXN_STATE
        assert await commit(cluster) is ErrorCode.INVALID_TXN_STATE
        partition.end_swap()
        assert await marked is ErrorCode.NONE
        assert partition.last_stable_offset == 2

    run_verified(scenario)
