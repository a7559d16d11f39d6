"""Damages files of a stopped node and starts it again. The node must run or exit with a reason, never with an unexpected
exception.

A running cluster wrote these files, so their content was once valid. The code that reads them must not rely on that.
"""

import random

import pytest

from tests.simulation.cluster import CONTROLLER_ID, SimulatedClient, SimulatedCluster, run

_LOCK = ".lock"


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Returns `content` with bytes changed, cut off or added, or random bytes instead."""
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 4)):
        position = rng.randrange(len(changed) + 1)
        match rng.randrange(7):
            case 0:
                changed[position : position + 1] = rng.randbytes(1)
            case 1:
                changed[position : position + 4] = rng.choice((b"\xff" * 4, b"\x7f\xff\xff\xff", bytes(4)))
            case 2:
                del changed[position:]
            case 3:
                changed += rng.randbytes(rng.randrange(1, 100))
            case 4:
                changed[position:] = bytes(len(changed) - position)
            case 5:
                changed[position:position] = b"9" * rng.randrange(1, 25)
            case _:
                changed = bytearray(rng.randbytes(rng.randrange(200)))
    return bytes(changed)


def damage_a_file(cluster: SimulatedCluster, node_id: int, rng: random.Random) -> str:
    """Damages or deletes one file of a stopped node. Returns a description of the change."""
    paths = cluster.config(node_id).all_log_dirs
    found = [(path, name) for path in paths for name in sorted(cluster.world.disk(path).files()) if not name.endswith(_LOCK)]
    # Each kind of file is equally likely, however many segments there are.
    kinds = sorted({name.rpartition("/")[2].rpartition(".")[2] for _, name in found})
    kind = rng.choice(kinds)
    path, name = rng.choice([(path, name) for path, name in found if name.rpartition("/")[2].rpartition(".")[2] == kind])
    disk = cluster.world.disk(path)
    if rng.random() < 0.1:
        disk.delete(name)
        return f"{path}/{name} was deleted"
    content = damaged(disk.files()[name], rng)
    disk.write(name, content)
    return f"{path}/{name} is now {content[:200]!r}"


async def has_decided(cluster: SimulatedCluster, node_id: int) -> None:
    """Waits until the node runs, or has ended."""

    def runs() -> bool:
        if node_id == CONTROLLER_ID:
            return cluster.is_controller_active()
        return bool(cluster.world.events_named("broker_running", cluster.name(node_id)))

    await cluster.world.until(lambda: cluster.env(node_id).is_dead or runs(), within_seconds=120)


async def damage_and_start(cluster: SimulatedCluster, client: SimulatedClient, rng: random.Random) -> None:
    await client.create_topic("t", partitions=3, replication_factor=2, segment_bytes="300")
    for number in range(20):
        await client.produce("t", number % 3, b"%d" % number)
    client.acknowledged.clear()
    node_id = rng.choice((CONTROLLER_ID, 1, 1))
    if rng.random() < 0.5:
        cluster.crash(node_id)
    else:
        cluster.ask_to_stop(node_id)
    await cluster.world.until(lambda: cluster.env(node_id).is_dead, within_seconds=60)
    for _ in range(rng.randrange(1, 3)):
        print(damage_a_file(cluster, node_id, rng))
    cluster.start_node(node_id)
    await has_decided(cluster, node_id)
    await cluster.world.sleep(2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_node_started_on_damaged_files_meets_no_unexpected_exception(seed: int) -> None:
    """One or two files of a stopped broker or controller are damaged. Then the node is started."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await damage_and_start(cluster, client, random.Random(seed))

    world = run(scenario, seed=seed, brokers=2, disks=2, metadata_log_max_record_bytes_between_snapshots="1000")
    for event in ("daemon_failed", "callback_failed", "thread_failed"):
        assert world.events_named(event) == []
