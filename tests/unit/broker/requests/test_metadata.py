"""Metadata and DescribeCluster requests, answered from the metadata image: every kind of request, every error, every
version."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from broker.requests.metadata import MetadataRequests
from common.ids import BrokerId, DirectoryId, Offset, Uuid
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.state import MetadataState
from common.protocol.api_keys import ApiKey
from common.protocol.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from common.protocol.codec import encode
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from common.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from common.records.metadata_records import BrokerEndpoint, KnownRecord, RemoveTopicRecord
from common.slices import ELEMENTS_PER_SLICE
from tests.counted import result_and_turns
from tests.simulation.environment import SimulatedWorld
from tests.unit.broker.requests.contexts import NoMemory, context, over_the_wire, versions
from tests.unit.common.metadata.builders import directory, partition, register, replay, topic, topic_id

NEWEST = versions(ApiKey.METADATA)[-1]
D1, D2, D3 = directory(1), directory(2), directory(3)
UNKNOWN_ID = Uuid(b"?" * 16)


class Topics:
    """Stands in for automatic topic creation and records the requested names."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def create(self, names: Sequence[str]) -> None:
        self.asked.append(list(names))


class Broker:
    """The handlers of broker 1, with an image made of these records."""

    def __init__(self, *records: KnownRecord, broker_id: int = 1) -> None:
        self.state: MetadataState = replay(*records)
        self.topics = Topics()
        self.requests = MetadataRequests(
            SimulatedWorld(seed=1).node("broker-1"),
            self.state,
            broker_id=BrokerId(broker_id),
            cluster_id="the-cluster",
            auto_topics=self.topics,
        )

    def ask(
        self,
        *asked: str | Uuid | None,
        everything: bool = False,
        version: int = NEWEST,
        listener: str = "PLAINTEXT",
        create: bool = True,
    ) -> MetadataResponse:
        topics = [
            MetadataRequestTopic(topic_id=each, name=None) if isinstance(each, bytes) else MetadataRequestTopic(name=each)
            for each in asked
        ]
        request = MetadataRequest(topics=None if everything else topics, allow_auto_topic_creation=create)
        response = self.requests.handle_metadata(context(ApiKey.METADATA, version, listener_name=listener), request)
        assert isinstance(response, MetadataResponse), "it is short"
        assert over_the_wire(response, version) is not None
        return response

    def topic(
        self, asked: str | Uuid | None, *, version: int = NEWEST, listener: str = "PLAINTEXT"
    ) -> MetadataResponseTopic:
        (answer,) = self.ask(asked, version=version, listener=listener).topics
        return answer

    def partition(self, *, version: int = NEWEST, listener: str = "PLAINTEXT") -> MetadataResponsePartition:
        """Returns the first partition of topic-1."""
        return self.topic("topic-1", version=version, listener=listener).partitions[0]

    def describe_cluster(
        self, *, endpoint_type: int = 1, operations: bool = False, fenced: bool = False
    ) -> DescribeClusterResponse:
        request = DescribeClusterRequest(
            endpoint_type=endpoint_type, include_cluster_authorized_operations=operations, include_fenced_brokers=fenced
        )
        response = self.requests.handle_describe_cluster(context(ApiKey.DESCRIBE_CLUSTER, 2), request)
        assert over_the_wire(response, 2) is not None
        if not fenced:
            assert over_the_wire(response, 0) is not None
        return response


def on_listeners(broker_id: int, *names: str, fenced: bool = False) -> KnownRecord:
    record = register(broker_id, directories=[directory(broker_id)], fenced=fenced, epoch=1000, incarnation=99)
    record.end_points = [
        BrokerEndpoint(name=name, host=f"{name.lower()}-{broker_id}", port=9000 + broker_id) for name in names
    ]
    return record


THREE = (register(1, directories=[D1]), register(2, directories=[D2], rack="r"), register(3, directories=[D3]))


# --- which topics ----------------------------------------------------------------------------------------------------


def test_all_topics_come_sorted_by_name_with_their_ids() -> None:
    """Null asks for all topics. Their order must not depend on the order of creation."""
    broker = Broker(*THREE, topic(1, "b"), topic(2, "a"), partition(2, 1, [1]), partition(2, 0, [2]), topic(3, "c"))
    answers = broker.ask(everything=True).topics
    assert [(each.name, each.topic_id) for each in answers] == [("a", topic_id(2)), ("b", topic_id(1)), ("c", topic_id(3))]
    assert [each.partition_index for each in answers[0].partitions] == [0, 1]
    assert broker.topics.asked == []


