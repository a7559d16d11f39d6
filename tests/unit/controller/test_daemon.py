"""The whole controller over the wire: real quorum driver, simulated disk and network."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

import pytest

from common.ids import NO_LEADER, BrokerId, Offset, TopicId, Uuid
from common.metadata.metadata_version import (
    CONTROLLER_FEATURES,
    CONTROLLER_REGISTRATION_LEVEL,
    DIRECTORY_NUMBERING_FEATURE,
    KRAFT_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
)
from common.metadata.registrations import BrokerEndpoint
from common.metadata.snapshot import generate_snapshot_records
from common.metadata.state import MetadataState
from common.protocol.api_keys import ApiKey
from common.protocol.authorized_operations import NOT_ASKED
from common.protocol.codec import encode, encode_with_version
from common.protocol.errors import ErrorCode
from common.protocol.framing import request_header_version
from common.protocol.messages import alter_configs, incremental_alter_configs
from common.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from common.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
)
from common.protocol.messages.alter_partition import RequestPartitionData as AlterPartitionData
from common.protocol.messages.alter_partition import RequestTopicData as AlterTopicData
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from common.protocol.messages.api_versions import ApiVersionsRequest
from common.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from common.protocol.messages.controller_registration import ControllerRegistrationRequest
from common.protocol.messages.controller_registration import Feature as ControllerFeature
from common.protocol.messages.controller_registration import Listener as ControllerListener
from common.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from common.protocol.messages.default_principal_data import DefaultPrincipalData
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from common.protocol.messages.describe_cluster import DescribeClusterRequest
from common.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from common.protocol.messages.envelope import EnvelopeRequest
from common.protocol.messages.headers import RequestHeader
from common.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from common.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from common.protocol.registry import APIS
from common.protocol.schema import Struct, message_schema
from common.raft.bootstrap import bootstrap_records, make_bootstrap_checkpoint
from common.raft.listener import LoadedSnapshot
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import FeatureLevelRecord, KnownRecord, NoOpRecord, RegisterControllerRecord
from common.slices import ELEMENTS_PER_SLICE, result_in_slices
from common.time_units import NS_PER_S
from controller import requests
from controller.core.result import ControllerResult
from controller.core.turn import Turn
from controller.requests import REFUSALS_MAX
from tests.response_frames import parse_response
from tests.simulation.environment import SimulatedWorld
from tests.unit.controller.nodes import CLUSTER_ID, Client, ControllerNode, directory

Scenario = Callable[[SimulatedWorld, ControllerNode, Client], Awaitable[None]]


def run(scenario: Scenario, properties: Mapping[str, str] | None = None) -> None:
    """Runs the scenario with an active controller and a client."""

    async def in_world(world: SimulatedWorld) -> None:
        node = await ControllerNode(world, properties).start()
        async with asyncio.TaskGroup() as task_group:
            client = Client(world, task_group)
            await scenario(world, node, client)
            client.close()

    SimulatedWorld(seed=1).run(in_world)


def create(name: str, *assignments: list[int], timeout_ms: int = 10_000) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
                    for index, brokers in enumerate(assignments)
                ],
            )
        ],
        timeout_ms=timeout_ms,
    )


async def topic(client: Client, name: str, *assignments: list[int]) -> TopicId:
    response = await client.send(create(name, *assignments))
    assert response.topics[0].error_code == ErrorCode.NONE
    return TopicId(response.topics[0].topic_id)


def assign(client: Client, broker_id: int, where: str, topic_id: TopicId, *indexes: int) -> AssignReplicasToDirsRequest:
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=client.epochs[broker_id],
        directories=[
            RequestDirectoryData(
                id=directory(where),
                topics=[
                    RequestTopicData(
                        topic_id=topic_id, partitions=[RequestPartitionData(partition_index=index) for index in indexes]
                    )
                ],
            )
        ],
    )


def test_a_controller_formatted_at_a_level_that_it_does_not_know_ends() -> None:
    """The bootstrap file was written by another release. The node logs one line, exits with status 1 and writes nothing."""

    async def in_world(world: SimulatedWorld) -> None:
        node = ControllerNode(world)
        disk = world.disk(node.config.metadata_log_dir)
        disk.write("bootstrap.checkpoint", make_bootstrap_checkpoint(bootstrap_records(34)))
        async with asyncio.TaskGroup() as group:
            start = group.create_task(node.start())
            await world.event("metadata_replay_failed")
            start.cancel()
        (event,) = world.events_named("metadata_replay_failed")
        assert "feature metadata.version is finalized at level 34, this node supports 1 to 33" in event.fields["reason"]
        assert node.env.exit_code == 1
        assert not world.events_named("controller_active")

    SimulatedWorld(seed=1).run(in_world)


def test_a_controller_describes_configurations() -> None:
    """Topics, the defaults of all brokers, and the controller's own configuration. The configuration of a broker has to be
    asked of that broker."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        await topic(client, "t", [1])
        change = incremental_alter_configs.AlterConfigsResource(
            resource_type=2,
            resource_name="t",
            configs=[incremental_alter_configs.AlterableConfig(name="retention.ms", value="5")],
        )
        await client.send(incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[change]))
        resources = [
            DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
            for resource_type, name, keys in (
                (2, "t", ["retention.ms"]),
                (2, "unknown", None),
                (4, "", None),
                (4, "1", None),
                (4, str(node.config.node_id), ["process.roles"]),
            )
        ]
        results = (await client.send(DescribeConfigsRequest(resources=resources))).results
        assert [result.error_code for result in results] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
        ]
        assert [(entry.name, entry.value) for result in results for entry in result.configs] == [
            ("retention.ms", "5"),
            ("process.roles", "controller"),
        ]

    run(scenario)


