"""Forwarding admin requests to the controller, and when the client gets its answer."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.controller_link.forwarding import Forwarding, serialized_principal
from broker.controller_link.metadata_follower import MetadataFollower
from broker.requests.forwarded import ForwardedRequests
from common.ids import BrokerId, IncarnationId, LeaderEpoch, Offset, Uuid
from common.metadata.delta import MetadataDelta
from common.metadata.state import MetadataState
from common.net.request_context import ConnectAgain, Principal, RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode, encode
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.framing import parse_request, response_header_version
from common.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from common.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from common.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from common.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from common.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from common.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from common.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from common.protocol.messages.headers import RequestHeader, ResponseHeader
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from common.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from common.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from common.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from common.protocol.registry import APIS
from common.protocol.schema import Struct, message_schema
from common.raft.core.record_batches import CommittedBatch
from common.records.metadata_records import (
    FeatureLevelRecord,
    KnownRecord,
    NoOpRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    UnregisterBrokerRecord,
)
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld
from tests.simulation.loop import SimulatedLoop
from tests.unit.broker.fake_controller import ControllerSide
from tests.unit.broker.requests.contexts import NoMemory
from tests.unit.common.metadata.builders import partition, register, topic, topic_id

CORRELATION_ID = 77


async def _publish_nothing(_delta: MetadataDelta) -> None:
    """No replicas have to follow the metadata here."""


class Broker:
    """The part of a broker that forwards requests. `inner` records the requests in the envelopes, and `respond` returns the
    response to each."""

    def __init__(self, side: ControllerSide) -> None:
        self.side = side
        self.world = side.world
        self.state = MetadataState()
        self.follower = MetadataFollower(
            side.env,
            self.state,
            broker_id=BrokerId(1),
            incarnation_id=IncarnationId(Uuid(b"i" * 16)),
            publish=_publish_nothing,
            on_published=lambda *_: None,
        )
        forwarding = Forwarding(
            side.env, channel=side.channel, follower=self.follower, is_current_since=self._is_current_since
        )
        self.requests = ForwardedRequests(self.state, forwarding)
        # The time at which this broker last asked for what is committed, and the last offset of that.
        self.asked_ns, self.committed_offset = -1, Offset(-1)
        self.respond: Callable[[Any], Struct] = lambda _: CreateTopicsResponse()
        self.inner: list[Any] = []
        self._started_ns = side.env.now_ns()
        side.controller.answers[ApiKey.ENVELOPE] = self.open

    def _is_current_since(self, asked_ns: int) -> bool:
        return self.asked_ns >= asked_ns and self.follower.replayed_offset >= self.committed_offset

    @property
    def elapsed_ns(self) -> int:
        return self.side.env.now_ns() - self._started_ns

    def open(self, envelope: EnvelopeRequest) -> EnvelopeResponse:
        header, body = parse_request(memoryview(envelope.request_data))
        version = header.request_api_version
        request = decode(APIS[ApiKey(header.request_api_key)].request, body, version)
        self.inner.append(request)
        response = self.respond(request)
        head = encode(ResponseHeader(correlation_id=header.correlation_id), response_header_version(type(response), version))
        return EnvelopeResponse(response_data=head + encode(response, version))

    def commit(self, *records: KnownRecord) -> None:
        first = self.state.last_offset + 1
        last = Offset(first + len(records) - 1)
        self.follower.handle_commit(CommittedBatch(Offset(first), last, LeaderEpoch(1), 0, records))

    def send(self, request: Struct, version: int, *, peer: str = "10.0.0.9:50000") -> "asyncio.Task[Any]":
        """Hands the request to its handler, as the request server would."""
        context = context_of(request, version, peer=peer)
        handler = self.requests.handlers()[context.api_key]
        # This is not a task of the fake controller's group, because an exception of the handler would end that group. The
        # test awaits the task instead.
        return self.world.loop.create_task(_awaited(handler(context, request)))


async def _awaited(result: Any) -> Any:
    return await result


def context_of(request: Struct, version: int, *, peer: str = "10.0.0.9:50000") -> RequestContext:
    api_key = ApiKey(message_schema(type(request)).api_key or 0)
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=CORRELATION_ID, client_id="client"
    )
    flexible = version in message_schema(type(request)).flexible
    return RequestContext(
        api_key=api_key,
        api_version=version,
        correlation_id=CORRELATION_ID,
        client_id="client",
        listener_name="PLAINTEXT",
        peer=peer,
        local_host="10.0.0.1",
        principal=Principal("User", "alice"),
        received_ns=0,
        request_bytes=memoryview(encode(header, 2 if flexible else 1) + encode(request, version)),
        memory=NoMemory(),
        client_gone=asyncio.Future(loop=SimulatedLoop()),
    )


def run(scenario: Callable[[Broker], Coroutine[Any, Any, None]], *, start: bool = True) -> None:
    async def in_world(world: SimulatedWorld) -> None:
        async with ControllerSide(world, {ApiKey.ENVELOPE: lambda _: None}, start=start) as side:
            await scenario(Broker(side))

    SimulatedWorld(seed=1).run(in_world)


def create(*names: str, timeout_ms: int = 10_000, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def created(request: CreateTopicsRequest) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name) for topic in request.topics])


@pytest.mark.parametrize("version", [2, 5, 7])
def test_the_request_travels_whole_with_its_sender(version: int) -> None:
    """The request's header and body, its principal and the client's address reach the controller unchanged, in every header
    version."""

    async def scenario(broker: Broker) -> None:
        broker.respond = created
        request = create("a", validate_only=True)
        response = await broker.send(request, version)
        assert response.topics[0].name == "a"
        assert broker.inner == [request]
        (envelope,) = broker.side.controller.requests
        assert bytes(envelope.request_data) == bytes(context_of(request, version).request_bytes)
        # A two-byte version, then the compact fields of DefaultPrincipalData: "User", "alice", no token, no tags.
        assert bytes(envelope.request_principal) == b"\x00\x00" + b"\x05User" + b"\x06alice" + b"\x00" + b"\x00"
        assert bytes(envelope.client_host_address) == bytes([10, 0, 0, 9])

    run(scenario)


def test_the_serialized_principal_is_kafkas() -> None:
    """The bytes are the same as those of DefaultKafkaPrincipalBuilder, because an Apache Kafka controller must be able to
    read them."""
    assert serialized_principal(context_of(create("a"), 7)) == b"\x00\x00\x05User\x06alice\x00\x00"


@pytest.mark.parametrize(
    ("peer", "address"), [("[::1]:5", bytes(15) + b"\x01"), ("::1:5", bytes(15) + b"\x01"), ("host:5", b"\x7f\x00\x00\x01")]
)
def test_the_address_of_the_client(peer: str, address: bytes) -> None:
    """An IPv6 address is sent as sixteen bytes, with or without brackets in the peer's name. For a name that is not an
    address, 127.0.0.1 is sent."""

    async def scenario(broker: Broker) -> None:
        broker.respond = created
        await broker.send(create("a", validate_only=True), 7, peer=peer)
        assert bytes(broker.side.controller.requests[0].client_host_address) == address

    run(scenario)


def test_a_created_topic_is_answered_when_this_broker_knows_it() -> None:
    """The client may send its next request to this broker, so the answer waits until the broker's image has all the topics.
    Unrelated commits do not end the wait."""

    async def scenario(broker: Broker) -> None:
        broker.respond = created
        answering = broker.send(create("topic-1", "topic-2"), 7)
        await broker.world.sleep(1)
        assert not answering.done()
        broker.commit(topic(1))
        broker.commit(NoOpRecord())
        await broker.world.sleep(1)
        assert not answering.done()
        broker.commit(topic(2))
        await broker.world.sleep(0.001)
        assert answering.done()
        assert [result.error_code for result in (await answering).topics] == [ErrorCode.NONE, ErrorCode.NONE]

    run(scenario)


def test_an_older_topic_of_the_name_is_not_the_created_one() -> None:
    """The old topic was deleted at another broker, and this broker has not seen that yet. If it answered now, the client
    would find the old topic here."""

    async def scenario(broker: Broker) -> None:
        broker.commit(topic(1))
        broker.respond = lambda _: CreateTopicsResponse(topics=[CreatableTopicResult(name="topic-1", topic_id=topic_id(2))])
        answering = broker.send(create("topic-1"), 7)
        await broker.world.sleep(1)
        assert not answering.done()
        broker.commit(RemoveTopicRecord(topic_id=topic_id(1)), topic(2, "topic-1"))
        await broker.world.sleep(0.001)
        assert answering.done()

    run(scenario)


def test_a_change_that_was_taken_back_is_not_waited_for() -> None:
    """Another client has deleted the topic before this broker saw it. The answer comes as soon as the broker has all that
    was committed when the controller answered, and not at the end of the timeout."""

    async def scenario(broker: Broker) -> None:
        broker.respond = created
        answering = broker.send(create("topic-1"), 7)
        await broker.world.sleep(1)
        broker.asked_ns, broker.committed_offset = broker.side.env.now_ns(), Offset(2)
        broker.commit(topic(1), RemoveTopicRecord(topic_id=topic_id(1)))
        await broker.world.sleep(1)
        assert not answering.done()
        broker.commit(NoOpRecord())
        await broker.world.sleep(0.001)
        assert answering.done()

    run(scenario)


def test_what_failed_or_only_validated_has_nothing_to_wait_for() -> None:
    """A topic that was refused or only validated never appears in the image, so the answer is not delayed."""

    async def scenario(broker: Broker) -> None:
        broker.respond = lambda request: CreateTopicsResponse(
            topics=[
                CreatableTopicResult(name=topic.name, error_code=ErrorCode.TOPIC_ALREADY_EXISTS) for topic in request.topics
            ]
        )
        response = await broker.send(create("a"), 7)
        assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        broker.respond = created
        await broker.send(create("a", validate_only=True), 7)
        assert broker.elapsed_ns < NS_PER_S

    run(scenario)


def test_waiting_for_the_image_is_bounded_by_the_requests_timeout() -> None:
    """The topic exists, so the answer is a success even if this broker's image lags behind."""

    async def scenario(broker: Broker) -> None:
        broker.respond = created
        response = await broker.send(create("a", timeout_ms=3000), 7)
        assert response.topics[0].error_code == ErrorCode.NONE
        assert broker.elapsed_ns == 3 * NS_PER_S

    run(scenario)


