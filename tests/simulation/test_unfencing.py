"""A broker that comes back is unfenced once its replicas are where the metadata says; nothing else keeps it fenced."""

import asyncio
from contextlib import nullcontext

import pytest

from broker.controller_link.assignments import Assignments
from common.ids import BrokerId
from controller.core import heartbeat
from controller.core.unfencing import AwaitedReplicas
from tests.simulation.cluster import SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld
from tests.simulation.planting import Edit, PlantedBug
from tests.simulation.scenario import play

# Not a bug but what brokers of Apache Kafka do: they ask to be unfenced as soon as they have caught up.
EAGER = PlantedBug("", "", (Edit(Assignments._look_at_gate, "if self._gate.is_open:", "if True:"),))
BUGS = (
    PlantedBug(
        "the controller relies on the broker",
        "It has reported all of its replicas, or it would not ask to be unfenced.",
        (Edit(heartbeat._ask, "if not registration.fenced or following.is_fenced:", "if True:"),),
    ),
    PlantedBug(
        "only the last unknown directory counts",
        "MIGRATING is the one that matters.",
        (Edit(AwaitedReplicas._fix, "for directory_id in _UNKNOWN", "for directory_id in _UNKNOWN[1:]"),),
    ),
)
RESTART = """
cluster brokers=2 disks=2
stop broker=1
create topic t replicas=2,1 partitions=8 wait=no
start broker=1
await running
advance 2s
show records broker=1 PartitionChange
"""


def test_replicas_that_are_created_anew_where_they_are_assigned_do_not_keep_a_broker_fenced() -> None:
    """The broker is outside the ISR and its logs are gone from healthy disks. They are created again in the directories that
    the metadata names. So there is nothing to assign, and the broker must not wait for a record about them."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=3, disks=2)
        await cluster.start()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await client.create_topic("t", partitions=4, min_insync_replicas="1")
            cluster.crash(1)
            await world.until(lambda: all(BrokerId(1) not in part.isr for part in cluster.partitions("t").values()))
            for number in (1, 2):
                disk = cluster.disk(1, number)
                for folder in disk.folders():
                    disk.delete(folder)
            cluster.start_node(1)
            await cluster.until_running(within_seconds=20)
            await cluster.until_in_sync("t")
            client.close()

    SimulatedWorld(seed=3).run(scenario)


@pytest.mark.parametrize("bug", [None, *BUGS], ids=lambda bug: "no bug" if bug is None else bug.name)
def test_the_controller_keeps_a_broker_fenced_that_asks_too_early(bug: PlantedBug | None) -> None:
    """Topics are created while the broker is down. It comes back and asks to be unfenced at once, while it still creates its
    logs. In the metadata log its assignments come before the record that unfences it."""
    with EAGER.planted(), nullcontext() if bug is None else bug.planted():
        shown = [line.split() for line in play(RESTART, seed=1).splitlines()]
    unfenced_at = shown.index(["BrokerRegistrationChange", "broker=1", "unfence"])
    assigned_at = [
        number for number, words in enumerate(shown) if words[:1] == ["PartitionChange"] and "Directories=" in words[2]
    ]
    assert len(assigned_at) >= 8
    assert (max(assigned_at) < unfenced_at) is (bug is None)
