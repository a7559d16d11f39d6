"""One seed of trouble on a whole simulated cluster: clients write while disks and daemons fail, then everything is counted.

Each seed draws its cluster and its faults. One broker at a time is in trouble, and the next fault waits until every replica
is in sync again, so that something in sync is always left: then nothing acknowledged may be lost, and every partition must
come back. Invariants of the controller's image are looked at all the time. `make simulate SEED=n` replays a seed.
"""

import asyncio
import errno
import random
from dataclasses import dataclass, field

from common.ids import NO_LEADER, BrokerId
from tests.simulation.cluster import CONTROLLER_ID, NotAcknowledged, SimulatedClient, SimulatedCluster
from tests.simulation.environment import SimulatedWorld

TOPIC = "chaos"
LOOK_SECONDS = 0.05
CALM_SECONDS = 120


@dataclass(slots=True)
class SeedReport:
    """What a seed did, in numbers."""

    seed: int
    faults: list[str] = field(default_factory=list)
    acknowledged: int = 0
    refused: int = 0
    virtual_seconds: float = 0.0
    trace_hash: str = ""


def run_seed(seed: int) -> SeedReport:
    """Runs one seed. Raises AssertionError, or whatever a daemon fails with, when something is wrong."""
    world = SimulatedWorld(seed)
    report = SeedReport(seed)

    async def scenario(_: SimulatedWorld) -> None:
        await _Chaos(world, report).run()

    world.run(scenario)
    report.virtual_seconds = world.now_ns() / 1e9
    report.trace_hash = world.trace_hash()
    return report