def test_a_client_that_does_not_want_to_wait_is_answered_as_soon_as_the_controller_has() -> None:
    """With a timeout of 0 the controller still gets the request, but the broker does not wait for its own image."""

    async def scenario(broker: Broker) -> None:
        broker.respond = created
        response = await broker.send(create("a", timeout_ms=0), 7)
        assert response.topics[0].error_code == ErrorCode.NONE
        assert broker.elapsed_ns < NS_PER_S

    run(scenario)


def test_without_a_controller_the_request_times_out() -> None:
    """After the client's timeout, and never later, the request gets an error that clients retry."""

    async def scenario(broker: Broker) -> None:
        with pytest.raises(ApiError) as caught:
            await broker.send(create("a", timeout_ms=2000), 7)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert broker.elapsed_ns == 2 * NS_PER_S

    run(scenario, start=False)


def test_an_impatient_client_does_not_cost_the_others_their_connection() -> None:
    """Two requests wait for a slow controller. One times out early. The other is still answered, and its topic creation is
    not sent a second time."""

    async def scenario(broker: Broker) -> None:
        async def slowly(envelope: EnvelopeRequest) -> EnvelopeResponse:
            await broker.world.sleep(5)
            return broker.open(envelope)

        broker.respond = created
        broker.side.controller.answers[ApiKey.ENVELOPE] = slowly
        patient = broker.send(create("a", timeout_ms=20_000, validate_only=True), 7)
        impatient = broker.send(create("b", timeout_ms=100), 7)
        with pytest.raises(ApiError, match="REQUEST_TIMED_OUT"):
            await impatient
        assert (await patient).topics[0].name == "a"
        assert len(broker.side.controller.requests) == 2

    run(scenario)