def test_an_empty_list_means_all_in_version_0_and_none_later() -> None:
    """In version 0, an empty list asks for all topics. Since version 1, null does that, and an empty list asks for none."""
    broker = Broker(*THREE, topic(1, "a"))
    assert [each.name for each in broker.ask(version=0).topics] == ["a"]
    for version in range(1, NEWEST + 1):
        assert broker.ask(version=version).topics == []


def test_a_topic_by_id() -> None:
    """Version 10 and later can name a topic by its id. The answer has the name and the id."""
    answer = Broker(*THREE, topic(1), partition(1, 0, [1])).topic(Uuid(topic_id(1)))
    assert (answer.error_code, answer.name, answer.topic_id) == (ErrorCode.NONE, "topic-1", topic_id(1))
    assert len(answer.partitions) == 1


@pytest.mark.parametrize(("version", "name"), [(10, ""), (11, ""), (12, None)])
def test_an_unknown_id_is_refused_and_creates_nothing(version: int, name: str | None) -> None:
    """The answer has UNKNOWN_TOPIC_ID and the id. The name is null in versions that allow null. No topic is created for an
    id."""
    broker = Broker(*THREE)
    answer = broker.topic(UNKNOWN_ID, version=version)
    assert (answer.error_code, answer.name, answer.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, name, UNKNOWN_ID)
    assert broker.topics.asked == []


def test_an_unknown_name_is_created_once_for_the_whole_request() -> None:
    """All unknown names are passed to topic creation in one call. Each gets an error that clients retry."""
    broker = Broker(*THREE, topic(1))
    response = broker.ask("x", "topic-1", "y")
    assert [each.error_code for each in response.topics] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert broker.topics.asked == [["x", "y"]]


def test_a_topic_that_is_asked_for_many_times_is_described_once() -> None:
    """If a topic were described at each mention, a request of a few kilobytes could get a response of many megabytes. The
    same topic by name and by id is described twice."""
    broker = Broker(*THREE, topic(1), *(partition(1, index, [1]) for index in range(100)))
    response = broker.ask(*["topic-1"] * 2000, *["x"] * 2000, *[Uuid(topic_id(1))] * 2000)
    assert [each.name for each in response.topics] == ["topic-1", "x", "topic-1"]
    ids = [MetadataRequestTopic(topic_id=topic_id(1), name=str(number)) for number in range(2000)]
    by_id = broker.requests.handle_metadata(context(ApiKey.METADATA, 12), MetadataRequest(topics=ids))
    assert isinstance(by_id, MetadataResponse)
    assert len(by_id.topics) == 1


