"""Configuration changes while the cluster runs. The changes reach every broker and survive restarts."""

import asyncio
import contextlib
import random
from typing import Any

import pytest

from common.ids import NO_LEADER
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages import alter_configs as legacy
from common.protocol.messages import incremental_alter_configs as incremental
from common.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from common.protocol.messages.delete_groups import DeleteGroupsRequest
from common.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from common.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.simulation.checkers import Checkers
from tests.simulation.cluster import CONTROLLER_ID, SimulatedClient, SimulatedCluster, run
from tests.simulation.environment import SimulatedWorld
from tests.simulation.history import History

SET, DELETE = 0, 1
TOPIC, BROKER, GROUP = 2, 4, 32
DYNAMIC_BROKER, DYNAMIC_DEFAULT, DEFAULT, DYNAMIC_GROUP = 2, 3, 5, 8
RATE = "leader.replication.throttled.rate"
HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
Setting = tuple[int, str, str, str | None]


async def alter(
    client: SimulatedClient, broker_id: int, *settings: Setting, validate_only: bool = False, seconds: float = 30
) -> list[tuple[str, int, str | None]]:
    """Sends changes, each as (resource type, resource name, key, value); the value None deletes the key. Returns the
    resource name, the error code and the message of each result."""
    resources = [
        incremental.AlterConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configs=[incremental.AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)],
        )
        for resource_type, name, key, value in settings
    ]
    request = incremental.IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    response = await client.ask(broker_id, request, seconds=seconds)
    return [(each.resource_name, each.error_code, each.error_message) for each in response.responses]


async def described(
    client: SimulatedClient, broker_id: int, resource_type: int, name: str, key: str
) -> tuple[str | None, int]:
    """Returns the value and the source of a key."""
    resource = DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=[key])
    response = await client.ask(broker_id, DescribeConfigsRequest(resources=[resource]))
    (entry,) = response.results[0].configs
    return entry.value, entry.config_source


def rate(cluster: SimulatedCluster, broker_id: int) -> int | None:
    """Returns the throttle in effect on the broker, or None while the broker is starting."""
    node = cluster.nodes.get(broker_id)
    return (
        None if node is None or node.broker is None else node.broker.configuration.server.leader_replication_throttled_rate
    )