def test_another_controller_is_looked_for_when_this_one_does_not_lead_any_more() -> None:
    """NOT_CONTROLLER is the error of the envelope, not of the client's request. The broker retries, and the client never
    gets the error."""

    async def scenario(broker: Broker) -> None:
        broker.respond = created
        refusals = [ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER]
        broker.side.controller.answers[ApiKey.ENVELOPE] = lambda envelope: (
            EnvelopeResponse(error_code=refusals.pop()) if refusals else broker.open(envelope)
        )
        response = await broker.send(create("a", validate_only=True), 7)
        assert response.topics[0].error_code == ErrorCode.NONE
        assert len(broker.side.controller.requests) == 3

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "CLUSTER_AUTHORIZATION_FAILED"),
        (EnvelopeResponse(response_data=None), "refused"),
        (EnvelopeResponse(response_data=b"\x00\x00\x00\x4d\x00\xff"), "cannot be read"),
    ],
)
def test_an_answer_that_is_none_is_an_error_of_the_server(answer: EnvelopeResponse, reason: str) -> None:
    """If the controller refuses the envelope, or if the response in it is missing or unreadable, the client gets an error
    and the broker keeps running."""

    async def scenario(broker: Broker) -> None:
        broker.side.controller.answers[ApiKey.ENVELOPE] = lambda _: answer
        with pytest.raises(ApiError, match=reason) as caught:
            await broker.send(create("a"), 7)
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR

    run(scenario)