def test_a_controller_that_was_stopped_fences_nobody_for_it() -> None:
    """The controller is stopped for 20 s, as by SIGSTOP or in a suspended VM. It may not have received the brokers'
    heartbeats during that time, so the 20 s do not count toward the session timeout. Silence before and after does count."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        await world.sleep(1)
        world.pause("controller")
        await world.sleep(20)
        world.resume("controller")
        event = await world.event("controller_was_stopped")
        assert 19_500 < event.fields["absence_ms"] <= 20_000
        await world.sleep(7)
        assert not node.daemon.controller.state.brokers[BrokerId(1)].fenced
        await world.sleep(2)
        assert node.daemon.controller.state.brokers[BrokerId(1)].fenced

    run(scenario)


def test_a_slow_commit_is_no_absence() -> None:
    """While two brokers are fenced, the metadata disk hangs for longer than the shortest absence that counts. Waiting for
    the commit is not an absence, so the third broker, which falls silent meanwhile, is fenced on time."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        await client.start(2, "b")
        await world.sleep(4)
        await client.start(3, "c")
        last_heard_ns = world.now_ns()
        await world.sleep(4.9)
        disk = world.disk(node.config.metadata_log_dir)
        disk.hang()
        await world.sleep(3.5)
        disk.thaw()
        brokers = node.daemon.controller.state.brokers
        await world.until(lambda: all(brokers[BrokerId(broker_id)].fenced for broker_id in (1, 2, 3)))
        assert 8.9 * NS_PER_S < world.now_ns() - last_heard_ns < 9.5 * NS_PER_S
        assert not world.events_named("controller_was_stopped")

    run(scenario)


def test_a_cluster_lives_and_a_disk_dies() -> None:
    """Brokers register, a topic is created, replicas are assigned, and a directory fails: the other replica leads once the
    heartbeat is answered. Every response is sent after its commit. A second listener rebuilds the same state from the
    log."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a", "b")
        await client.start(2, "c", "d")
        topic_id = await topic(client, "t", [1, 2], [1, 2], [2, 1])
        await client.send(assign(client, 1, "a", topic_id, 0, 2))
        await client.send(assign(client, 1, "b", topic_id, 1))
        response = await client.heartbeat(1, offline=["a"])
        assert response.error_code == ErrorCode.NONE
        state = node.daemon.controller.state
        partitions = state.topics[topic_id].partitions
        assert [(partition.leader, list(partition.isr)) for partition in partitions.values()] == [
            (2, [2]),
            (1, [1, 2]),
            (2, [2]),
        ]
        assert node.daemon.controller.committed_offset >= state.last_offset
        for name in ("broker_registered", "broker_unfenced", "topic_created", "leaders_moved", "controller_active"):
            assert world.events_named(name, "controller"), name
        assert world.events_named("leaders_moved")[0].fields["directory_id"] == directory("a")
        follower = Follower()
        node.driver.register(follower)
        await world.until(lambda: follower.state.last_offset >= state.last_offset)
        assert follower.state == state

    run(scenario)


class Follower:
    """A second listener that replays what is committed."""

    def __init__(self) -> None:
        self.state = MetadataState()
        self.records: list[KnownRecord] = []

    def handle_commit(self, batch: Any) -> None:
        for offset, record in enumerate(batch.records, start=batch.base_offset):
            self.records.append(record)
            self.state.replay(record, offset=Offset(offset))

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.state = MetadataState()
        for record in snapshot.records:
            self.state.replay(record, offset=snapshot.end_offset)

    def handle_leader_change(self, leader: object) -> None:
        pass


def generated(state: MetadataState) -> list[KnownRecord]:
    """Returns the records of a snapshot of the state, without the registrations of controllers."""
    records = [written.record for written in generate_snapshot_records(state)]
    return [record for record in records if not isinstance(record, RegisterControllerRecord)]


def test_a_restarted_controller_knows_everything_it_knew() -> None:
    """After kill -9 and a restart, the state is equal but for the controller's own registration, the brokers' sessions start
    over, and the quorum's epoch is higher."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a", "b")
        await client.start(2, "c", "d")
        await topic(client, "t", [1, 2], [2, 1])
        await client.heartbeat(1, offline=["a"])
        before, epoch = node.daemon.controller.state, node.daemon.controller.leader.epoch
        await node.restart()
        client.reconnect()
        after = node.daemon.controller.state
        assert after is not before
        # The next incarnation of the controller registers itself anew.
        await world.until(lambda: after.controllers[100] != before.controllers[100])
        assert generated(after) == generated(before)
        assert node.daemon.controller.leader.epoch > epoch
        assert not (await client.heartbeat(2)).is_fenced
        await world.sleep(8)
        assert not after.brokers[BrokerId(1)].fenced
        assert not (await client.heartbeat(2)).is_fenced
        await world.sleep(2)
        assert after.brokers[BrokerId(1)].fenced
        assert not after.brokers[BrokerId(2)].fenced

    run(scenario)