def test_a_change_is_in_effect_on_the_broker_that_answers() -> None:
    """The broker that answers uses the new value at once. The other brokers apply it when they receive the metadata. A
    broker's own setting takes precedence over that for all brokers, even if it was set first."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        assert await alter(client, 1, (BROKER, "1", RATE, "7")) == [("1", ErrorCode.NONE, None)]
        assert rate(cluster, 1) == 7
        assert await described(client, 1, BROKER, "1", RATE) == ("7", DYNAMIC_BROKER)
        assert await alter(client, 2, (BROKER, "", RATE, "5")) == [("", ErrorCode.NONE, None)]
        assert rate(cluster, 2) == 5
        assert await described(client, 2, BROKER, "2", RATE) == ("5", DYNAMIC_DEFAULT)
        await cluster.world.until(lambda: rate(cluster, 3) == 5)
        assert rate(cluster, 1) == 7
        assert await alter(client, 1, (BROKER, "1", RATE, None)) == [("1", ErrorCode.NONE, None)]
        assert rate(cluster, 1) == 5

    world = run(scenario)
    assert len(world.events_named("config_altered")) == 3
    # The first and the third change affect only broker 1. The second change affects every broker except broker 1, which has
    # its own setting.
    assert len(world.events_named("broker_config_changed")) == 4


def test_a_topics_configuration_is_replaced_and_validated() -> None:
    """The older AlterConfigs deletes every key that the request leaves out. A validate-only request changes nothing."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=1, retention_ms="5", segment_ms="6")
        configs = [legacy.AlterableConfig(name="retention.ms", value="7")]
        resource = legacy.AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=configs)
        for validate_only, expected in ((True, {"retention.ms": "5", "segment.ms": "6"}), (False, {"retention.ms": "7"})):
            request = legacy.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
            response = await client.ask(1, request)
            assert [each.error_code for each in response.responses] == [ErrorCode.NONE]
            assert cluster.state.config(TOPIC, "t") == expected

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit", [(BROKER, "", "message.max.bytes", "4000"), (TOPIC, "__consumer_offsets", "max.message.bytes", "4000")]
)
def test_a_coordinator_makes_smaller_batches_when_the_limit_has_become_lower(limit: Setting) -> None:
    """A group with very many offsets is deleted with a record for each of them. The other group of the partition is there
    all the same."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=300, replication_factor=1)
        await client.ask(1, FindCoordinatorRequest(coordinator_keys=["large"]))

        async def commit(group: str, indexes: range) -> set[int]:
            partitions = [OffsetCommitRequestPartition(partition_index=each, committed_offset=1) for each in indexes]
            topics = [OffsetCommitRequestTopic(topic_id=cluster.state.topic_ids["t"], partitions=partitions)]
            response = await client.ask(1, OffsetCommitRequest(group_id=group, topics=topics))
            return {each.error_code for topic in response.topics for each in topic.partitions}

        while await commit("large", range(30)) != {ErrorCode.NONE}:
            await cluster.world.sleep(0.1)
        for first in range(30, 300, 30):
            assert await commit("large", range(first, first + 30)) == {ErrorCode.NONE}
        assert [error for _, error, _ in await alter(client, 1, limit)] == [ErrorCode.NONE]
        errors: list[int] = []
        while not errors or (errors[-1] not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) and len(errors) < 10):
            response = await client.ask(1, DeleteGroupsRequest(groups_names=["large"]))
            errors.append(response.results[0].error_code)
            await cluster.world.sleep(1)
        assert errors[-1] == ErrorCode.NONE
        assert await commit("other", range(1)) == {ErrorCode.NONE}

    run(scenario, brokers=1, offsets_topic_num_partitions="1", offsets_topic_replication_factor="1")


@pytest.mark.slow
def test_a_member_gets_the_times_of_its_group_with_its_next_heartbeat() -> None:
    """The group was configured before it had a member. Its session is longer than that of the server, 45 s."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        async def beat(epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
            request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch, **fields)
            response: ConsumerGroupHeartbeatResponse = await client.ask(1, request)
            return response

        await client.create_topic("t", partitions=1, replication_factor=1)
        await client.ask(1, FindCoordinatorRequest(coordinator_keys=["g"]))
        assert await alter(client, 1, (GROUP, "g", HEARTBEAT, "6000")) == [("g", ErrorCode.NONE, None)]
        assert await described(client, 1, GROUP, "g", HEARTBEAT) == ("6000", DYNAMIC_GROUP)
        joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
        while (answer := await beat(0, **joining)).error_code != ErrorCode.NONE:
            await cluster.world.sleep(0.1)
        assert answer.heartbeat_interval_ms == 6_000
        assert await alter(client, 1, (GROUP, "g", HEARTBEAT, None)) == [("g", ErrorCode.NONE, None)]
        assert await alter(client, 1, (GROUP, "g", SESSION, "60000")) == [("g", ErrorCode.NONE, None)]
        assert await described(client, 1, GROUP, "g", HEARTBEAT) == ("5000", DEFAULT)
        assert (await beat(answer.member_epoch)).heartbeat_interval_ms == 5_000
        await cluster.world.sleep(59)
        assert (await beat(answer.member_epoch)).error_code == ErrorCode.NONE
        await cluster.world.sleep(61)
        assert (await beat(answer.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(scenario, brokers=1, offsets_topic_num_partitions="1", offsets_topic_replication_factor="1")


def test_what_the_broker_refuses_does_not_keep_the_rest_from_the_controller() -> None:
    """A broker accepts changes of its own configuration but not of another broker's. The request's other resources still
    reach the controller, which checks each of them separately."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        results = await alter(
            client,
            1,
            (BROKER, "2", RATE, "1"),
            (BROKER, "x", RATE, "1"),
            (BROKER, "1", "node.id", "9"),
            (TOPIC, "none", "retention.ms", "1"),
            (BROKER, "", RATE, "2"),
        )
        assert sorted(results) == [
            ("", ErrorCode.NONE, None),
            ("1", ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: Set(node.id)"),
            ("2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
            ("x", ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        ]
        assert cluster.state.configs == {(BROKER, ""): {RATE: "2"}}
        refused = await alter(client, 1, (BROKER, "2", RATE, "1"))
        assert [(name, code) for name, code, _ in refused] == [("2", ErrorCode.INVALID_REQUEST)]

    run(scenario, brokers=2)


def test_a_host_with_too_many_connections_gets_a_limit_while_the_broker_runs() -> None:
    """Its open connections stay. Another broker goes on as before."""
    overrides = "max.connections.per.ip.overrides"

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        assert await alter(client, 1, (BROKER, "1", overrides, "client:1")) == [("1", ErrorCode.NONE, None)]
        async with asyncio.TaskGroup() as group:
            second = SimulatedClient(cluster, group)
            with pytest.raises(ChannelError):
                await described(second, 1, BROKER, "1", overrides)
            assert await described(second, 2, BROKER, "2", overrides) == ("", DEFAULT)
            assert await described(client, 1, BROKER, "1", overrides) == ("client:1", DYNAMIC_BROKER)
            assert await alter(client, 1, (BROKER, "1", overrides, None)) == [("1", ErrorCode.NONE, None)]
            assert await described(second, 1, BROKER, "1", overrides) == ("", DEFAULT)
            second.close()

    world = run(scenario, brokers=2)
    assert {event.node for event in world.events_named("connection_limit_reached")} == {"broker-1"}


def test_configuration_survives_restarts_and_snapshots() -> None:
    """Every node loses power. The controller then starts from a snapshot, and the brokers apply the configuration in it."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await alter(client, 1, (BROKER, "1", RATE, "7"), (BROKER, "", "min.insync.replicas", "2"))
        await cluster.world.event("metadata_snapshot_written")
        nodes = (CONTROLLER_ID, 1, 2)
        for node_id in nodes:
            cluster.power_cut(node_id)
        for node_id in nodes:
            cluster.start_node(node_id)
        await cluster.world.until(lambda: (rate(cluster, 1), rate(cluster, 2)) == (7, 2**63 - 1), within_seconds=60)
        for broker_id in (1, 2):
            name = str(broker_id)
            value = await described(client, broker_id, BROKER, name, "min.insync.replicas")
            assert value == ("2", DYNAMIC_DEFAULT)

    run(scenario, brokers=2, metadata_log_max_snapshot_interval_ms="1000")


def test_an_unclean_election_that_is_allowed_at_run_time() -> None:
    """A partition whose ISR is entirely down gets a leader as soon as unclean elections are allowed for all topics."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=1, replication_factor=2)
        await client.produce("t", 0, b"lost with its disk")
        leader = cluster.partition("t", 0).leader
        other = next(each for each in cluster.partition("t", 0).replicas if each != leader)
        cluster.crash(other)
        await cluster.world.until(lambda: cluster.partition("t", 0).isr == (leader,))
        cluster.crash(leader)
        await cluster.world.until(lambda: cluster.partition("t", 0).leader == NO_LEADER)
        cluster.start_node(other)
        (bystander,) = {1, 2, 3} - {leader, other}
        await cluster.world.until(lambda: not cluster.state.brokers[other].fenced, within_seconds=60)
        assert cluster.partition("t", 0).leader == NO_LEADER
        await alter(client, bystander, (BROKER, "", "unclean.leader.election.enable", "true"))
        await cluster.world.until(lambda: cluster.partition("t", 0).leader == other, within_seconds=5)
        # The record that only the crashed leader held may be lost, because an unclean election was allowed.
        client.acknowledged.clear()

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_configuration_that_changes_while_nodes_die(seed: int) -> None:
    """Brokers and the controller are killed while configuration changes for a topic, for single brokers and for all brokers.
    Once everything runs again, every replica uses the configuration in the metadata, no matter which changes succeeded."""

    async def scenario(world: SimulatedWorld) -> None:
        rng = random.Random(f"{seed}/configuration")
        cluster = SimulatedCluster(world, brokers=3, disks=2, overrides={"metadata.log.max.snapshot.interval.ms": "2000"})
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await client.create_topic("t", partitions=3)
            for _ in range(6):
                victim = rng.choice((CONTROLLER_ID, *cluster.broker_ids))
                cluster.crash(victim)
                asked = [id_ for id_ in cluster.broker_ids if id_ != victim]
                for broker_id in asked:
                    await try_to_alter(client, broker_id, drawn_setting(rng, broker_id))
                cluster.start_node(victim)
                await world.sleep(rng.uniform(0, 5))
                await try_to_alter(client, rng.choice(asked), drawn_setting(rng, None))
            await cluster.until_running()
            await checkers.at_quiescence()
            client.close()
        checkers.stop()

    world = SimulatedWorld(seed)
    world.run(scenario)
    assert len(world.events_named("config_altered")) > 5


def drawn_setting(rng: random.Random, broker_id: int | None) -> Setting:
    """Returns a change for topic t, for all brokers, or for this broker. The change sets a value or deletes it."""
    resource = rng.choice([(TOPIC, "t"), (BROKER, "")] + ([] if broker_id is None else [(BROKER, str(broker_id))]))
    of_topic, of_broker, values = rng.choice(
        (
            ("retention.ms", "log.retention.ms", ("3600000", "7200000", None)),
            ("segment.bytes", "log.segment.bytes", ("1000000", "2000000", None)),
            ("min.insync.replicas", "min.insync.replicas", ("1", "2", None)),
        )
    )
    return (*resource, of_topic if resource[0] == TOPIC else of_broker, rng.choice(values))


async def try_to_alter(client: SimulatedClient, broker_id: int, setting: Setting) -> None:
    """Sends a change that may fail. The response may also be lost."""
    with contextlib.suppress(ChannelError):
        await alter(client, broker_id, setting, seconds=3)
