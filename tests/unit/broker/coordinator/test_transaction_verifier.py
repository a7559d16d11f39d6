"""TransactionVerifier: which broker is asked, and what becomes of those who wait if it does not answer.

The brokers are functions that answer a request.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from broker.coordinator.broker_channels import BrokerChannels
from broker.coordinator.core.group_partition import TRANSACTION_STATE_TOPIC
from broker.coordinator.core.key_partitions import KeyPartitions
from broker.coordinator.core.transactions.partitions import partition_results
from broker.coordinator.core.transactions.verification import AddRetries, Question, VerificationCounts
from broker.coordinator.transaction_verifier import TransactionVerifier
from broker.core.verification_guards import VerificationGuard
from common.ids import NO_LEADER, BrokerId, LeaderEpoch
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.state import MetadataState
from common.net.node_channel import ChannelError, NotServed
from common.protocol.errors import ErrorCode
from common.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from common.records.metadata_records import BrokerEndpoint, PartitionChangeRecord
from common.time_units import NS_PER_MS
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.metadata.builders import partition, register, replay, topic, topic_id

OK = ErrorCode.NONE


def broker_record(broker_id: int, *, fenced: bool = False, host: str | None = None) -> Any:
    endpoint = BrokerEndpoint(name="PLAINTEXT", host=host or f"host-{broker_id}", port=9092)
    return replace(register(broker_id, fenced=fenced), end_points=[endpoint])


def image(*, leader: int, fenced: bool = False) -> MetadataState:
    """Two brokers, of which broker 1 is this one. `leader` leads the only partition of `__transaction_state`."""
    return replay(
        broker_record(1),
        broker_record(2, fenced=fenced),
        topic(1, TRANSACTION_STATE_TOPIC),
        partition(1, 0, [1, 2], directories=[UNASSIGNED] * 2, leader=leader),
    )


class Brokers:
    """Answers to every broker that all transactions are open, or fails with what the broker's list has next."""

    def __init__(self, world: SimulatedWorld, failures: dict[str, list[Exception | None]]) -> None:
        self._world = world
        self._failures = failures
        # Broker, version, and how many partitions were asked about.
        self.asked: list[tuple[str, int | None, int]] = []
        self.asked_ms: list[int] = []
        self.answer_code = OK
        self.closed: list[str] = []

    async def answer(self, broker: str, version: int | None, request: AddPartitionsToTxnRequest) -> Any:
        count = sum(len(each.partitions) for asked in request.transactions for each in asked.topics)
        self.asked.append((broker, version, count))
        self.asked_ms.append(self._world.now_ns() // NS_PER_MS)
        await self._world.sleep(0.01)
        failures = self._failures.get(broker)
        failure = failures.pop(0) if failures else None
        if failure is not None:
            raise failure
        results = [partition_results(each, lambda _: self.answer_code) for each in request.transactions]
        return AddPartitionsToTxnResponse(results_by_transaction=results)

    async def answer_here(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        response: AddPartitionsToTxnResponse = await self.answer("here", None, request)
        return response


class FakeChannel:
    def __init__(self, brokers: Brokers, host: str) -> None:
        self._brokers = brokers
        self._host = host

    async def send(self, request: Any, *, version: int | None = None, deadline_ns: int) -> Any:
        return await self._brokers.answer(self._host, version, request)

    def close(self) -> None:
        self._brokers.closed.append(self._host)


class Asking:
    """The verifier of broker 1, and the answers to those who asked, in the order in which they came."""

    def __init__(self, world: SimulatedWorld, verifier: TransactionVerifier, brokers: Brokers) -> None:
        self.world = world
        self.verifier = verifier
        self.brokers = brokers
        self.answers: list[tuple[int, ErrorCode]] = []

    def ask(self, *partitions: int, is_add: bool = False) -> None:
        for index in partitions:
            guard = VerificationGuard(7, 0, LeaderEpoch(0), 0, 0)
            self.verifier.verify(Question("t", 7, 0, "a", index, is_add), guard, partial(self._note, index))

    def _note(self, index: int, error: ErrorCode) -> None:
        self.answers.append((index, error))


def run(script: Callable[[Asking], Any], state: MetadataState, **failures: Sequence[Exception | None]) -> Asking:
    made: list[Asking] = []

    async def scenario(world: SimulatedWorld) -> None:
        brokers = Brokers(world, {name.replace("_", "-"): [*each] for name, each in failures.items()})
        async with asyncio.TaskGroup() as group:
            verifier = TransactionVerifier(
                world.node("broker-1"),
                state,
                broker_id=BrokerId(1),
                key_partitions=KeyPartitions(state),
                channels=BrokerChannels(
                    state, listener_name="PLAINTEXT", connect=lambda host, _port: FakeChannel(brokers, host)
                ),
                is_enabled=lambda: True,
                retries=AddRetries(backoff_ns=30 * NS_PER_MS, max_ns=100 * NS_PER_MS),
                task_group=group,
            )
            verifier.attach(brokers.answer_here)
            made.append(Asking(world, verifier, brokers))
            await script(made[0])
            verifier.close()

    SimulatedWorld(1).run(scenario)
    return made[0]


async def ask_and_wait(asking: Asking) -> None:
    asking.ask(0)
    assert asking.answers == [], "nobody is answered before the question has been asked"
    await asking.world.sleep(1)


def test_the_leader_of_the_partition_of_the_id_is_asked() -> None:
    """In the first version that can verify. This broker itself is asked without a connection."""
    assert run(ask_and_wait, image(leader=2)).brokers.asked == [("host-2", 4, 1)]
    asking = run(ask_and_wait, image(leader=1))
    assert (asking.brokers.asked, asking.answers) == ([("here", None, 1)], [(0, OK)])


def test_what_is_asked_in_one_step_goes_in_one_request() -> None:
    """And what comes while it is under way in the next."""

    async def ask(asking: Asking) -> None:
        asking.ask(0, 1)
        await asking.world.sleep(0.005)
        asking.ask(2, 3, 4)
        await asking.world.sleep(1)
        asking.ask(5)
        await asking.world.sleep(1)

    asking = run(ask, image(leader=2))
    assert asking.brokers.asked == [("host-2", 4, 2), ("host-2", 4, 3), ("host-2", 4, 1)]
    assert asking.answers == [(number, OK) for number in range(6)]


def test_a_broker_that_does_not_answer_confirms_nothing() -> None:
    """The next question is asked as usual."""

    async def ask(asking: Asking) -> None:
        await ask_and_wait(asking)
        asking.ask(1)
        await asking.world.sleep(1)

    asking = run(ask, image(leader=2), host_2=[ChannelError("lost")])
    assert asking.answers == [(0, ErrorCode.NETWORK_EXCEPTION), (1, OK)]
    counts = asking.verifier.counts
    assert counts == VerificationCounts(asked=2, failed=1, time_ns_sum=counts.time_ns_sum, time_ns_max=10_000_000)


def test_a_broker_that_does_not_answer_for_long_is_logged_once() -> None:
    """Not with each producer's attempt. After an answer, the next failure is logged again."""

    async def ask(asking: Asking) -> None:
        for number in range(8):
            asking.ask(number)
            await asking.world.sleep(1)
            logged = len(asking.world.events_named("transaction_verification_failed"))
            assert logged == (1 if number < 4 else 2), number

    failures = [ChannelError("lost"), ChannelError("lost"), ChannelError("lost")]
    asking = run(ask, image(leader=2), host_2=[*failures, None, *failures])
    assert [index for index, answer in asking.answers if answer is OK] == [3, 7]


def test_a_broker_of_an_older_release_cannot_be_asked() -> None:
    """Its transactions go on without verification, as in Kafka. This is logged once, not with each of them."""

    async def ask(asking: Asking) -> None:
        for number in range(3):
            asking.ask(number)
            await asking.world.sleep(1)
        assert len(asking.world.events_named("transactions_not_verified")) == 1

    asking = run(ask, image(leader=2), host_2=3 * [NotServed("version 4 of ADD_PARTITIONS_TO_TXN")])
    assert asking.answers == [(0, OK), (1, OK), (2, OK)]


def test_a_partition_that_cannot_be_added_yet_is_added_later() -> None:
    """The question is repeated after a pause, until it has taken too long. An answer takes 10 ms here, the pause 30."""

    async def ask(asking: Asking) -> None:
        asking.brokers.answer_code = ErrorCode.CONCURRENT_TRANSACTIONS
        asking.ask(0, is_add=True)
        await asking.world.sleep(1)

    asking = run(ask, image(leader=2))
    assert [at_ms - asking.brokers.asked_ms[0] for at_ms in asking.brokers.asked_ms] == [0, 40, 80, 120]
    assert asking.answers == [(0, ErrorCode.CONCURRENT_TRANSACTIONS)]


def test_a_partition_that_cannot_be_added_yet_does_not_wait_for_a_quiet_moment() -> None:
    """Other producers ask all the time, so that there is always a next request."""

    async def ask(asking: Asking) -> None:
        asking.brokers.answer_code = ErrorCode.CONCURRENT_TRANSACTIONS
        asking.ask(0, is_add=True)
        for number in range(1, 100):
            await asking.world.sleep(0.005)
            asking.ask(number, is_add=True)
        assert (0, ErrorCode.CONCURRENT_TRANSACTIONS) in asking.answers

    run(ask, image(leader=2))


def test_nothing_is_asked_again_after_the_end() -> None:
    """The answer comes when the verifier is closed, and its TaskGroup may have ended before the pause has."""

    async def ask(asking: Asking) -> None:
        asking.brokers.answer_code = ErrorCode.CONCURRENT_TRANSACTIONS
        asking.ask(0, is_add=True)
        await asking.world.sleep(0.005)
        asking.verifier.close()
        await asking.world.sleep(1)

    asking = run(ask, image(leader=1))
    assert (asking.brokers.asked, asking.answers) == ([("here", None, 1)], [])


def test_without_a_coordinator_nobody_is_asked() -> None:
    for state in (image(leader=NO_LEADER), image(leader=2, fenced=True), replay(broker_record(1))):
        asking = run(ask_and_wait, state)
        assert (asking.brokers.asked, asking.answers) == ([], [(0, ErrorCode.COORDINATOR_NOT_AVAILABLE)])


def test_the_coordinator_of_the_moment_is_asked() -> None:
    """The partition of the id moves to another broker, and that broker then to another address."""
    state = image(leader=1)

    async def move(asking: Asking) -> None:
        await ask_and_wait(asking)
        replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=2), into=state)
        asking.ask(1)
        await asking.world.sleep(1)
        replay(replace(broker_record(2, host="moved"), broker_epoch=101), into=state)
        asking.ask(2)
        await asking.world.sleep(1)

    asking = run(move, state)
    assert [broker for broker, _, _ in asking.brokers.asked] == ["here", "host-2", "moved"]
    assert asking.brokers.closed == ["host-2", "moved"]