async def allocate_producer_ids(client: Client, broker_id: int) -> range:
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=client.epochs[broker_id])
    response = await client.send(request)
    assert response.error_code == ErrorCode.NONE
    return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)


def test_no_producer_id_is_allocated_twice() -> None:
    """Not after kill -9, neither from the log nor from a snapshot, and not to a broker that was restarted."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        await client.start(2, "b")
        blocks = [await allocate_producer_ids(client, broker_id) for broker_id in (1, 2)]
        await node.restart()
        client.reconnect()
        blocks.append(await allocate_producer_ids(client, 1))
        assert await node.driver.write_snapshot() is not None
        await node.restart()
        client.reconnect()
        assert world.events_named("metadata_snapshot_loaded", "controller")
        await client.register(1, "a", incarnation=2)
        blocks.append(await allocate_producer_ids(client, 1))
        assert blocks == [range(first, first + 1000) for first in (0, 1000, 2000, 3000)]

    run(scenario)


def test_a_controller_that_starts_from_a_snapshot() -> None:
    """After a snapshot the old log is deleted. The state is restored from the snapshot, including lost directories."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a", "b")
        topic_id = await topic(client, "t", [1])
        await client.heartbeat(1, offline=["a"])
        assert await node.driver.write_snapshot() is not None
        before = node.daemon.controller.state
        await node.restart()
        client.reconnect()
        assert world.events_named("metadata_snapshot_loaded", "controller")
        after = node.daemon.controller.state
        assert generated(after) == generated(before)
        assert after.brokers[BrokerId(1)].lost_directories == (directory("a"),)
        response = await client.heartbeat(1, offline=["a"])
        assert response.error_code == ErrorCode.NONE
        assert topic_id in after.topics

    run(scenario)


def test_session_timeout_and_restart_of_a_broker() -> None:
    """A killed broker that returns is refused as a duplicate until its session expires, then registers as a new
    incarnation."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        assert (await client.register(1, "a", incarnation=2)).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await world.sleep(9.1)
        assert world.events_named("broker_fenced")[0].fields["broker_id"] == 1
        old_epoch = client.epochs[1]
        assert (await client.register(1, "a", incarnation=2)).error_code == ErrorCode.NONE
        assert client.epochs[1] > old_epoch
        client.epochs[1] = old_epoch
        assert (await client.heartbeat(1)).error_code == ErrorCode.STALE_BROKER_EPOCH

    run(scenario)


def test_alter_partition_and_deletion_over_the_wire() -> None:
    """A leader shrinks the ISR, topics are deleted by name and by id, a broker is unregistered."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        await client.start(2, "b")
        topic_id = await topic(client, "t", [1, 2])
        request = AlterPartitionRequest(
            broker_id=1,
            broker_epoch=client.epochs[1],
            topics=[
                AlterTopicData(
                    topic_id=topic_id,
                    partitions=[AlterPartitionData(partition_index=0, new_isr_with_epochs=[BrokerState(broker_id=1)])],
                )
            ],
        )
        answered = (await client.send(request)).topics[0].partitions[0]
        assert (answered.error_code, answered.isr, answered.partition_epoch) == (ErrorCode.NONE, [1], 1)
        gone = await client.send(UnregisterBrokerRequest(broker_id=2))
        assert gone == UnregisterBrokerResponse()
        unknown = await client.send(UnregisterBrokerRequest(broker_id=2))
        assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert unknown.error_message
        deleted = await client.send(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout_ms=1000))
        assert deleted.responses[0].name == "t"
        assert node.daemon.controller.state.topics == {}

    run(scenario)