def test_many_topics_that_do_not_exist_are_answered_in_slices() -> None:
    """And created once, although their names are looked up twice."""
    broker = Broker(*THREE)
    names = [f"none-{number}" for number in range(3 * ELEMENTS_PER_SLICE)]

    async def scenario() -> tuple[MetadataResponse, int]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        answer = broker.requests.handle_metadata(context(ApiKey.METADATA, NEWEST), request)
        assert not isinstance(answer, MetadataResponse)
        return await result_and_turns(answer)

    response, turns = asyncio.run(scenario())
    assert turns > 2
    assert [each.name for each in response.topics] == names
    assert {each.error_code for each in response.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert broker.topics.asked == [names]


@pytest.mark.parametrize("is_named", [False, True])
def test_many_partitions_are_described_in_slices_as_they_were(*, is_named: bool) -> None:
    """Counts the turns of the event loop. What changes between two slices is not in the answer: neither in the topic that is
    being described nor in the next one, and no new topic is."""
    indexes = range(3 * ELEMENTS_PER_SLICE)
    memory = NoMemory()
    broker = Broker(*THREE, *(each for number in (1, 2) for each in (topic(number), *_partitions(number, indexes))))

    async def scenario() -> tuple[MetadataResponse, int]:
        names = [MetadataRequestTopic(name=f"topic-{number}") for number in (1, 2)]
        request = MetadataRequest(topics=names if is_named else None)
        answer = broker.requests.handle_metadata(context(ApiKey.METADATA, NEWEST, memory=memory), request)
        assert not isinstance(answer, MetadataResponse)
        describing, turns = asyncio.ensure_future(answer), 0
        while not describing.done():
            await asyncio.sleep(0)
            turns += 1
            if turns == 2:
                _replay_more(broker.state, *(_partitions(number, [len(indexes)])[0] for number in (1, 2)))
                _replay_more(broker.state, topic(3), *_partitions(3, [0]))
                _replay_more(broker.state, RemoveTopicRecord(topic_id=topic_id(2)), register(3, fenced=True, epoch=200))
        return await describing, turns

    response, turns = asyncio.run(scenario())
    assert turns > 6
    assert [(each.name, len(each.partitions)) for each in response.topics] == [
        ("topic-1", len(indexes)),
        ("topic-2", len(indexes)),
    ]
    assert {(part.leader_id, part.error_code) for each in response.topics for part in each.partitions} == {(3, 0)}
    assert [part.partition_index for part in response.topics[0].partitions] == list(indexes)
    assert [each.node_id for each in response.brokers] == [1, 2, 3]
    # A client that reads no answers must not get many of them into the queue.
    size = len(encode(response, NEWEST))
    assert size / 2 < memory.expected_bytes < 2 * size


def test_one_long_answer_is_made_after_the_other() -> None:
    """The second one has what has changed until its turn came. Otherwise the answers to all clients, which ask at once after
    a restart, would be in memory together."""
    indexes = range(2 * ELEMENTS_PER_SLICE)
    broker = Broker(*THREE, topic(1), *_partitions(1, indexes))

    async def ask() -> int:
        answer = broker.requests.handle_metadata(context(ApiKey.METADATA, NEWEST), MetadataRequest(topics=None))
        assert not isinstance(answer, MetadataResponse)
        return len((await answer).topics[0].partitions)

    async def scenario() -> list[int]:
        answers = [asyncio.ensure_future(ask()) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(answer.done() for answer in answers)
        _replay_more(broker.state, *_partitions(1, [len(indexes)]))
        return await asyncio.gather(*answers)

    assert asyncio.run(scenario()) == [len(indexes), len(indexes) + 1]


def _partitions(number: int, indexes: Iterable[int]) -> list[KnownRecord]:
    return [partition(number, index, [3, 1]) for index in indexes]


def _replay_more(state: MetadataState, *records: KnownRecord) -> None:
    for record in records:
        state.replay(record, offset=Offset(state.last_offset + 1))


def test_a_client_may_forbid_the_creation() -> None:
    """Consumers and tools can set allow_auto_topic_creation to false, to look topics up without creating them."""
    broker = Broker(*THREE)
    (answer,) = broker.ask("x", create=False).topics
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.topics.asked == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "ä", "x" * 250, None])
def test_an_invalid_name_is_refused_and_never_created(name: str | None) -> None:
    """A topic with an invalid name is never created, because the name would become a folder's name. A null name without an
    id is invalid, too."""
    broker = Broker(*THREE)
    answer = broker.topic(name)
    assert (answer.error_code, answer.name) == (ErrorCode.INVALID_TOPIC_EXCEPTION, name or "")
    assert broker.topics.asked == []


def test_fenced_brokers_are_described_if_asked_for() -> None:
    """They are marked as fenced. A broker that lacks the client's listener is left out in any case."""
    broker = Broker(*THREE[:2], on_listeners(3, "PLAINTEXT", fenced=True), on_listeners(4, "OTHER", fenced=True))
    assert [(each.broker_id, each.is_fenced) for each in broker.describe_cluster().brokers] == [(1, False), (2, False)]
    assert [(each.broker_id, each.host, each.is_fenced) for each in broker.describe_cluster(fenced=True).brokers] == [
        (1, "host1", False),
        (2, "host2", False),
        (3, "plaintext-3", True),
    ]


def test_internal_topics_are_marked() -> None:
    """Internal topics are marked, so that clients can hide them from their users."""
    broker = Broker(*THREE, topic(1, "__consumer_offsets"), topic(2, "plain"))
    assert [each.is_internal for each in broker.ask(everything=True).topics] == [True, False]


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_every_answer_can_be_sent_in_every_version(version: int) -> None:
    """The answer has a known, an unknown and an invalid topic, and partitions without a leader or with a leader that the
    client cannot reach. An answer that cannot be encoded would end the broker."""
    broker = Broker(
        *THREE,
        on_listeners(4, "OTHER"),
        topic(1),
        partition(1, 0, [1, 2]),
        partition(1, 1, [4]),
        partition(1, 2, [1], leader=-1),
    )
    answers = broker.ask("topic-1", "unknown", "not/valid", version=version).topics
    assert [each.error_code for each in answers] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 17]
    if version >= 10:
        broker.ask(topic_id(1), UNKNOWN_ID, version=version)