def test_a_version_that_the_controller_does_not_serve_ends_the_connection() -> None:
    """An older controller has become active since the client asked this broker for its versions. As in Apache Kafka, the
    client connects again, and is offered what that controller serves."""

    async def scenario(broker: Broker) -> None:
        refusal = EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        broker.side.controller.answers[ApiKey.ENVELOPE] = lambda _: refusal
        with pytest.raises(ConnectAgain, match="does not serve version 7 of CREATE_TOPICS"):
            await broker.send(create("a"), 7)
        assert ApiKey.ENVELOPE in broker.side.channel.served_versions

    run(scenario)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_deleted_topic_is_answered_when_it_is_gone_here(by_id: bool) -> None:
    """Up to version 5, the request names topics, and the answer has no ids. In version 6, the request has names or ids, and
    the answer has both."""
    version = 6 if by_id else 5
    request = (
        DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id(1))], timeout_ms=10_000)
        if by_id
        else DeleteTopicsRequest(topic_names=["topic-1"], timeout_ms=10_000)
    )

    async def scenario(broker: Broker) -> None:
        broker.commit(topic(1), partition(1, 0, [1]), topic(2))
        broker.respond = lambda _: DeleteTopicsResponse(
            responses=[DeletableTopicResult(name="topic-1", topic_id=topic_id(1))]
        )
        answering = broker.send(request, version)
        await broker.world.sleep(1)
        assert not answering.done()
        broker.commit(RemoveTopicRecord(topic_id=topic_id(1)))
        await broker.world.sleep(0.001)
        assert answering.done()

    run(scenario)


def test_a_topic_that_this_broker_never_knew_is_gone_already() -> None:
    """The broker's image lags behind and does not have the topic, so there is nothing to wait for."""

    async def scenario(broker: Broker) -> None:
        broker.respond = lambda _: DeleteTopicsResponse(responses=[DeletableTopicResult(name="new")])
        await broker.send(DeleteTopicsRequest(topic_names=["new"], timeout_ms=10_000), 5)
        assert broker.elapsed_ns < NS_PER_S

    run(scenario)