@pytest.mark.parametrize(
    ("version", "ineligible", "unknown", "new_leader"),
    [
        (version, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.FENCED_LEADER_EPOCH)
        for version in (0, 1)
    ]
    + [
        (version, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NEW_LEADER_ELECTED)
        for version in (2, 3)
    ],
)
def test_alter_partition_answers_with_errors_that_the_version_knows(
    version: int, ineligible: ErrorCode, unknown: ErrorCode, new_leader: ErrorCode
) -> None:
    """KIP-841. Below version 2 topics have names, and a fenced member, an unknown topic and a leader that the change has
    removed get older errors. The change that removes the leader is recorded nevertheless."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        for broker_id, name in enumerate("abc", 1):
            await client.start(broker_id, name)
        topic_id = await topic(client, "t", [1, 2])
        moving_id = await topic(client, "moving", [1, 2])

        async def alter(name: str, id_: Uuid, isr: list[int]) -> Any:
            part = node.daemon.controller.state.partition(TopicId(id_), 0)
            data = AlterPartitionData(
                partition_index=0,
                partition_epoch=0 if part is None else part.partition_epoch,
                new_isr=isr,
                new_isr_with_epochs=[BrokerState(broker_id=member) for member in isr],
            )
            topics = [AlterTopicData(topic_name=name, topic_id=id_, partitions=[data])]
            request = AlterPartitionRequest(broker_id=1, broker_epoch=client.epochs[1], topics=topics)
            (answered,) = (await client.send(request, version=version)).topics
            assert (answered.topic_name, answered.topic_id) == ((name, bytes(16)) if version < 2 else ("", id_))
            return answered.partitions[0]

        shrunk = await alter("t", topic_id, [1])
        assert (shrunk.error_code, shrunk.isr, shrunk.partition_epoch) == (ErrorCode.NONE, [1], 1)
        await client.heartbeat(2, want_fence=True)
        assert (await alter("t", topic_id, [1, 2])).error_code == ineligible
        assert (await alter("none", Uuid(b"n" * 16), [1])).error_code == unknown
        await client.heartbeat(2)
        moved = ReassignableTopic(name="moving", partitions=[ReassignablePartition(partition_index=0, replicas=[2, 3])])
        await client.send(AlterPartitionReassignmentsRequest(topics=[moved]))
        assert (await alter("moving", moving_id, [1, 2, 3])).error_code == new_leader
        assert node.daemon.controller.state.topics[TopicId(moving_id)].partitions[0].replicas == (2, 3)

    run(scenario)


def test_configuration_over_the_wire() -> None:
    """The controller's listener serves both requests, for a topic and for any broker. After a restart, the committed changes
    are still there. Refused changes are not."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        await topic(client, "t", [1])
        change = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(
                    resource_type=4,
                    resource_name="1",
                    configs=[incremental_alter_configs.AlterableConfig(name="log.retention.ms", value="5")],
                )
            ]
        )
        assert [each.error_code for each in (await client.send(change)).responses] == [ErrorCode.NONE]
        replacement = alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(
                    resource_type=2,
                    resource_name=name,
                    configs=[alter_configs.AlterableConfig(name="retention.ms", value="6")],
                )
                for name in ("t", "none")
            ]
        )
        assert [each.error_code for each in (await client.send(replacement)).responses] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        expected = {(4, "1"): {"log.retention.ms": "5"}, (2, "t"): {"retention.ms": "6"}}
        assert node.daemon.controller.state.configs == expected
        await node.restart()
        client.reconnect()
        assert node.daemon.controller.state.configs == expected
        altered = world.events_named("config_altered", "controller")
        assert [(each.fields["resource_type"], each.fields["keys"]) for each in altered] == [
            ("broker", ["log.retention.ms"]),
            ("topic", ["retention.ms"]),
        ]

    run(scenario)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (1, ErrorCode.INVALID_REQUEST),
        (2, ErrorCode.INVALID_REQUEST),
        (3, ErrorCode.TOPIC_DELETION_DISABLED),
        (6, ErrorCode.TOPIC_DELETION_DISABLED),
    ],
)
def test_disabled_deletion_has_a_code_that_the_client_knows(version: int, code: ErrorCode) -> None:
    """TOPIC_DELETION_DISABLED exists since version 3 of DeleteTopics. The request is sent directly and through a broker."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        await topic(client, "t", [1])
        request = DeleteTopicsRequest(timeout_ms=1000)
        if version < 6:
            request.topic_names = ["t"]
        else:
            request.topics = [DeleteTopicState(name="t")]
        direct = await client.send(request, version=version)
        assert [(each.name, each.error_code) for each in direct.responses] == [("t", code)]
        forwarded = await client.send(envelope(request, version))
        _, inner = parse_response(DeleteTopicsResponse, forwarded.response_data, version)
        assert [(each.name, each.error_code) for each in inner.responses] == [("t", code)]
        assert "t" in node.daemon.controller.state.topic_ids

    run(scenario, {"delete.topic.enable": "false"})


def test_versions_features_and_cluster() -> None:
    """The client sends the requests that a broker or a tool sends first when it connects to a controller."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        response = await client.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        assert {entry.api_key for entry in response.api_keys} == set(node.daemon.handlers())
        assert [(feature.name, feature.max_version_level) for feature in response.finalized_features] == [
            (DIRECTORY_NUMBERING_FEATURE, 1),
            (METADATA_VERSION_FEATURE, 21),
        ]
        assert response.finalized_features_epoch >= 0
        assert (await client.send(ApiVersionsRequest())).error_code == ErrorCode.INVALID_REQUEST
        cluster = await client.send(DescribeClusterRequest(endpoint_type=2))
        assert (cluster.cluster_id, cluster.controller_id) == (CLUSTER_ID, 100)
        assert cluster.endpoint_type == 2
        assert [(each.broker_id, each.host, each.port) for each in cluster.brokers] == [(100, "controller", 9093)]
        assert cluster.cluster_authorized_operations == NOT_ASKED
        asked = await client.send(DescribeClusterRequest(endpoint_type=2, include_cluster_authorized_operations=True))
        assert asked.cluster_authorized_operations == 0b1_1111_1010_0000
        for endpoint_type, code in ((1, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
            refused = await client.send(DescribeClusterRequest(endpoint_type=endpoint_type))
            assert refused.error_code == code
        # The clients of version 0 know neither endpoint types nor their errors.
        assert (await client.send(DescribeClusterRequest(), version=0)).error_code == ErrorCode.INVALID_REQUEST

    run(scenario)


@pytest.mark.parametrize(("version", "is_listed"), [(3, False), (4, True)])
def test_features_that_begin_at_level_0_are_for_version_4(version: int, is_listed: bool) -> None:
    """Only ApiVersions version 4 lists features with a minimum level of 0, as on a broker: older clients reject that level
    (KIP-1022)."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        response = await client.send(request, version=version)
        listed = {feature.name for feature in response.supported_features}
        assert METADATA_VERSION_FEATURE in listed
        assert (KRAFT_VERSION_FEATURE in listed) is is_listed
        assert (DIRECTORY_NUMBERING_FEATURE in listed) is is_listed

    run(scenario)


def test_a_topic_that_is_not_committed_in_time() -> None:
    """The metadata disk hangs: the client gets REQUEST_TIMED_OUT, but the topic exists once the disk is back."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        disk = world.disk("/disks/controller")
        disk.hang()
        response = await client.send(create("t", [1], timeout_ms=500))
        assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        disk.thaw()
        assert not (await client.heartbeat(1)).is_fenced
        assert "t" in node.daemon.controller.state.topic_ids

    run(scenario)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_what_a_client_gives_no_time_is_not_carried_out(timeout_ms: int) -> None:
    """Apache Kafka drops such an operation too. It lists reassignments and updates features whatever the timeout."""

    async def scenario(_world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        response = await client.send(create("t", [1], timeout_ms=timeout_ms))
        assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        listed = await client.send(ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None))
        assert listed.error_code == ErrorCode.NONE
        update = FeatureUpdateKey(feature=METADATA_VERSION_FEATURE, max_version_level=22)
        updated = await client.send(UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=[update]))
        assert updated.error_code == ErrorCode.NONE
        assert node.daemon.controller.state.metadata_version == 22
        assert "t" not in node.daemon.controller.state.topic_ids

    run(scenario)


def test_an_idle_log_keeps_moving() -> None:
    """The controller writes NoOp records to an idle log, one per metadata.max.idle.interval.ms."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        follower = Follower()
        node.driver.register(follower)
        await world.sleep(5)
        assert 4 <= follower.records.count(NoOpRecord()) <= 6

    run(scenario, {"metadata.max.idle.interval.ms": "1000"})


def test_the_gauges_of_the_cluster_have_their_stock_names() -> None:
    """The gauges show the cluster's state under the names of Apache Kafka's metrics."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        await client.start(2, "b")
        await client.register(3, "c")
        await topic(client, "t", [1, 2], [1, 2])
        await topic(client, "u", [2])
        await client.heartbeat(2, want_fence=True)
        values = {sample.name.removeprefix("kafka_controller_kafkacontroller_"): sample for sample in node.daemon.metrics()}
        expected = {
            "activecontrollercount": 1,
            "activebrokercount": 1,
            "fencedbrokercount": 2,
            "globaltopiccount": 2,
            "globalpartitioncount": 3,
            "offlinepartitionscount": 1,
            "preferredreplicaimbalancecount": 1,
            "metadataerrorcount": 0,
            "newactivecontrollerscount": 1,
            "lastappliedrecordlagms": 0,
        }
        assert {name: values[name].value for name in expected} == expected
        assert values["lastcommittedrecordoffset"].value == node.driver.high_watermark - 1
        assert values["kafka_controller_controllerstats_uncleanleaderelections"].counter
        assert values["diskraft_awaited_replicas"].value == 0
        await client.heartbeat(2)
        again = {sample.name: sample.value for sample in node.daemon.metrics()}
        assert again["kafka_controller_kafkacontroller_offlinepartitionscount"] == 0
        assert again["kafka_controller_kafkacontroller_preferredreplicaimbalancecount"] == 0

    run(scenario)


# --- forwarded requests -----------------------------------------------------------------------------------------


def envelope(request: Struct, version: int, *, principal: bytes | None = None, address: bytes = bytes(4)) -> EnvelopeRequest:
    api_key = message_schema(type(request)).api_key
    assert api_key is not None
    header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=77, client_id="c")
    if principal is None:
        principal = encode_with_version(DefaultPrincipalData(type="User", name="alice"), 0)
    data = encode(header, request_header_version(type(request), version)) + encode(request, version)
    return EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address)


