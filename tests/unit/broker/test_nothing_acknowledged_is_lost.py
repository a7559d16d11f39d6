"""Brokers crash, disks die and networks fail at random. In the end every acknowledged record must still be there.

`Chaos` contains a small controller that elects leaders as the real one does: only members of the ISR, only live brokers, and
only replicas in online directories. Everything else is the data path of the brokers as it runs in production.
"""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from common.ids import NO_LEADER, BrokerId, DirectoryId
from common.metadata.directory_ids import LOST
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.storage.read_limits import ReadLimits
from tests.unit.broker.cluster import TOPIC, Cluster, directory, path, run, values

BROKERS = (1, 2, 3)
PARTITIONS = 4


@dataclass
class History:
    """The acknowledged records as partition -> offset -> value, and how many records the clients have tried to produce."""

    acknowledged: dict[int, dict[int, str]] = field(default_factory=lambda: {index: {} for index in range(PARTITIONS)})
    attempts: int = 0


class Chaos:
    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.history = History()
        self.is_over = False

    # --- the controller ------------------------------------------------------------------------------------------

    def is_electable(self, index: int, broker_id: BrokerId) -> bool:
        known = self.cluster.controller.state.brokers.get(broker_id)
        if broker_id == NO_LEADER:
            return False
        where = self.cluster.controller.partition(index).directory(broker_id)
        return known is not None and not known.fenced and known.has_online_directory(where)

    def repair(self) -> None:
        """Brings leaders and ISRs in line with the live brokers."""
        for index in range(PARTITIONS):
            known = self.cluster.controller.partition(index)
            # If no ISR member can be elected, the ISR stays unchanged: only its members are known to have all acknowledged
            # records.
            isr = [member for member in known.isr if self.is_electable(index, member)] or list(known.isr)
            leader = known.leader
            if not self.is_electable(index, leader) or leader not in isr:
                electable = [member for member in isr if self.is_electable(index, member)]
                leader = self.rng.choice(electable) if electable else NO_LEADER
            if leader != known.leader:
                self.cluster.controller.change(index, isr=isr, leader=leader)
            elif tuple(isr) != known.isr:
                self.cluster.controller.change(index, isr=isr)

    def assign(self) -> None:
        """Does what AssignReplicasToDirs would do for every broker."""
        for broker in list(self.cluster.brokers.values()):
            for (topic_id, index), where in broker.replicas.wished_assignments().items():
                known = self.cluster.controller.partition(index, topic_id)
                directories: list[DirectoryId] = list(known.directories)
                directories[known.replicas.index(broker.broker_id)] = where
                self.cluster.controller.change(index, directories=directories)
        self.repair()

    # --- faults --------------------------------------------------------------------------------------------------

    def crash(self, broker_id: int) -> None:
        self.cluster.crash(broker_id)
        self.cluster.controller.fence(broker_id)
        self.repair()

    async def restart(self, broker_id: int) -> None:
        for letter in "ab":
            self.cluster.world.disk(path(broker_id, letter)).heal()
        await self.cluster.start(broker_id, "ab")
        self.repair()

    async def kill_disk(self, broker_id: int, letter: str) -> None:
        broker = self.cluster[broker_id]
        other = "b" if letter == "a" else "a"
        if directory(broker_id, other) not in broker.directories.online:
            return
        self.cluster.world.disk(path(broker_id, letter)).fail_with(5)
        await self.cluster.world.sleep(self.rng.random() * 0.3)
        if not broker.env.is_dead and broker.directories.any_offline:
            still = "".join(each for each in "ab" if directory(broker_id, each) in broker.directories.online)
            self.cluster.controller.fence(broker_id, still=still)
            self.repair()

    async def rage(self, rounds: int) -> None:
        for _ in range(rounds):
            await self.cluster.world.sleep(self.rng.random())
            alive = [each for each in BROKERS if BrokerId(each) in self.cluster.brokers]
            dead = [each for each in BROKERS if each not in alive]
            what = self.rng.random()
            if dead and (what < 0.4 or len(alive) == 1):
                await self.restart(self.rng.choice(dead))
            elif what < 0.55:
                self.crash(self.rng.choice(alive))
            elif what < 0.7:
                await self.kill_disk(self.rng.choice(alive), self.rng.choice("ab"))
            elif what < 0.8:
                one, other = self.rng.sample(BROKERS, 2)
                self.cluster.world.network.cut(f"broker-{one}", f"broker-{other}")
            elif what < 0.9:
                self.cluster.world.network.mend()
            else:
                index = self.rng.randrange(PARTITIONS)
                isr = [member for member in self.cluster.controller.partition(index).isr if self.is_electable(index, member)]
                if isr:
                    self.cluster.controller.change(index, leader=self.rng.choice(isr))
            self.assign()
            self.check()

    async def calm_down(self) -> None:
        self.cluster.world.network.mend()
        for broker_id in BROKERS:
            if BrokerId(broker_id) in self.cluster.brokers:
                self.crash(broker_id)
        for broker_id in BROKERS:
            await self.restart(broker_id)
        for _ in range(300):
            await self.cluster.world.sleep(0.1)
            self.assign()
            if all(len(self.cluster.controller.partition(index).isr) == len(BROKERS) for index in range(PARTITIONS)):
                return
        raise AssertionError([self.cluster.controller.partition(index) for index in range(PARTITIONS)])

    def check(self) -> None:
        """Checks that no high watermark is above the log's written end, and no written end above the log's end."""
        for broker in self.cluster.brokers.values():
            for key in broker.replicas.hosted_directories():
                partition = broker.partition(key.partition)
                assert partition.high_watermark <= partition.log.written_offset <= partition.log.log_end_offset

    # --- the client ----------------------------------------------------------------------------------------------

    async def produce_for_ever(self, index: int) -> None:
        while not self.is_over:
            await self.cluster.world.sleep(self.rng.random() * 0.05)
            leader = self.cluster.controller.partition(index).leader
            if BrokerId(leader) not in self.cluster.brokers:
                continue
            self.history.attempts += 1
            value = f"{index}/{self.history.attempts}"
            offset = await self.produce(leader, index, value)
            if offset is not None:
                assert offset not in self.history.acknowledged[index]
                self.history.acknowledged[index][offset] = value

    async def produce(self, leader: int, index: int, value: str) -> int | None:
        """Returns the offset of the acknowledged record, or None if it was not acknowledged."""
        answer = None
        try:
            answer = await self.cluster.produce(leader, value, index=index, timeout_ms=5000)
        except* ChannelError:
            pass
        return answer.base_offset if answer is not None and answer.error_code == ErrorCode.NONE else None

    async def verify(self) -> None:
        for index in range(PARTITIONS):
            leader = self.cluster.controller.partition(index).leader
            for broker_id in BROKERS:
                log = self.cluster[broker_id].partition(index).log
                content = await log.read_bytes(0, ReadLimits(max_bytes=1 << 30))
                found = dict(enumerate(values(content)))
                missing = {
                    offset: value for offset, value in self.history.acknowledged[index].items() if found.get(offset) != value
                }
                assert missing == {}, f"broker {broker_id}, leader {leader}, partition {index}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    """Three brokers with two disks each, four partitions with min.insync.replicas 2, twenty rounds of faults."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in BROKERS:
            await cluster.start(broker_id, "ab")
        cluster.controller.create_topic(*([1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]), configs={"min.insync.replicas": "2"})
        for index in range(PARTITIONS):
            await cluster.started(index)
        chaos = Chaos(cluster, seed)
        chaos.assign()
        async with asyncio.TaskGroup() as group:
            for index in range(PARTITIONS):
                group.create_task(chaos.produce_for_ever(index))
            await chaos.rage(20)
            chaos.is_over = True
        await chaos.calm_down()
        await chaos.verify()
        assert sum(map(len, chaos.history.acknowledged.values())) > 50
        for directories in (cluster.controller.partition(index).directories for index in range(PARTITIONS)):
            assert LOST not in directories
        assert TOPIC in cluster.controller.state.topics

    run(scenario, seed=seed, replica_lag_time_max_ms="1500")