def test_a_deleted_and_recreated_topic_counts_as_gone() -> None:
    """The name exists again, but the topic with the deleted id does not."""

    async def scenario(broker: Broker) -> None:
        broker.commit(topic(1))
        broker.respond = lambda _: DeleteTopicsResponse(responses=[DeletableTopicResult(name="topic-1")])
        answering = broker.send(DeleteTopicsRequest(topic_names=["topic-1"], timeout_ms=10_000), 5)
        await broker.world.sleep(1)
        assert not answering.done()
        broker.commit(RemoveTopicRecord(topic_id=topic_id(1)), topic(2, "topic-1"))
        await broker.world.sleep(0.001)
        assert answering.done()

    run(scenario)


def test_an_unregistered_broker_is_answered_when_it_is_gone_here() -> None:
    """A successful answer waits until the broker is gone from the image. A refusal is answered at once."""

    async def scenario(broker: Broker) -> None:
        broker.commit(register(2, epoch=100))
        broker.respond = lambda _: UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
        response = await broker.send(UnregisterBrokerRequest(broker_id=2), 0)
        assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        broker.respond = lambda _: UnregisterBrokerResponse()
        answering = broker.send(UnregisterBrokerRequest(broker_id=2), 0)
        await broker.world.sleep(1)
        assert not answering.done()
        broker.commit(UnregisterBrokerRecord(broker_id=2, broker_epoch=100))
        assert (await answering).error_code == ErrorCode.NONE
        assert BrokerId(2) not in broker.state.brokers

    run(scenario)


def test_the_quorum_s_voters_are_changed_by_the_controller() -> None:
    """Brokers do not look at the voters or at the registrations of controllers, so the answer is passed on at once."""

    async def scenario(broker: Broker) -> None:
        broker.respond = lambda _: AddRaftVoterResponse(error_code=ErrorCode.DUPLICATE_VOTER, error_message="it votes")
        added = await broker.send(AddRaftVoterRequest(voter_id=102, timeout_ms=10_000), 1)
        assert (added.error_code, added.error_message) == (ErrorCode.DUPLICATE_VOTER, "it votes")
        broker.respond = lambda _: RemoveRaftVoterResponse(error_code=ErrorCode.VOTER_NOT_FOUND)
        removed = await broker.send(RemoveRaftVoterRequest(voter_id=102), 0)
        assert removed.error_code == ErrorCode.VOTER_NOT_FOUND
        broker.respond = lambda _: UnregisterControllerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message="none")
        forgotten = await broker.send(UnregisterControllerRequest(controller_id=102), 0)
        assert (forgotten.error_code, forgotten.error_message) == (ErrorCode.INVALID_REQUEST, "none")
        assert broker.elapsed_ns < NS_PER_S

    run(scenario)


def test_an_updated_feature_is_answered_when_it_is_visible_here() -> None:
    """A successful answer waits until this broker's image has the level. A dry run and a refusal are answered at once."""

    async def scenario(broker: Broker) -> None:
        updates = [FeatureUpdateKey(feature="metadata.version", max_version_level=22)]
        broker.respond = lambda _: UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION)
        response = await broker.send(UpdateFeaturesRequest(feature_updates=updates), 2)
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        broker.respond = lambda _: UpdateFeaturesResponse()
        await broker.send(UpdateFeaturesRequest(feature_updates=updates, validate_only=True), 1)
        answering = broker.send(UpdateFeaturesRequest(feature_updates=updates), 1)
        await broker.world.sleep(1)
        assert not answering.done()
        broker.commit(FeatureLevelRecord(name="metadata.version", feature_level=22))
        assert (await answering).error_code == ErrorCode.NONE

    run(scenario)


def test_describe_quorum_is_answered_by_the_leader_alone() -> None:
    """DescribeQuorum changes no metadata, so the broker has nothing to wait for."""

    async def scenario(broker: Broker) -> None:
        broker.respond = lambda _: DescribeQuorumResponse(error_code=ErrorCode.NONE)
        response = await broker.send(DescribeQuorumRequest(), 2)
        assert isinstance(response, DescribeQuorumResponse)

    run(scenario)