@pytest.mark.parametrize("version", [2, 5, 7])
def test_a_forwarded_creation_is_answered_in_the_inner_requests_version(version: int) -> None:
    """The response inside the Envelope has the version of the inner request."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        answer = await client.send(envelope(create("t", [1]), version))
        assert answer.error_code == ErrorCode.NONE
        header, response = parse_response(CreateTopicsResponse, answer.response_data, version)
        assert header.correlation_id == 77
        assert [(each.name, each.error_code) for each in response.topics] == [("t", ErrorCode.NONE)]

    run(scenario)


def test_a_long_forwarded_request_is_decoded_in_slices_and_not_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker forwards what 100,000s of elements a client has sent, and the heartbeats of all brokers would wait."""
    works: list[int] = []

    async def noted(work: Generator[None, None, Any], *, items: int) -> Any:
        yields = 0

        def counted() -> Generator[None, None, Any]:
            nonlocal yields
            while True:
                try:
                    next(work)
                except StopIteration as end:
                    return end.value
                yields += 1
                yield

        result = await result_in_slices(counted(), items=items)
        works.append(yields)
        return result

    monkeypatch.setattr(requests, "result_in_slices", noted)

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        long = create("t", [1])
        long.topics += [CreatableTopic(name=f"no/name-{number}") for number in range(2 * ELEMENTS_PER_SLICE)]
        first, second = await asyncio.gather(*(client.send(envelope(each, 7)) for each in (long, create("t", [1]))))
        answers = [parse_response(CreateTopicsResponse, each.response_data, 7)[1].topics for each in (first, second)]
        found = [next(each.error_code for each in answer if each.name == "t") for answer in answers]
        assert found == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
        assert sum(each > len(long.topics) for each in works) == 2, "the request and its answer"

    run(scenario)