class _Chaos:
    """One seed's run."""

    def __init__(self, world: SimulatedWorld, report: SeedReport) -> None:
        self._world = world
        self._report = report
        self._rng = random.Random(f"{world.seed}/chaos")
        self._cluster = SimulatedCluster(world, brokers=self._rng.randint(3, 4), disks=self._rng.randint(2, 4))
        self._partitions = self._rng.randint(2, 12)
        self._is_over = False

    async def run(self) -> None:
        await self._cluster.start()
        async with asyncio.TaskGroup() as group:
            client = SimulatedClient(self._cluster, group)
            await client.create_topic(TOPIC, partitions=self._partitions, min_insync_replicas="2")
            writers = [group.create_task(self._write(client, number)) for number in range(self._rng.randint(1, 4))]
            watcher = group.create_task(self._watch())
            for _ in range(self._rng.randint(2, 5)):
                await self._world.sleep(self._rng.uniform(0.1, 3))
                await self._one_fault()
                await self._cluster.until_running(CALM_SECONDS)
                await self._cluster.until_in_sync(TOPIC, CALM_SECONDS)
            self._is_over = True
            await asyncio.gather(*writers, watcher)
            await client.assert_nothing_lost()
            self._report.acknowledged = sum(map(len, client.acknowledged.values()))
            client.close()

    # --- clients -------------------------------------------------------------------------------------------------

    async def _write(self, client: SimulatedClient, writer: int) -> None:
        number = 0
        while not self._is_over:
            index = self._rng.randrange(self._partitions)
            try:
                await client.produce_once(TOPIC, index, b"%d/%d" % (writer, number))
            except NotAcknowledged:
                self._report.refused += 1
                await self._world.sleep(0.02)
            number += 1
            await self._world.sleep(self._rng.uniform(0.001, 0.05))

    # --- invariants ----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """I4, I6 and I7 of reference/faults.md on the controller's image; epochs never go back."""
        epochs: dict[int, tuple[int, int]] = {}
        while not self._is_over:
            for index, part in self._cluster.partitions(TOPIC).items():
                seen = (part.leader_epoch, part.partition_epoch)
                assert seen >= epochs.get(index, (0, 0)) or self._is_controller_loading(), f"{index}: epochs went back"
                if not self._is_controller_loading():
                    epochs[index] = seen
                if part.leader != NO_LEADER:
                    self._check_leader(index, part.leader)
            await self._world.sleep(LOOK_SECONDS)

    def _is_controller_loading(self) -> bool:
        node = self._cluster.nodes.get(CONTROLLER_ID)
        return node is None or node.controller is None or not node.controller.controller.is_active

    def _check_leader(self, index: int, leader: BrokerId) -> None:
        part = self._cluster.partition(TOPIC, index)
        registration = self._cluster.state.brokers[leader]
        assert leader in part.isr, f"{index}: leader {leader} is not in the ISR {part.isr}"
        assert not registration.fenced, f"{index}: leader {leader} is fenced"
        assert registration.has_online_directory(part.directory(leader)), f"{index}: leader {leader} is on an offline disk"
        fenced = [id_ for id_ in part.isr if self._cluster.state.brokers[id_].fenced]
        assert not fenced or len(part.isr) == 1, f"{index}: fenced brokers {fenced} in the ISR {part.isr}"

    # --- faults --------------------------------------------------------------------------------------------------

    async def _one_fault(self) -> None:
        faults = {
            "disk dies and is replaced": self._replace_disk,
            "disk dies and comes back": self._revive_disk,
            "disk hangs": self._hang_disk,
            "broker killed": self._kill_broker,
            "broker restarted in order": self._restart_broker,
            "controller killed": self._kill_controller,
            "broker cut off": self._cut_off,
        }
        name = self._rng.choice(list(faults))
        broker_id = self._rng.choice(self._cluster.broker_ids)
        self._report.faults.append(f"{self._world.now_ns() / 1e9:.3f}s {name} (broker {broker_id})")
        await faults[name](broker_id)

    async def _replace_disk(self, broker_id: int) -> None:
        number = self._rng.randint(1, self._cluster.disks)
        await self._fail_and_stop(broker_id, number, hang=False)
        self._cluster.disk(broker_id, number).heal()
        self._cluster.disk(broker_id, number).wipe()
        await self._cluster.format(broker_id, ignore_formatted=True)
        self._cluster.start_node(broker_id)

    async def _revive_disk(self, broker_id: int) -> None:
        number = self._rng.randint(1, self._cluster.disks)
        await self._fail_and_stop(broker_id, number, hang=False)
        self._cluster.disk(broker_id, number).heal()
        self._cluster.start_node(broker_id)

    async def _hang_disk(self, broker_id: int) -> None:
        number = self._rng.randint(1, self._cluster.disks)
        await self._fail_and_stop(broker_id, number, hang=True)
        self._cluster.disk(broker_id, number).thaw()
        self._cluster.start_node(broker_id)

    async def _fail_and_stop(self, broker_id: int, number: int, *, hang: bool) -> None:
        """A disk fails, the controller hears of it, the broker is stopped: in order or by force."""
        disk = self._cluster.disk(broker_id, number)
        if hang:
            disk.hang()
        else:
            disk.fail_with(errno.EIO)
        left = self._cluster.disks - 1
        await self._world.until(lambda: self._online_directories(broker_id) == left, within_seconds=CALM_SECONDS)
        await self._world.sleep(self._rng.uniform(0, 2))
        if self._rng.random() < 0.5:
            self._cluster.ask_to_stop(broker_id)
            await self._world.until(lambda: self._cluster.env(broker_id).is_dead, within_seconds=CALM_SECONDS)
        else:
            self._cluster.crash(broker_id)

    def _online_directories(self, broker_id: int) -> int:
        registration = self._cluster.state.brokers.get(BrokerId(broker_id))
        return -1 if registration is None else len(registration.directories)

    async def _kill_broker(self, broker_id: int) -> None:
        self._cluster.crash(broker_id)
        await self._world.sleep(self._rng.uniform(0, 8))
        self._cluster.start_node(broker_id)

    async def _restart_broker(self, broker_id: int) -> None:
        self._cluster.ask_to_stop(broker_id)
        await self._world.until(lambda: self._cluster.env(broker_id).is_dead, within_seconds=CALM_SECONDS)
        await self._world.sleep(self._rng.uniform(0, 2))
        self._cluster.start_node(broker_id)

    async def _kill_controller(self, _: int) -> None:
        self._cluster.crash(CONTROLLER_ID)
        await self._world.sleep(self._rng.uniform(0, 2))
        self._cluster.start_node(CONTROLLER_ID)
        await self._world.until(lambda: not self._is_controller_loading(), within_seconds=CALM_SECONDS)

    async def _cut_off(self, broker_id: int) -> None:
        name, controller = self._cluster.name(broker_id), self._cluster.name(CONTROLLER_ID)
        if self._rng.random() < 0.7:
            self._world.network.cut(name, controller)
        if self._rng.random() < 0.7:
            self._world.network.cut(controller, name)
        await self._world.sleep(self._rng.uniform(0, 8))
        self._world.network.mend()