CREATE_PARTITIONS = CreatePartitionsRequest(
    topics=[CreatePartitionsTopic(name="topic-1", count=2, assignments=None)], timeout_ms=10_000
)
PARTITIONS_CREATED = CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="topic-1")])
ELECTED = ElectLeadersResponse(
    replica_election_results=[ReplicaElectionResult(topic="topic-1", partition_result=[PartitionResult(partition_id=0)])]
)
REASSIGNED = AlterPartitionReassignmentsResponse(
    responses=[ReassignableTopicResponse(name="topic-1", partitions=[ReassignablePartitionResponse(partition_index=0)])]
)


def changed(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, **fields)


def elect(*, everywhere: bool = False) -> ElectLeadersRequest:
    named = None if everywhere else [TopicPartitions(topic="topic-1", partitions=[0])]
    return ElectLeadersRequest(topic_partitions=named, timeout_ms=10_000)


def reassign(replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    partitions = [ReassignablePartition(partition_index=0, replicas=replicas)]
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="topic-1", partitions=partitions)], timeout_ms=10_000
    )


@pytest.mark.parametrize(
    ("request_", "response", "change"),
    [
        pytest.param(CREATE_PARTITIONS, PARTITIONS_CREATED, partition(1, 1, [1]), id="created partitions"),
        pytest.param(CREATE_PARTITIONS, PARTITIONS_CREATED, RemoveTopicRecord(topic_id=topic_id(1)), id="topic gone"),
        pytest.param(elect(), ELECTED, changed(leader=2), id="elected leader"),
        pytest.param(elect(everywhere=True), ELECTED, changed(leader=2), id="elected leaders everywhere"),
        pytest.param(reassign([2, 3]), REASSIGNED, changed(replicas=[2, 3, 1]), id="new replicas"),
        pytest.param(reassign([2, 3]), REASSIGNED, changed(replicas=[1, 2, 4]), id="replaced meanwhile"),
        pytest.param(reassign(None), REASSIGNED, changed(replicas=[1], isr=[1]), id="cancelled"),
        pytest.param(reassign([1]), REASSIGNED, changed(removing_replicas=[2]), id="to be removed"),
        pytest.param(reassign(None), REASSIGNED, RemoveTopicRecord(topic_id=topic_id(1)), id="topic gone meanwhile"),
    ],
)
def test_changed_partitions_are_answered_when_they_are_visible_here(
    request_: Struct, response: Struct, change: KnownRecord
) -> None:
    """The response waits until the broker's metadata has this change, or a later one that replaced it. Other changes do not
    count."""

    async def scenario(broker: Broker) -> None:
        broker.commit(topic(1), topic(2), partition(1, 0, [1, 2]), partition(2, 0, [1, 2]))
        broker.respond = lambda _: response
        answering = broker.send(request_, 1 if isinstance(request_, ElectLeadersRequest) else 0)
        await broker.world.sleep(1)
        broker.commit(PartitionChangeRecord(topic_id=topic_id(1), partition_id=0, isr=[2, 1]))
        await broker.world.sleep(1)
        assert not answering.done()
        broker.commit(change)
        await broker.world.sleep(0.001)
        assert answering.done()

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        pytest.param(
            CreatePartitionsRequest(topics=CREATE_PARTITIONS.topics, timeout_ms=10_000, validate_only=True),
            PARTITIONS_CREATED,
            id="validated",
        ),
        pytest.param(
            CREATE_PARTITIONS,
            CreatePartitionsResponse(
                results=[CreatePartitionsTopicResult(name="topic-1", error_code=ErrorCode.INVALID_PARTITIONS)]
            ),
            id="refused",
        ),
        pytest.param(elect(everywhere=True), ElectLeadersResponse(), id="no election needed"),
        pytest.param(reassign([1, 2]), REASSIGNED, id="the replicas that are there"),
        pytest.param(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse(), id="listed"),
    ],
)
def test_what_changes_no_partition_has_nothing_to_wait_for(request_: Struct, response: Struct) -> None:
    async def scenario(broker: Broker) -> None:
        broker.commit(topic(1), partition(1, 0, [1, 2]))
        broker.respond = lambda _: response
        assert await broker.send(request_, 0) == response
        assert broker.elapsed_ns < NS_PER_S

    run(scenario)