def test_an_error_inside_is_not_an_error_of_the_envelope() -> None:
    """A forwarded UnregisterBroker of an unknown broker fails as a whole, and the client gets this error as its response."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        answer = await client.send(envelope(UnregisterBrokerRequest(broker_id=9), 0))
        assert answer.error_code == ErrorCode.NONE
        _, response = parse_response(UnregisterBrokerResponse, answer.response_data, 0)
        assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    run(scenario)


@pytest.mark.parametrize("messages", [alter_configs, incremental_alter_configs])
def test_directories_are_cordoned_through_their_broker(messages: Any) -> None:
    """Only the broker knows its directories. What it forwards has been checked there."""
    config = messages.AlterableConfig(name="cordoned.log.dirs", value="/a")
    resource = messages.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    if messages is alter_configs:
        request, response_type, version = messages.AlterConfigsRequest(), messages.AlterConfigsResponse, 2
    else:
        request, response_type, version = (
            messages.IncrementalAlterConfigsRequest(),
            messages.IncrementalAlterConfigsResponse,
            1,
        )
    request.resources = [resource]

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        update = FeatureUpdateKey(feature=METADATA_VERSION_FEATURE, max_version_level=30)
        assert (await client.send(UpdateFeaturesRequest(feature_updates=[update]))).error_code == ErrorCode.NONE
        [refused] = (await client.send(request)).responses
        assert refused.error_code == ErrorCode.INVALID_CONFIG
        answer = await client.send(envelope(request, version))
        _, response = parse_response(response_type, answer.response_data, version)
        assert [each.error_code for each in response.responses] == [ErrorCode.NONE]
        assert node.daemon.controller.state.config(4, "1") == {"cordoned.log.dirs": "/a"}

    run(scenario)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_features_are_updated_in_every_version(version: int) -> None:
    """A success lists the features up to version 1. A refusal is one error for all of them. Version 0 has a flag for a safe
    downgrade, the others a type."""

    async def ask(client: Client, level: int, *, downgrade: bool = False) -> UpdateFeaturesResponse:
        update = FeatureUpdateKey(feature="metadata.version", max_version_level=level)
        if version == 0:
            update.allow_downgrade = downgrade
        elif downgrade:
            update.upgrade_type = UpgradeType.SAFE_DOWNGRADE
        answer = await client.send(envelope(UpdateFeaturesRequest(feature_updates=[update]), version))
        assert answer.error_code == ErrorCode.NONE
        _, response = parse_response(UpdateFeaturesResponse, answer.response_data, version)
        assert isinstance(response, UpdateFeaturesResponse)
        return response

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        done = await ask(client, 22)
        assert done.error_code == ErrorCode.NONE
        assert [each.feature for each in done.results] == (["metadata.version"] if version <= 1 else [])
        assert node.daemon.controller.state.metadata_version == 22
        refused = await ask(client, 21)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert refused.results == []
        assert (await ask(client, 21, downgrade=True)).error_code == ErrorCode.NONE
        assert node.daemon.controller.state.metadata_version == 21

    run(scenario)


BAD_ENVELOPES = {
    "not forwardable": (envelope(DescribeClusterRequest(), 0), ErrorCode.INVALID_REQUEST),
    "garbage": (EnvelopeRequest(request_data=b"garbage", request_principal=b""), ErrorCode.INVALID_REQUEST),
    "cut short": (
        EnvelopeRequest(request_data=envelope(create("t", [1]), 7).request_data[:-3], client_host_address=bytes(4)),
        ErrorCode.INVALID_REQUEST,
    ),
    "no principal": (envelope(create("t", [1]), 7, principal=b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    "principal of another version": (
        envelope(create("t", [1]), 7, principal=b"\x00\x09abc"),
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
    ),
    "address of five bytes": (envelope(create("t", [1]), 7, address=bytes(5)), ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize("name", list(BAD_ENVELOPES))
def test_a_bad_envelope_is_refused_and_the_controller_goes_on(name: str) -> None:
    """The Envelope is answered with an error, and the controller keeps working."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        request, code = BAD_ENVELOPES[name]
        answer = await client.send(request)
        assert (answer.error_code, answer.response_data) == (code, None)
        assert node.daemon.controller.state.topics == {}
        assert not (await client.heartbeat(1)).is_fenced

    run(scenario)


