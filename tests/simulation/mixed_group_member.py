"""A member of a group in the simulated workload that comes back with the other protocol now and then (KIP-848).

Shell of the tests. So classic groups become consumer groups and classic groups again while they have members, and both
protocols are spoken in one group.
"""

import contextlib
import random
from typing import TYPE_CHECKING

from common.net.node_channel import ChannelError
from tests.simulation.consumer_group_member import ConsumerGroupMember
from tests.simulation.group_member import ClassicConsumer

if TYPE_CHECKING:
    from tests.simulation.workload import WorkloadClient

# How often a client that is in no group changes its protocol before it goes on.
CHANGE_SHARE = 0.3
# How often a member leaves in order to come back, perhaps with the other protocol.
RESTART_SHARE = 0.05


class MixedGroupMember:
    """One client. `step` does the next thing and never raises."""

    def __init__(self, client: "WorkloadClient", group: str, topic: str) -> None:
        self.client = client
        self._group = group
        self._topic = topic
        self._rng = random.Random(f"{client._cluster.world.seed}/{client.name}/protocol")
        self._life = 0
        self._member = self._next_member()

    async def step(self) -> None:
        """Goes one step on, perhaps with another protocol than before."""
        if self._member.is_out:
            if self._rng.random() < CHANGE_SHARE:
                self._member = self._next_member()
        elif self._rng.random() < RESTART_SHARE:
            await self._restart()
            return
        await self._member.step()

    async def _restart(self) -> None:
        with contextlib.suppress(ChannelError):
            await self._member.leave()
        self._member = self._next_member()

    def _next_member(self) -> ClassicConsumer | ConsumerGroupMember:
        self._life += 1
        kind = self._rng.choice((ClassicConsumer, ConsumerGroupMember))
        return kind(self.client, self._group, self._topic, self._life)
