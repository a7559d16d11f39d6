"""The controller role of a node: the quorum controller, its listeners and its metrics (shell).

Counterpart of Kafka's ControllerServer. The node's entry point creates the environment and the quorum driver, starts the
driver, and passes both in. On a combined node the broker role shares the driver. The listeners open before any controller is
active, because brokers find the active controller by asking each controller, and NOT_CONTROLLER is a valid response.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from common.configuration.server import ServerConfig
from common.environment.interface import Environment, Listener
from common.metadata.metadata_version import CONTROLLER_FEATURES
from common.metrics_exposition import Sample
from common.net.request_context import Handler
from common.net.request_server import RequestServer
from common.net.server_limits import server_limits
from common.protocol.api_keys import ApiKey
from common.protocol.messages.controller_registration import ControllerRegistrationRequest, Feature
from common.protocol.messages.controller_registration import Listener as RegisteredListener
from common.protocol.numbering import Numbering
from common.time_units import NS_PER_MS, NS_PER_S
from controller.core.settings import controller_settings
from controller.metrics import ControllerMeter
from controller.own_operations import ControllerTimers
from controller.quorum_controller import MetadataLogDriver, QuorumController
from controller.requests import ControllerRequests, QuorumHandlers

# The number of the security protocol PLAINTEXT, the only one that listeners have in this version.
PLAINTEXT_PROTOCOL = 0


class ControllerQuorum(MetadataLogDriver, QuorumHandlers, Protocol):
    """The part of the quorum driver that the controller role needs."""

    @property
    def numbering(self) -> Numbering: ...


class ControllerDaemon:
    """The controller role of one node. Call `start` once, after starting the driver. `on_active` is called each time the
    node becomes the active controller."""

    def __init__(
        self,
        env: Environment,
        config: ServerConfig,
        driver: ControllerQuorum,
        *,
        properties: Mapping[str, str],
        cluster_id: str,
        on_active: Callable[[], None] = lambda: None,
    ) -> None:
        self._env = env
        self._config = config
        self._driver = driver
        rebalance_seconds = config.leader_imbalance_check_interval_seconds if config.auto_leader_rebalance_enable else 0
        timers = ControllerTimers(
            idle_interval_ns=config.metadata_max_idle_interval_ms * NS_PER_MS,
            preferred_interval_ns=rebalance_seconds * NS_PER_S,
        )
        settings = controller_settings(config, properties, cluster_id)
        self.controller = QuorumController(env, driver, settings, node_id=config.node_id, timers=timers, on_active=on_active)
        self._incarnation_id = env.uuid()
        self._requests = ControllerRequests(env, self.controller, driver, cluster_id=cluster_id)
        self._meter = ControllerMeter(env, self.controller)
        self._servers: list[RequestServer] = []

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """Returns the handlers of the APIs that a controller listener serves."""
        return self._requests.handlers()

    def metrics(self) -> Sequence[Sample]:
        """Returns the controller's current samples for the metrics collector."""
        return self._meter.samples()

    def start(self, task_group: asyncio.TaskGroup) -> list[Listener]:
        """Starts the controller and opens the listeners. All tasks belong to `task_group`. Raises ListenFailed."""
        self.controller.start(task_group)
        listeners: list[Listener] = []
        for endpoint in self._config.controller_listeners:
            server = RequestServer(
                self._env,
                listener_name=endpoint.name,
                host=endpoint.host,
                port=endpoint.port,
                handlers=self.handlers(),
                max_request_bytes=self._config.socket_request_max_bytes,
                task_group=task_group,
                limits=server_limits(self._config),
                numbering=lambda: self._driver.numbering,
            )
            listener = server.start()
            self._servers.append(server)
            listeners.append(listener)
            self._env.log.info("controller_listening", listener=endpoint.name, host=listener.host, port=listener.port)
        self.controller.register_as(self._registration([listener.port for listener in listeners]))
        return listeners

    def _registration(self, ports: Sequence[int]) -> ControllerRegistrationRequest:
        """Returns what this node registers as. `ports` are the bound ports of the listeners, in their order."""
        return ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                RegisteredListener(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port or port,
                    security_protocol=PLAINTEXT_PROTOCOL,
                )
                for endpoint, port in zip(self._config.advertised_controller_listeners, ports, strict=True)
            ],
            features=[
                Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
                for name, levels in CONTROLLER_FEATURES.items()
            ],
        )

    def close(self) -> None:
        """Closes the listeners. The tasks end with their TaskGroup."""
        for server in self._servers:
            server.close()