def test_a_forwarded_version_of_a_later_release_is_refused_as_such() -> None:
    """As in Apache Kafka. The broker may be of a later release than the controller, and lets its client ask again which
    versions are served. INVALID_REQUEST would blame the client."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        request = envelope(create("t", [1]), 7)
        unknown = APIS[ApiKey.CREATE_TOPICS].versions.last + 1
        request.request_data = request.request_data[:2] + unknown.to_bytes(2, "big") + request.request_data[4:]
        answer = await client.send(request)
        assert (answer.error_code, answer.response_data) == (ErrorCode.UNSUPPORTED_VERSION, None)

    run(scenario)


def test_the_log_says_why_a_registration_is_refused() -> None:
    """The response has only an error code, so the operator looks here. Brokers that try again add nothing, even if they take
    turns. Another reason or another start of a broker does."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        def reasons() -> list[tuple[int, str, str]]:
            logged = world.events_named("registration_refused", "controller")
            return [(event.fields["broker_id"], event.fields["error"], event.fields["reason"]) for event in logged]

        nowhere = "the registration names no log directory"
        for _ in range(3):
            for broker_id in (1, 2):
                assert (await client.register(broker_id)).error_code == ErrorCode.INVALID_REQUEST
        assert reasons() == [(1, "INVALID_REQUEST", nowhere), (2, "INVALID_REQUEST", nowhere)]
        await client.register(1, incarnation=2)
        twice = "the registration names a directory id twice"
        await client.register(2, "a", "a")
        assert reasons()[2:] == [(1, "INVALID_REQUEST", nowhere), (2, "INVALID_REGISTRATION", twice)]
        for incarnation in range(3, 3 + REFUSALS_MAX):
            await client.register(1, incarnation=incarnation)
        await client.register(1)
        assert reasons()[-1] == (1, "INVALID_REQUEST", nowhere)
        assert len(reasons()) == 4 + REFUSALS_MAX + 1

    run(scenario)


def test_every_request_is_refused_while_not_active() -> None:
    """The error is NOT_CONTROLLER. A forwarded request gets it on the Envelope, so that the broker looks for another
    controller."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a")
        controller = node.daemon.controller
        # The new epoch must be durable before this node is elected again. So the node is not active while the metadata disk
        # hangs.
        world.disk("/disks/controller").hang()
        node.driver.resign(controller.leader.epoch)
        answers: list[Awaitable[Any]] = [
            client.send(create("t", [1])),
            client.send(envelope(create("t", [1]), 7)),
            client.heartbeat(1),
            client.register(1, "a"),
            client.send(assign(client, 1, "a", TopicId(directory("t")), 0)),
        ]
        created, forwarded, *others = await asyncio.gather(*answers)
        # The node describes itself all the time.
        itself = DescribeConfigsResource(resource_type=4, resource_name=str(node.config.node_id), configuration_keys=None)
        described = await client.send(DescribeConfigsRequest(resources=[itself]))
        assert described.results[0].error_code == ErrorCode.NONE
        assert described.results[0].configs
        assert created.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        assert (forwarded.error_code, forwarded.response_data) == (ErrorCode.NOT_CONTROLLER, None)
        assert [each.error_code for each in others] == [ErrorCode.NOT_CONTROLLER] * 3
        world.disk("/disks/controller").thaw()
        await world.until(lambda: controller.is_active)
        assert controller.new_active_count == 2
        assert not (await client.heartbeat(1)).is_fenced

    run(scenario)


@pytest.mark.slow
def test_a_large_failure_is_one_transaction() -> None:
    """The failure causes more partition changes than fit into one batch. They come between begin and end records, before the
    registration change. A follower applies only complete transactions, so it sees the whole failure at once and reaches the
    same state."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        await client.start(1, "a", "b")
        await client.start(2, "c", "d")
        for number in range(3):
            topic_id = await topic(client, f"t{number}", *[[1, 2] for _ in range(3_500)])
            await client.send(assign(client, 1, "a", topic_id, *range(3_500)))
            await client.heartbeat(1)
            await client.heartbeat(2)
        follower = Follower()
        node.driver.register(follower)
        await world.until(lambda: follower.state.last_offset >= node.daemon.controller.state.last_offset)
        follower.records.clear()
        assert (await client.heartbeat(1, offline=["a"])).error_code == ErrorCode.NONE
        names = [type(record).__name__ for record in follower.records if not isinstance(record, NoOpRecord)]
        assert names == [
            "BeginTransactionRecord",
            *["PartitionChangeRecord"] * 10_500,
            "BrokerRegistrationChangeRecord",
            "EndTransactionRecord",
        ]
        state = node.daemon.controller.state
        assert follower.state == state
        assert state.leads_any(BrokerId(2))
        assert not state.leads_any(BrokerId(1))
        assert not state.leads_any(NO_LEADER)

    run(scenario)


