"""A cluster that begins below the level of directory assignment and rises above it, in a run of the simulator.

As KIP-858 describes it ("Migrating a cluster in KRaft without JBOD"): the level rises, every broker registers its only
directory, and gets further ones at later restarts. Some clusters fall again by an unsafe downgrade, which forgets the
directories, and rise once more. In between no broker with several directories can register. One of them may lose a disk
then: it must end, because nobody else would move its leaders away.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from common.ids import BrokerId
from common.metadata.metadata_version import METADATA_VERSION_FEATURE
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.elect_leaders import ElectionType, ElectLeadersRequest, TopicPartitions
from common.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from common.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpgradeType
from common.records.metadata_records import ConfigResourceType
from common.time_units import NS_PER_S
from tests.simulation.cluster import SimulatedClient, SimulatedCluster
from tests.simulation.faults import Fault, Lab

# How long one attempt may take, and all of them.
ANSWER_SECONDS = 5.0
BOUND_SECONDS = 90.0
RETRY_SECONDS = 0.2
# How soon a broker must notice that a disk is dead and end, and how soon it must lead nothing.
END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Rise:
    """What a seed with a rise decides beforehand."""

    level: int
    at_ns: int | None
    """When it happens during the trouble. None: when the cluster has settled after it."""
    further_disks: int
    falls: bool


class LevelChanges:
    """What the operator of a running cluster does when its level changes: changes it, gives the brokers further disks, and
    elects leaders where there are none."""

    def __init__(self, cluster: SimulatedCluster, lab: Lab, group: asyncio.TaskGroup) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._lab = lab
        self._client = SimulatedClient(cluster, group)

    async def update(self, level: int, kind: UpgradeType, *, feature: str = METADATA_VERSION_FEATURE) -> None:
        """Asks one broker after the other until the level of the feature is this. Raises AssertionError if the controller
        refuses it, or if nobody answers in time."""
        update = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
        request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=round(ANSWER_SECONDS * 1000))
        deadline_ns = self._world.now_ns() + round(BOUND_SECONDS * NS_PER_S)
        attempt = 0
        while not await self._is_updated(self._cluster.broker_ids[attempt % len(self._cluster.broker_ids)], request):
            attempt += 1
            assert self._world.now_ns() < deadline_ns, f"{feature} is not {level} after {attempt} attempts"
            await self._world.sleep(RETRY_SECONDS)
        self._lab.note("level_changed", feature=feature, level=level)

    async def _is_updated(self, broker_id: int, request: UpdateFeaturesRequest) -> bool:
        if self._cluster.env(broker_id).is_dead:
            return False
        try:
            answer = await self._client.ask(broker_id, request, seconds=ANSWER_SECONDS)
        except ChannelError:
            return False
        # A level that is reached already is no error: the answer to an earlier attempt was lost.
        assert answer.error_code not in (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.INVALID_REQUEST), answer.error_message
        return bool(answer.error_code == ErrorCode.NONE)

    async def elect_uncleanly(self, topic: str, index: int) -> None:
        """Asks a broker once for an unclean election of one partition, as an operator does for one whose replicas are all
        lost. Allows such elections for the topic first, which the checkers go by."""
        allowed = AlterableConfig(name="unclean.leader.election.enable", value="true")
        resource = AlterConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=topic, configs=[allowed])
        partitions = [TopicPartitions(topic=topic, partitions=[index])]
        election = ElectLeadersRequest(topic_partitions=partitions, election_type=ElectionType.UNCLEAN, timeout_ms=1000)
        broker_id = self._cluster.broker_ids[0]
        with suppress(ChannelError):
            request = IncrementalAlterConfigsRequest(resources=[resource])
            answer = await self._client.ask(broker_id, request, seconds=ANSWER_SECONDS)
            if answer.responses[0].error_code == ErrorCode.NONE:
                await self._client.ask(broker_id, election, seconds=ANSWER_SECONDS)

    async def add_disks(self, converge: Callable[[], Awaitable[None]]) -> None:
        """Gives each broker one more disk, one broker after the other."""
        for broker_id in self._cluster.broker_ids:
            await self._lab.add_disk(broker_id)
            await converge()

    async def lose_disk(self, fault: Fault) -> None:
        """Breaks one of several disks of a broker below the level of directory assignment. Returns once the broker has ended
        and leads nothing. It stays down (`Lab.let_go`), with its disk mended. Raises AssertionError if it goes on."""
        self._lab.hold_down(fault.node)
        self._lab.apply(fault)
        await self._world.until(lambda: not self._lab.is_alive(fault.node), within_seconds=END_SECONDS)
        # A controller that does not get the last words waits for the end of the session.
        broker_id = BrokerId(fault.node)
        await self._world.until(lambda: not self._cluster.state.leads_any(broker_id), within_seconds=BOUND_SECONDS)
        await self._lab.mend(fault)

    def close(self) -> None:
        self._client.close()
