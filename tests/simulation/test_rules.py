"""Rules of the design that only a whole cluster can show, one scenario each: sharp edges of Apache Kafka among them."""

import asyncio
from collections.abc import Awaitable, Callable

from common.configuration.server import load_server_config
from tests.simulation.cluster import SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tools.kafka_storage import format_directories
from tools.node import Node

Scenario = Callable[[SimulatedCluster, SimulatedClient], Awaitable[None]]


def run(scenario: Scenario, *, seed: int = 1, brokers: int = 3, disks: int = 3, **overrides: str) -> SimulatedWorld:
    """Runs a scenario on a started cluster; keys of `overrides` have '_' for '.'. Nothing acknowledged may be lost."""
    world = SimulatedWorld(seed)

    async def whole(_: SimulatedWorld) -> None:
        properties = {key.replace("_", "."): value for key, value in overrides.items()}
        cluster = SimulatedCluster(world, brokers=brokers, disks=disks, overrides=properties)
        await cluster.start()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(cluster, group)
            await scenario(cluster, client)
            await client.assert_nothing_lost()
            client.close()

    world.run(whole)
    return world


COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@node:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://node:9092,CONTROLLER://node:9093",
    "log.dirs": "/d1,/d2",
}


def test_a_node_is_ready_once_all_its_roles_are() -> None:
    """Both roles in one process share one metadata log. Ready is what freezes the loaded objects, so it comes once, after
    the controller is active and the broker runs."""

    async def scenario(world: SimulatedWorld) -> None:
        config = load_server_config(COMBINED)
        for path in config.log_dirs:
            world.disk(path)
        await format_directories(world.node("format"), config, cluster_id="combined", level=21, ignore_formatted=False)
        seen: list[int] = []
        stop = asyncio.get_running_loop().create_future()

        def ready() -> None:
            assert world.events_named("controller_active")
            assert world.events_named("broker_running")
            seen.append(world.now_ns())

        async def main(env: SimulatedEnvironment) -> None:
            await Node(env, config, COMBINED, on_ready=ready).run(lambda: asyncio.shield(stop))
            env.die()

        node = world.start("node", main)
        await world.until(lambda: seen)
        await world.sleep(5)
        stop.set_result(None)
        await world.until(lambda: node.is_dead)
        assert node.exit_code is None
        assert len(seen) == 1

    SimulatedWorld(seed=1).run(scenario)