def test_every_handler_has_a_declared_api() -> None:
    """Every advertised API can be decoded, and the inter-broker APIs are all included."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        served = set(node.daemon.handlers())
        assert served <= set(APIS)
        assert ApiKey.PRODUCE not in served
        assert {ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.BROKER_HEARTBEAT, ApiKey.ENVELOPE} <= served
        assert ApiKey.ASSIGN_REPLICAS_TO_DIRS in served

    run(scenario)


# --- registrations of controllers (KIP-919) --------------------------------------------------------------------------


def registration(controller_id: int, *listeners: str, incarnation: int = 1) -> ControllerRegistrationRequest:
    """A registration with these listeners, each on the host of its own name."""
    return ControllerRegistrationRequest(
        controller_id=controller_id,
        incarnation_id=Uuid(bytes([incarnation]) * 16),
        listeners=[ControllerListener(name=name, host=name.lower(), port=9093) for name in listeners],
        features=[ControllerFeature(name=METADATA_VERSION_FEATURE, min_supported_version=7, max_supported_version=25)],
    )


def test_a_controller_registers_each_incarnation_once() -> None:
    """The record has the address, the features and the incarnation. A restart makes another incarnation, which registers
    again; a new term of the same incarnation does not. Snapshots keep the registration."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        controllers = node.daemon.controller.state.controllers
        await world.until(lambda: 100 in controllers)
        (first,) = controllers.values()
        assert first.endpoints == (BrokerEndpoint("CONTROLLER", "controller", 9093, 0),)
        assert {each.name: (each.min_version, each.max_version) for each in first.features} == {
            name: (levels.minimum, levels.maximum) for name, levels in CONTROLLER_FEATURES.items()
        }
        node.driver.resign(node.daemon.controller.leader.epoch)
        await world.until(lambda: node.daemon.controller.new_active_count == 2)
        await topic_of_no_broker(client)
        assert node.daemon.controller.state.controllers == {100: first}
        assert len(world.events_named("controller_registered")) == 1

        await node.restart()
        client.reconnect()
        await world.until(lambda: len(world.events_named("controller_registered")) == 2)
        (second,) = node.daemon.controller.state.controllers.values()
        assert second.incarnation_id != first.incarnation_id
        assert second.endpoints == first.endpoints
        rebuilt = MetadataState()
        for written in generate_snapshot_records(node.daemon.controller.state):
            rebuilt.replay(written.record, offset=Offset(1))
        assert rebuilt.controllers == {100: second}

    run(scenario)


async def topic_of_no_broker(client: Client) -> None:
    """Sends a request that waits for its turn in the queue of the controller, and for what was appended before it."""
    response = await client.send(create("t", [1]))
    assert response.topics[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_controller_registers_once_the_level_allows_it() -> None:
    """Below metadata.version 3.7-IV0 no controller registers or is described. The level rises, and this one registers."""

    async def in_world(world: SimulatedWorld) -> None:
        node = ControllerNode(world)
        world.disk(node.config.metadata_log_dir).write(
            "bootstrap.checkpoint", make_bootstrap_checkpoint(bootstrap_records(CONTROLLER_REGISTRATION_LEVEL - 1))
        )
        await node.start()
        async with asyncio.TaskGroup() as task_group:
            client = Client(world, task_group)
            refused = await client.send(registration(7, "CONTROLLER"))
            assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert refused.error_message == ("controllers cannot register at metadata.version 3.6-IV2; that needs 3.7-IV0")
            described = await client.send(DescribeClusterRequest(endpoint_type=2))
            assert described.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert node.daemon.controller.state.controllers == {}

            def rise(_turn: Turn, _request: None) -> ControllerResult[None]:
                level = FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=CONTROLLER_REGISTRATION_LEVEL)
                return ControllerResult([ApiMessageAndVersion(level, 0)], None)

            await node.daemon.controller.submit("rise", rise, None)
            await world.event("controller_registered")
            described = await client.send(DescribeClusterRequest(endpoint_type=2))
            assert [each.broker_id for each in described.brokers] == [100]
            client.close()

    SimulatedWorld(seed=1).run(in_world)


def test_other_controllers_register_over_the_wire() -> None:
    """DescribeCluster names the controllers that have the listener that was asked. A registration that was sent twice is
    written once. The one of the next incarnation takes its place."""

    async def scenario(world: SimulatedWorld, node: ControllerNode, client: Client) -> None:
        for request in (registration(7, "SECOND", "CONTROLLER"), registration(8, "OTHER")):
            assert (await client.send(request)).error_code == ErrorCode.NONE
        end_offset = node.driver.log_end_offset
        assert (await client.send(registration(8, "OTHER"))).error_code == ErrorCode.NONE
        assert node.driver.log_end_offset == end_offset
        cluster = await client.send(DescribeClusterRequest(endpoint_type=2, include_fenced_brokers=True))
        assert [(each.broker_id, each.host, each.port, each.is_fenced) for each in cluster.brokers] == [
            (7, "controller", 9093, False),
            (100, "controller", 9093, False),
        ]
        await client.send(registration(7, "OTHER", incarnation=2))
        cluster = await client.send(DescribeClusterRequest(endpoint_type=2))
        assert [each.broker_id for each in cluster.brokers] == [100]
        for refused, code in (
            (registration(-1, "CONTROLLER"), ErrorCode.INVALID_REQUEST),
            (registration(9, *("X" * 30_000,) * 10), ErrorCode.INVALID_REGISTRATION),
        ):
            assert (await client.send(refused)).error_code == code
        assert sorted(node.daemon.controller.state.controllers) == [7, 8, 100]

    run(scenario, {"metadata.max.idle.interval.ms": "0"})
