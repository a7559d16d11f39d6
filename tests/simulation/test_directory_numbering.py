"""A cluster with either numbering of the reserved directory ids: formatted, hit by lost disks, and restarted."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from common.ids import Uuid
from common.metadata.directory_ids import LOST
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE
from common.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from common.protocol.numbering import Numbering
from common.records.batch import split_batches
from common.records.metadata_frame import decode_record
from common.records.metadata_records import PartitionChangeRecord, PartitionRecord
from common.records.record import iterate_values
from common.time_units import NS_PER_S
from tests.simulation.cluster import CONTROLLER_ID, CONTROLLER_PORT, SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld
from tests.simulation.request_tap import TappedNetwork
from tools.kafka.stored_numbering import stored_numbering

# The numbers of UNASSIGNED and LOST in each numbering, as KIP-858 and Apache Kafka's DirectoryId have them.
NUMBERS = {Numbering.KIP858: (0, 1), Numbering.APACHE: (1, 2)}


@pytest.mark.parametrize("numbering", Numbering)
def test_disks_and_wire_have_the_numbers_of_the_cluster(numbering: Numbering) -> None:
    """A broker gets empty disks, so it assigns LOST, and an unclean election lets it start anew. The log and the requests
    must have the cluster's numbers. Every image has KIP-858's, also after all nodes have read their logs again."""
    world = SimulatedWorld(seed=1)
    network = TappedNetwork(world.network, "tap", port=CONTROLLER_PORT)
    world.network = network
    unassigned, lost = (Uuid(number.to_bytes(16, "big")) for number in NUMBERS[numbering])

    async def whole(_: SimulatedWorld) -> None:
        cluster = SimulatedCluster(
            world, brokers=1, disks=2, numbering=numbering, overrides={"default.replication.factor": "1"}
        )
        await cluster.start()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await client.create_topic("clean", partitions=2, replication_factor=1)
            await client.create_topic("dirty", partitions=2, replication_factor=1, unclean_leader_election_enable="true")
            await _replace_disks(cluster)
            await cluster.world.until(lambda: cluster.partition("dirty", 0).leader == 1)
            await client.produce("dirty", 0, b"anew")
            for number in (0, 1):
                assert cluster.partition("clean", number).directories == (LOST,)
            await _restart_everything(cluster)
            await cluster.world.until(lambda: cluster.partition("dirty", 0).leader == 1)
            broker = cluster.nodes[1].broker
            assert broker is not None
            for state in (cluster.state, broker.state):
                assert state.partition(cluster.topic_id("clean"), 0).directories == (LOST,)  # type: ignore[union-attr]
            assert (DIRECTORY_NUMBERING_FEATURE in cluster.state.features) is (numbering is Numbering.KIP858)
            await _check_stored_numbering(world, numbering)
            await client.assert_nothing_lost()
            client.close()

    world.run(whole)
    written = {directory for directories in _directories_on(world, "/controller/metadata") for directory in directories}
    assert {unassigned, lost} <= written
    assigned = [each for each in network.exchanges if isinstance(each.request, AssignReplicasToDirsRequest)]
    assert any(directory.id == lost for each in assigned for directory in _asked(each.request))
    assert any(directory.id == lost for each in assigned for directory in _answered(each.response))


async def _check_stored_numbering(world: SimulatedWorld, numbering: Numbering) -> None:
    """What `kafka-storage info` shows must not depend on bootstrap.checkpoint once the log has records."""
    for path in ("/controller/metadata", "/b1/metadata"):
        world.disk(path).delete("bootstrap.checkpoint")
        log_dir = world.node(f"info{path}").log_dir(path, operation_timeout_ns=NS_PER_S)
        await log_dir.attach()
        assert await stored_numbering(log_dir) is numbering
        await log_dir.close()


async def _replace_disks(cluster: SimulatedCluster) -> None:
    cluster.ask_to_stop(1)
    await cluster.world.until(lambda: cluster.env(1).is_dead)
    for number in (1, 2):
        cluster.disk(1, number).wipe()
    await cluster.format(1, ignore_formatted=True)
    cluster.start_node(1)


async def _restart_everything(cluster: SimulatedCluster) -> None:
    for node_id in (1, CONTROLLER_ID):
        cluster.crash(node_id)
    for node_id in (CONTROLLER_ID, 1):
        cluster.start_node(node_id)
    await cluster.world.until(cluster.is_controller_active)
    await cluster.world.until(lambda: cluster.is_registered(1, cluster.state))
    await cluster.until_running()


def _asked(request: Any) -> list[Any]:
    return list(request.directories)


def _answered(response: Any) -> list[Any]:
    return list(response.directories)


def _directories_on(world: SimulatedWorld, path: str) -> Iterator[list[Uuid]]:
    """Yields the directories of all partition records in the log, as they are on the disk: without any translation."""
    for name, content in sorted(world.disk(path).files().items()):
        if name.startswith("__cluster_metadata-0/") and name.endswith(".log"):
            for header, view in split_batches(memoryview(content), allow_partial_tail=True):
                for _, value in iterate_values(view) if not header.is_control else ():
                    record = decode_record(value or b"", Numbering.KIP858)
                    if isinstance(record, PartitionRecord | PartitionChangeRecord):
                        yield list(record.directories or ())