# --- brokers ---------------------------------------------------------------------------------------------------------


def test_brokers_are_the_unfenced_ones_with_their_endpoint_on_the_clients_listener() -> None:
    """The client must be able to reach the endpoints in the answer, so they are those on the listener that it uses."""
    broker = Broker(
        on_listeners(3, "PLAINTEXT", "INTERNAL"),
        on_listeners(1, "PLAINTEXT"),
        on_listeners(2, "PLAINTEXT", fenced=True),
        on_listeners(4, "INTERNAL"),
    )
    plain = [(each.node_id, each.host, each.port) for each in broker.ask().brokers]
    assert plain == [(1, "plaintext-1", 9001), (3, "plaintext-3", 9003)]
    internal = [(each.node_id, each.host) for each in broker.ask(listener="INTERNAL").brokers]
    assert internal == [(3, "internal-3"), (4, "internal-4")]


def test_the_rack_is_told() -> None:
    """The answer has each broker's rack, because rack-aware clients read from nearby replicas."""
    assert [each.rack for each in Broker(*THREE).ask().brokers] == [None, "r", None]


def test_the_controller_is_a_broker_that_the_client_can_reach() -> None:
    """The controller in the answer is the broker itself if it is unfenced and on the client's listener, else any other such
    broker, else none."""
    assert Broker(*THREE).ask().controller_id == 1
    fenced = (register(1, directories=[D1], fenced=True), *THREE[1:])
    assert Broker(*fenced).ask().controller_id in (2, 3)
    elsewhere = (on_listeners(1, "INTERNAL"), on_listeners(2, "INTERNAL"), on_listeners(3, "PLAINTEXT"))
    assert Broker(*elsewhere).ask().controller_id == 3
    assert Broker(register(1, fenced=True)).ask().controller_id == -1


def test_the_cluster_id_is_told() -> None:
    """The answer has the cluster id, which kafka-cluster prints and clients log."""
    assert Broker(*THREE).ask().cluster_id == "the-cluster"


# --- leaders and replicas --------------------------------------------------------------------------------------------


def test_a_partition_with_its_leader() -> None:
    """The replicas are in order of preference, the ISR is in the order of the metadata record."""
    broker = Broker(*THREE, topic(1), partition(1, 0, [3, 1, 2], isr=[1, 3], leader=3, leader_epoch=7))
    found = broker.partition()
    assert (found.error_code, found.leader_id, found.leader_epoch) == (ErrorCode.NONE, 3, 7)
    assert (found.replica_nodes, found.isr_nodes, found.offline_replicas) == ([3, 1, 2], [1, 3], [])


def test_a_partition_without_a_leader() -> None:
    """The partition has LEADER_NOT_AVAILABLE, but still its leader epoch. The topic itself has no error."""
    broker = Broker(*THREE, topic(1), partition(1, 0, [1], leader=-1, leader_epoch=3))
    found = broker.partition()
    assert (found.error_code, found.leader_id, found.leader_epoch) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, 3)
    assert broker.topic("topic-1").error_code == ErrorCode.NONE


def test_a_leader_that_is_not_registered() -> None:
    """A leader that has just been unregistered counts as no leader."""
    found = Broker(register(1), topic(1), partition(1, 0, [2])).partition()
    assert (found.error_code, found.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert found.offline_replicas == [2]


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND), (12, 72)]
)
def test_a_leader_without_an_endpoint_on_this_listener(version: int, code: int) -> None:
    """The client cannot reach this leader. Old clients do not know LISTENER_NOT_FOUND and get LEADER_NOT_AVAILABLE."""
    broker = Broker(on_listeners(1, "PLAINTEXT"), on_listeners(2, "INTERNAL"), topic(1), partition(1, 0, [2, 1]))
    found = broker.partition(version=version)
    assert (found.error_code, found.leader_id) == (code, -1)
    assert found.offline_replicas == [2]
    assert broker.partition(version=version, listener="INTERNAL").leader_id == 2


