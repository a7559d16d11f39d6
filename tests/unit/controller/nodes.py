"""A controller node in a simulated world, with a real quorum driver on a simulated disk, and a client for it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from common.configuration.server_loading import load_server_config
from common.environment.interface import Environment
from common.ids import BrokerId, DirectoryId, Uuid
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, LATEST_LEVEL, METADATA_VERSION_FEATURE
from common.net.node_channel import NodeChannel
from common.protocol.errors import ErrorCode
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from common.raft.bootstrap import bootstrap_records, make_bootstrap_checkpoint
from common.raft.driver import QuorumDriver
from common.time_units import NS_PER_S
from controller.daemon import ControllerDaemon
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld

CLUSTER_ID = "the-cluster"
PORT = 9093
CAUGHT_UP = 2**40
PROPERTIES = {
    "process.roles": "controller",
    "node.id": "100",
    "controller.quorum.voters": f"100@controller:{PORT}",
    "controller.listener.names": "CONTROLLER",
    "listeners": f"CONTROLLER://:{PORT}",
    "log.dirs": "/disks/controller",
}


def directory(name: str) -> DirectoryId:
    return DirectoryId(Uuid(name.encode().ljust(16, b".")))


class ControllerNode:
    """One controller that can be restarted on the same disk."""

    def __init__(self, world: SimulatedWorld, properties: Mapping[str, str] | None = None) -> None:
        self.world = world
        self.properties = PROPERTIES | dict(properties or {})
        self.config = load_server_config(self.properties)
        self.daemon: ControllerDaemon
        self.driver: QuorumDriver

    async def start(self) -> "ControllerNode":
        """Starts the controller and returns when it is active and has committed its bootstrap records, if any."""
        disk = self.world.disk(self.config.metadata_log_dir)
        if "bootstrap.checkpoint" not in disk.files():
            disk.write("bootstrap.checkpoint", make_bootstrap_checkpoint(bootstrap_records()))
        ready = asyncio.Event()
        self.env: SimulatedEnvironment = self.world.node("controller")
        self.env.start(lambda env: self._main(env, ready))
        await ready.wait()
        await self.world.until(lambda: self.daemon.controller.is_active)
        return self

    async def _main(self, env: Environment, ready: asyncio.Event) -> None:
        log_dir = env.log_dir(self.config.metadata_log_dir, operation_timeout_ns=10 * NS_PER_S)
        await log_dir.attach()
        async with asyncio.TaskGroup() as task_group:

            def channel(host: str, port: int) -> NodeChannel:
                return NodeChannel(env, host=host, port=port, client_id="controller", task_group=task_group)

            self.driver = await QuorumDriver.open(
                env,
                self.config,
                node_id=BrokerId(self.config.node_id),
                cluster_id=CLUSTER_ID,
                log_dir=log_dir,
                directory_id=directory("metadata"),
                voters=self.config.controller_quorum_voters,
                channels=channel,
            )
            self.daemon = ControllerDaemon(env, self.config, self.driver, properties=self.properties, cluster_id=CLUSTER_ID)
            self.daemon.start(task_group)
            ready.set()
            await self.driver.run(task_group)

    async def restart(self) -> "ControllerNode":
        """Kills the node (kill -9) and starts it again."""
        self.world.crash("controller")
        return await self.start()


class Client:
    """Sends requests to the controller, like a broker or a tool."""

    def __init__(self, world: SimulatedWorld, task_group: asyncio.TaskGroup) -> None:
        self.env = world.node("client")
        self._task_group = task_group
        self._channel = self._open()
        self.epochs: dict[int, int] = {}

    def _open(self) -> NodeChannel:
        return NodeChannel(self.env, host="controller", port=PORT, client_id="client", task_group=self._task_group)

    def reconnect(self) -> None:
        """Opens a new connection after the controller was restarted."""
        self._channel.close()
        self._channel = self._open()

    def close(self) -> None:
        self._channel.close()

    async def send(self, request: Any, *, version: int | None = None) -> Any:
        return await self._channel.send(request, version=version, deadline_ns=self.env.now_ns() + 30 * NS_PER_S)

    async def register(self, broker_id: int, *names: str, incarnation: int = 1) -> Any:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=Uuid(bytes([broker_id, incarnation]) * 8),
            listeners=[Listener(name="PLAINTEXT", host=f"broker-{broker_id}", port=9092)],
            features=[
                Feature(name=METADATA_VERSION_FEATURE, min_supported_version=1, max_supported_version=LATEST_LEVEL),
                Feature(name=DIRECTORY_NUMBERING_FEATURE, min_supported_version=0, max_supported_version=1),
            ],
            log_dirs=[directory(name) for name in names],
        )
        response = await self.send(request)
        if response.error_code == ErrorCode.NONE:
            self.epochs[broker_id] = response.broker_epoch
        return response

    async def heartbeat(self, broker_id: int, **other: Any) -> BrokerHeartbeatResponse:
        offline: list[Uuid] = [directory(name) for name in other.pop("offline", ())]
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epochs.get(broker_id, -1),
            current_metadata_offset=CAUGHT_UP,
            offline_log_dirs=offline,
            **other,
        )
        response: BrokerHeartbeatResponse = await self.send(request)
        return response

    async def start(self, broker_id: int, *names: str) -> None:
        """Registers a broker and unfences it."""
        await self.register(broker_id, *names)
        assert not (await self.heartbeat(broker_id)).is_fenced
