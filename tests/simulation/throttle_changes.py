"""An operator who throttles replication and moves between directories, and changes the rates while they are in progress
(KIP-73, KIP-113), in a run of the simulator."""

import random
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from tests.simulation.workload import WorkloadClient

ANSWER_SECONDS = 10.0
RETRY_PAUSE = 0.3
# How many attempts to end the throttles may fail, once the cluster is healthy.
ATTEMPTS_MAX = 50
ALL_REPLICAS = "*"
RATES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
# The lowest rate lets one batch through in several seconds.
BYTES_PER_SECOND = ("100", "5000", "100000")
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class ThrottleChanges:
    """What the operator does."""

    def __init__(self, cluster: SimulatedCluster, client: "WorkloadClient", topics: list[str], partitions: int) -> None:
        self._cluster = cluster
        self._client = client
        self._topics = topics
        self._partitions = partitions
        self._rng = random.Random(f"{cluster.world.seed}/{client.name}/choices")

    async def change(self) -> None:
        """Changes or removes one rate of a broker, or the throttled replicas of a topic. The brokers may not answer."""
        if self._rng.random() < 0.5:
            broker_id = self._rng.choice(self._cluster.broker_ids)
            values = (None, *BYTES_PER_SECOND)
            await self._set(ConfigResourceType.BROKER, str(broker_id), {self._rng.choice(RATES): self._rng.choice(values)})
        else:
            replicas = [
                f"{index}:{broker_id}" for index in range(self._partitions) for broker_id in self._cluster.broker_ids
            ]
            some = ",".join(self._rng.sample(replicas, self._rng.randint(1, len(replicas))))
            value = self._rng.choice((None, ALL_REPLICAS, some))
            await self._set(ConfigResourceType.TOPIC, self._rng.choice(self._topics), {self._rng.choice(THROTTLED): value})

    async def end(self) -> None:
        """Removes all rates. The cluster must be healthy. The replicas stay throttled, at any rate."""
        for broker_id in self._cluster.broker_ids:
            attempts = 1
            while not await self._set(ConfigResourceType.BROKER, str(broker_id), dict.fromkeys(RATES)):
                assert attempts < ATTEMPTS_MAX, f"the throttles of broker {broker_id} cannot be ended"
                attempts += 1
                await self._client.pause(RETRY_PAUSE)

    async def _set(self, kind: ConfigResourceType, name: str, values: dict[str, str | None]) -> bool:
        """Sets each key to its value, or removes it if there is none. Returns whether that is so."""
        changes = [
            AlterableConfig(
                name=key,
                config_operation=ConfigOperation.DELETE if value is None else ConfigOperation.SET,
                value=value,
            )
            for key, value in values.items()
        ]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        try:
            answer = await self._client.send(self._client._any_broker(), request, seconds=ANSWER_SECONDS)
        except ChannelError:
            return False
        [result] = answer.responses
        assert result.error_code != ErrorCode.INVALID_CONFIG, result.error_message
        return bool(result.error_code == ErrorCode.NONE)