def test_replicas_of_fenced_brokers_are_offline() -> None:
    """Fenced brokers are registered and may even be in the ISR, but clients cannot use their replicas."""
    broker = Broker(
        THREE[0], register(2, directories=[D2], fenced=True), topic(1), partition(1, 0, [1, 2], directories=[D1, D2])
    )
    assert broker.partition().offline_replicas == [2]


def test_version_0_leaves_out_the_replicas_that_clients_cannot_reach() -> None:
    """Clients of version 0 know no replica without its broker. The partition has REPLICA_NOT_AVAILABLE instead."""
    fenced, hidden = register(2, fenced=True), on_listeners(3, "INTERNAL")
    broker = Broker(
        register(1), fenced, hidden, topic(1), partition(1, 0, [3, 1, 2], isr=[1, 3], leader=1), partition(1, 1, [1])
    )
    first, second = broker.topic("topic-1", version=0).partitions
    assert (first.error_code, first.leader_id) == (ErrorCode.REPLICA_NOT_AVAILABLE, 1)
    assert (first.replica_nodes, first.isr_nodes) == ([1], [1])
    assert (second.error_code, second.replica_nodes) == (ErrorCode.NONE, [1])
    later, _ = broker.topic("topic-1", version=1).partitions
    assert (later.error_code, later.replica_nodes, later.isr_nodes) == (ErrorCode.NONE, [3, 1, 2], [1, 3])


@pytest.mark.parametrize(
    ("directory_id", "is_offline"),
    [(D1, False), (D2, True), (UNASSIGNED, False), (MIGRATING, False), (LOST, True)],
)
def test_replicas_in_offline_directories_are_offline(directory_id: DirectoryId, is_offline: bool) -> None:
    """The broker is registered and unfenced, but a replica is offline if its directory is (KIP-858), even if the broker has
    only one directory."""
    broker = Broker(register(1, directories=[D1]), topic(1), partition(1, 0, [1], directories=[directory_id]))
    assert broker.partition().offline_replicas == ([1] if is_offline else [])


def test_a_broker_that_named_no_directories_has_all_of_them() -> None:
    """A broker that registered below metadata.version 17 named no directories. Its replicas count as online in any directory
    except LOST."""
    broker = Broker(register(1), topic(1), partition(1, 0, [1], directories=[D2]), partition(1, 1, [1], directories=[LOST]))
    first, second = broker.topic("topic-1").partitions
    assert (first.offline_replicas, second.offline_replicas) == ([], [1])


# --- authorized operations -------------------------------------------------------------------------------------------


def test_operations_are_told_only_when_asked_for() -> None:
    """Authorized operations are left out unless the client asks for them. Those of a topic are also left out if the topic
    does not exist."""
    broker = Broker(*THREE, topic(1))
    plain = broker.ask("topic-1", version=8)
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    assert plain.cluster_authorized_operations == NOT_ASKED
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="topic-1"), MetadataRequestTopic(name="x")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    asked = broker.requests.handle_metadata(context(ApiKey.METADATA, 8), request)
    assert isinstance(asked, MetadataResponse)
    assert [each.topic_authorized_operations for each in asked.topics] == [TOPIC_OPERATIONS, NOT_ASKED]
    assert asked.cluster_authorized_operations == CLUSTER_OPERATIONS


# --- DescribeCluster -------------------------------------------------------------------------------------------------


def test_describe_cluster_names_unfenced_brokers() -> None:
    """The brokers and the controller are the same as in Metadata."""
    broker = Broker(*THREE[:2], register(3, fenced=True))
    response = broker.describe_cluster()
    assert (response.error_code, response.cluster_id, response.controller_id) == (ErrorCode.NONE, "the-cluster", 1)
    assert [(each.broker_id, each.host, each.rack) for each in response.brokers] == [(1, "host1", None), (2, "host2", "r")]
    assert response.cluster_authorized_operations == NOT_ASKED
    assert broker.describe_cluster(operations=True).cluster_authorized_operations == CLUSTER_OPERATIONS


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_describe_cluster_for_other_endpoints_is_refused(endpoint_type: int, code: ErrorCode) -> None:
    """Type 2 asks for controllers, which are on another network. Types above 2 do not exist."""
    with pytest.raises(ApiError) as refused:
        Broker(*THREE).describe_cluster(endpoint_type=endpoint_type)
    assert refused.value.code is code
