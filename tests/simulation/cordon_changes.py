"""An operator who cordons directories (KIP-1066), in a run of the simulator."""

import random
from collections.abc import Sequence
from typing import Any, Protocol

from common.configuration.server import ALL_LOG_DIRS, CORDONED_LOG_DIRS
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from common.records.metadata_records import ConfigResourceType
from tests.simulation.cluster import SimulatedCluster

ANSWER_SECONDS = 10.0
RETRY_PAUSE = 0.3
# How many attempts to end the cordons of one broker may fail, once the cluster is healthy.
ATTEMPTS_MAX = 50


class Client(Protocol):
    """The part of a WorkloadClient that is used here."""

    name: str

    async def send(self, broker_id: int, request: Any, *, seconds: float) -> Any: ...

    async def pause(self, mean_seconds: float) -> None: ...


class CordonChanges:
    """What the operator does."""

    def __init__(self, cluster: SimulatedCluster, client: Client) -> None:
        self._cluster = cluster
        self._client = client
        self._rng = random.Random(f"{cluster.world.seed}/{client.name}/choices")

    async def change(self) -> None:
        """Cordons some directories of one broker, or all or none of them. The broker may not answer."""
        broker_id = self._rng.choice(self._cluster.broker_ids)
        paths = self._cluster.config(broker_id).log_dirs
        some = self._rng.sample(paths, self._rng.randint(1, len(paths)))
        await self._cordon(broker_id, self._rng.choice([(), (ALL_LOG_DIRS,), some]))

    async def end(self) -> None:
        """Ends all cordons. The cluster must be healthy."""
        for broker_id in self._cluster.broker_ids:
            attempts = 1
            while not await self._cordon(broker_id, ()):
                assert attempts < ATTEMPTS_MAX, f"the cordons of broker {broker_id} cannot be ended"
                attempts += 1
                await self._client.pause(RETRY_PAUSE)

    async def _cordon(self, broker_id: int, paths: Sequence[str]) -> bool:
        """Asks the broker to have exactly these directories cordoned. Returns whether that is so."""
        operation = ConfigOperation.SET if paths else ConfigOperation.DELETE
        change = AlterableConfig(
            name=CORDONED_LOG_DIRS, config_operation=operation, value=",".join(paths) if paths else None
        )
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.BROKER, resource_name=str(broker_id), configs=[change]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        try:
            answer = await self._client.send(broker_id, request, seconds=ANSWER_SECONDS)
        except ChannelError:
            return False
        [result] = answer.responses
        assert result.error_code != ErrorCode.INVALID_CONFIG, result.error_message
        return bool(result.error_code == ErrorCode.NONE)
