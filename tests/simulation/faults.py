"""The faults that a simulated cluster can suffer: for each kind, a function that causes it and one that mends it.

Shell of the tests. A `Fault` is plain data, drawn before the run. `Lab` applies and mends faults on a cluster, and restarts
ended nodes as a supervisor would, except those that a fault holds down. Faults overlap: mending a disk must not start a
broker that another fault keeps down, and a node that ended by itself must come back.
"""

import errno
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from common.records.batch import BatchError, BatchHeader, read_header
from common.storage.meta_properties import parse_meta_properties
from common.time_units import NS_PER_S
from tests.simulation.cluster import CONTROLLER_ID, SimulatedCluster
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEvent
from tests.simulation.network import LATENCY_NS
from tools.errors import ToolError

LAB = "lab"
SUPERVISOR_LOOK_SECONDS = 0.25
# The minimum time between two starts of the same node.
SUPERVISOR_DELAY_SECONDS = 1.0
# The lab kills a daemon that is still running this long after it was asked to stop, as supervisors do.
STOP_PATIENCE_SECONDS = 10.0
METADATA = "metadata"
SWAPPED = "disks swapped"
EXCHANGED = "disks of two brokers exchanged"
# The size of the part of a batch that its checksum does not cover.
BEFORE_CHECKSUMMED = 21
# A fault names its nodes by number. The numbers of the producers start here.
FIRST_CLIENT_ID = 1001
# Settings that a restarted node may get. Each changes how the node does its work.
OTHER_SETTINGS: tuple[Mapping[str, str], ...] = (
    {"log.segment.bytes": "20000"},
    {"replica.lag.time.max.ms": "3000"},
    {"replica.fetch.max.bytes": "2000", "replica.fetch.response.max.bytes": "4000"},
    {"replica.fetch.wait.max.ms": "50"},
    {"broker.heartbeat.interval.ms": "200"},
)

# How far a clock jumps. A longer jump would let what the daemons keep for a day or a week expire.
CLOCK_JUMPS_MS = (-70_000_000, -3_000_000, -60_000, -1_000, 1_000, 60_000, 3_000_000, 70_000_000)
CLOCK_JUMPS = "clock jumps"


class Target(Enum):
    """The part of the cluster that a fault hits."""

    DATA_DISK = "data disk"
    ANY_DISK = "any disk"
    TWO_DISKS = "two data disks of a broker"
    TWO_BROKERS = "a data disk of each of two brokers"
    NODE = "node"
    LINK = "link"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a schedule. `at_ns` counts from the start of the chaos phase."""

    at_ns: int
    kind: str
    node: int
    disk: str = ""
    """The directory, by its name under the node's home: `d1`, `metadata`."""
    duration_ns: int = 0
    peer: int = 0
    """The other end of a link."""
    other_disk: str = ""
    """The second disk, for a kind that needs two."""
    amount: int = 0
    """From 1 to 1,000: how slow, or how far into a file, depending on the kind."""
    by_force: bool = False
    """If mending needs a restart: whether the daemon is killed instead of asked to stop."""
    moment: str = ""
    """If set, the fault waits from `at_ns` on for the next event of this name."""
    is_there: bool = False
    """With a moment: the fault hits the event's node and the directory that the event names."""

    def __str__(self) -> str:
        where = f"node {self.node}" + (f" {self.disk}" if self.disk else "")
        where += f" -> node {self.peer}" if self.peer else ""
        where += f" and {self.other_disk}" if self.other_disk else ""
        how = " (restart by force)" if self.by_force else ""
        when = f", at the next {self.moment}" + (" there" if self.is_there else "") if self.moment else ""
        return f"{self.at_ns / NS_PER_S:7.3f}s for {self.duration_ns / NS_PER_S:6.3f}s  {self.kind}: {where}{how}{when}"

    def is_where(self, other: "Fault") -> bool:
        """Whether both faults hit the same place, so that they must not overlap."""
        if {self.node, self.peer} != {other.node, other.peer}:
            return False
        mine, its = ({one.disk, one.other_disk} - {""} for one in (self, other))
        return bool(mine & its) or mine == its


class Lab:
    """Breaks and mends the parts of a cluster, and restarts its nodes."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self._held_down: dict[int, int] = {}
        self._to_format: dict[int, None] = {}
        self._not_before_ns: dict[int, int] = {}
        # The settings for a node's next life.
        self._settings: dict[int, Mapping[str, str]] = {}
        # The disk that each fault broke. Mending must find that disk even if it was moved to another path meanwhile.
        self._disks: dict[Fault, SimulatedDisk] = {}
        self.harmed: dict[str, None] = {}
        """The paths of the directories whose disks were ever hit by a fault."""
        self._is_over = False

    # --- words for the log ---------------------------------------------------------------------------------------
    def note(self, name: str, **fields: object) -> None:
        """Adds a line to the event log on behalf of the lab."""
        self.world.trace(LAB, name, *(str(value) for value in fields.values()))
        self.world.events.append(SimulatedEvent(self.world.now_ns(), LAB, "info", name, dict(fields)))

    # --- faults --------------------------------------------------------------------------------------------------
    def apply(self, fault: Fault) -> None:
        """Causes the fault."""
        self.note("fault", kind=fault.kind, **self._place(fault))
        if KINDS[fault.kind].harms_disks:
            self.harmed |= dict.fromkeys(self._paths(fault))
        KINDS[fault.kind].apply(self, fault)

    async def mend(self, fault: Fault) -> None:
        """Ends the fault. If that needs a restart, the node has ended when this returns, and `supervise` starts it again."""
        self.note("mended", kind=fault.kind, **self._place(fault))
        await KINDS[fault.kind].mend(self, fault)

    def name(self, node_id: int) -> str:
        if node_id == 0:
            return "everybody"
        if node_id >= FIRST_CLIENT_ID:
            return f"client-producer-{node_id - FIRST_CLIENT_ID + 1}"
        return self.cluster.name(node_id)

    def _place(self, fault: Fault) -> dict[str, object]:
        return {
            "node": self.name(fault.node),
            "disk": fault.disk,
            "other_disk": fault.other_disk,
            "peer": self.name(fault.peer) if fault.peer else "",
        }

    def path(self, fault: Fault) -> str:
        return f"{self.cluster.home(fault.node)}/{fault.disk}"

    def other_path(self, fault: Fault) -> str:
        return f"{self.cluster.home(fault.peer or fault.node)}/{fault.other_disk}"

    def _paths(self, fault: Fault) -> list[str]:
        """Returns the paths of the directories that the fault names."""
        return [self.path(fault)] * bool(fault.disk) + [self.other_path(fault)] * bool(fault.other_disk)

    def disk(self, fault: Fault) -> SimulatedDisk:
        """Returns the disk that was at the fault's path when the fault happened."""
        if fault not in self._disks:
            self._disks[fault] = self.world.disk(self.path(fault))
        return self._disks[fault]

    # --- nodes ---------------------------------------------------------------------------------------------------
    def hold_down(self, node_id: int) -> None:
        """Stops `supervise` from starting this node until `let_go` has been called as often as `hold_down`."""
        self._held_down[node_id] = self._held_down.get(node_id, 0) + 1

    def let_go(self, node_id: int) -> None:
        """Ends one hold."""
        self._held_down[node_id] -= 1

    def is_held_down(self, node_id: int) -> bool:
        return self._held_down.get(node_id, 0) > 0

    def is_alive(self, node_id: int) -> bool:
        return not self.cluster.env(node_id).is_dead

    def configure(self, node_id: int, settings: Mapping[str, str]) -> None:
        """Sets the configuration of the node's next life."""
        self._settings[node_id] = settings

    def kill(self, node_id: int) -> None:
        """kill -9."""
        if self.is_alive(node_id):
            self.cluster.crash(node_id)

    async def stop(self, node_id: int, *, by_force: bool = False) -> None:
        """Ends the node's present life: asks it to stop, and kills it if it does not stop in time. `by_force` kills it at
        once."""
        life = self.cluster.env(node_id)
        if not life.is_dead and not by_force:
            self.cluster.ask_to_stop(node_id)
            give_up_ns = self.world.now_ns() + round(STOP_PATIENCE_SECONDS * NS_PER_S)
            while not life.is_dead and self.world.now_ns() < give_up_ns:
                await self.world.sleep(0.02)
        if not life.is_dead:
            self.cluster.crash(node_id)

    async def replace_disk(self, fault: Fault) -> None:
        """Replaces the disk with an empty one, which is formatted before the node starts again."""
        self.hold_down(fault.node)
        await self.stop(fault.node, by_force=fault.by_force)
        self.disk(fault).wipe()
        self._to_format[fault.node] = None
        self.let_go(fault.node)

    async def restart_if_it_lost_directories(self, fault: Fault) -> None:
        """Ends the node if it has taken a directory offline. Only a new incarnation gets the directory back."""
        if self.cluster.has_lost_directories(fault.node):
            await self.stop(fault.node, by_force=fault.by_force)

    async def add_disk(self, broker_id: int) -> None:
        """Stops the broker in order. Its next life has a further disk, which is formatted before."""
        self.hold_down(broker_id)
        await self.stop(broker_id)
        self.cluster.add_disk(broker_id)
        self._to_format[broker_id] = None
        self.let_go(broker_id)

    async def lose_disks(self, disks: Mapping[int, SimulatedDisk]) -> None:
        """Kills these brokers at the same moment. Each one comes back with an empty disk in place of its old one."""
        for broker_id in disks:
            self.hold_down(broker_id)
            self.kill(broker_id)
        await self.world.sleep(0.1)
        for broker_id, disk in disks.items():
            disk.wipe()
            self._to_format[broker_id] = None
            self.let_go(broker_id)

    async def supervise(self) -> None:
        """Restarts nodes that have ended, unless a fault holds them down."""
        while not self._is_over:
            for node_id in (CONTROLLER_ID, *self.cluster.broker_ids):
                if self._may_start(node_id) and self.world.now_ns() >= self._not_before_ns.get(node_id, 0):
                    await self._start(node_id)
            await self.world.sleep(SUPERVISOR_LOOK_SECONDS)

    def end(self) -> None:
        """Ends `supervise`."""
        self._is_over = True

    def _has_all_mounts(self, node_id: int) -> bool:
        return all(disk.at_path() is disk for disk in self._data_disks(node_id))

    def _is_formatted(self, node_id: int) -> bool:
        """Whether each disk at the node's paths was formatted for this node. It may belong to another broker."""
        contents = [disk.files().get("meta.properties") for disk in self._data_disks(node_id)]
        return all(content is not None and parse_meta_properties(content).node_id == node_id for content in contents)

    def _data_disks(self, node_id: int) -> list[SimulatedDisk]:
        return [self.cluster.disk(node_id, number) for number in self.cluster.disk_numbers(node_id)]

    def _may_start(self, node_id: int) -> bool:
        return not self.is_alive(node_id) and not self.is_held_down(node_id)

    async def _start(self, node_id: int) -> None:
        self._not_before_ns[node_id] = self.world.now_ns() + round(SUPERVISOR_DELAY_SECONDS * NS_PER_S)
        if node_id in self._to_format:
            if not self._has_all_mounts(node_id):
                # Do not format while a mount is missing: that would format the directory below the mount point.
                return
            # Remove the entry before the formatting: if another disk of the node is replaced meanwhile, the entry is added
            # again.
            del self._to_format[node_id]
            try:
                await self.cluster.format(node_id, ignore_formatted=True)
            except ToolError as error:
                self.note("not_formatted", node=self.cluster.name(node_id), reason=str(error))
                # The unformatted disk may be in another broker at the moment. Try again later.
                self._to_format[node_id] = None
            if not self._is_formatted(node_id):
                # Formatting skipped a disk that could not be read, which may even be another broker's.
                self._to_format[node_id] = None
            if node_id in self._to_format:
                return
        # Formatting took some time, and a new fault may hold the node down by now.
        if self._may_start(node_id):
            self.note("started", node=self.cluster.name(node_id))
            self.cluster.start_node(node_id, self._settings.pop(node_id, None))


@dataclass(frozen=True, slots=True)
class Kind:
    """How to cause and mend one kind of fault."""

    target: Target
    apply: Callable[[Lab, Fault], None]
    mend: Callable[[Lab, Fault], Awaitable[None]]
    loses_data: bool = False
    """Whether written data may be lost from the disk, or from every disk of the node."""
    harms_disks: bool = True
    """Whether a broker may take the disk that the fault names offline because of it."""
    seconds: tuple[float, float] = (0.05, 12.0)
    """The range of durations to draw from."""
    is_rare: bool = False
    """Whether only seeds that draw this kind on its own have it."""


# --- disks -------------------------------------------------------------------------------------------------------


def _eio(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).fail_with(errno.EIO)


def _read_only(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).make_read_only()


def _unreadable(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).fail_reads()


def _slow(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).slow_down(float(fault.amount))


def _run_short(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).run_short(fault.amount / 1000)


async def _heal_disk(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).heal()
    await lab.stop(fault.node, by_force=fault.by_force)


async def _replace_disk(lab: Lab, fault: Fault) -> None:
    await lab.replace_disk(fault)


def _take_away(lab: Lab, fault: Fault) -> None:
    """Ends the broker before its healthy disk is replaced. The broker is either killed, so that it reports nothing, or shut
    down cleanly."""
    lab.hold_down(fault.node)
    if fault.by_force:
        lab.kill(fault.node)
    elif lab.is_alive(fault.node):
        lab.cluster.ask_to_stop(fault.node)


async def _put_in_an_empty_one(lab: Lab, fault: Fault) -> None:
    await lab.replace_disk(fault)
    lab.let_go(fault.node)


def _clone(lab: Lab, fault: Fault) -> None:
    """Makes the broker start with two directories of the same id, which it must refuse."""
    lab.kill(fault.node)
    lab.disk(fault).copy_from(lab.world.disk(lab.other_path(fault)))


def _kill_and_eio(lab: Lab, fault: Fault) -> None:
    """Kills the broker and breaks one of its disks, so that its next life starts without this disk."""
    lab.kill(fault.node)
    _eio(lab, fault)


def _swap(lab: Lab, fault: Fault) -> None:
    lab.hold_down(fault.node)
    lab.kill(fault.node)
    lab.world.swap_disks(lab.path(fault), lab.other_path(fault))


def _exchange(lab: Lab, fault: Fault) -> None:
    """Exchanges one disk between two brokers. Neither may touch the other's disk, however often it is started."""
    lab.kill(fault.node)
    lab.kill(fault.peer)
    lab.world.swap_disks(lab.path(fault), lab.other_path(fault))


async def _exchange_back(lab: Lab, fault: Fault) -> None:
    for node_id in (fault.node, fault.peer):
        lab.hold_down(node_id)
        # Stop the broker: if it could not read the other broker's disk, it may be running without that directory.
        await lab.stop(node_id, by_force=True)
    lab.world.swap_disks(lab.path(fault), lab.other_path(fault))
    lab.let_go(fault.node)
    lab.let_go(fault.peer)


def _fail_fsync_once(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).fail_fsync_once(errno.ENOSPC if fault.amount % 2 else errno.EIO)


def _rot(lab: Lab, fault: Fault) -> None:
    """Silently flips a byte of some batch. Spares the head of the batch: no checksum covers it, so the broker could not
    notice the damage."""
    disk = lab.disk(fault)
    places = [
        (name, header.size, batch_end - header.size)
        for name, content in disk.files().items()
        if name.endswith(".log")
        for header, batch_end in _batches(content)
    ]
    if places:
        name, size, position = places[fault.amount * len(places) // 1001]
        covered = size - BEFORE_CHECKSUMMED
        disk.corrupt(name, position + BEFORE_CHECKSUMMED + fault.amount % covered)


def _batches(content: bytes) -> Iterator[tuple[BatchHeader, int]]:
    """Yields the header and the end position of each whole batch, up to the first that is damaged or incomplete."""
    end = 0
    while end < len(content):
        try:
            header = read_header(content, end)
        except BatchError:
            # An earlier fault has damaged this batch.
            return
        end += header.size
        if end > len(content):
            return
        yield header, end


def _hang(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).hang()


async def _thaw(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).thaw()
    await lab.restart_if_it_lost_directories(fault)


def _fill(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).fill(fault.amount)


async def _make_room(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).free_space()
    await lab.restart_if_it_lost_directories(fault)


async def _speed_up(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).heal()
    await lab.restart_if_it_lost_directories(fault)


def _unmount(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).unmount()


async def _mount(lab: Lab, fault: Fault) -> None:
    lab.disk(fault).mount()
    await lab.stop(fault.node, by_force=fault.by_force)


# --- nodes -------------------------------------------------------------------------------------------------------


def _kill(lab: Lab, fault: Fault) -> None:
    lab.hold_down(fault.node)
    lab.kill(fault.node)


def _cut_power(lab: Lab, fault: Fault) -> None:
    lab.hold_down(fault.node)
    lab.world.power_cut(lab.cluster.name(fault.node))


async def _let_go(lab: Lab, fault: Fault) -> None:
    lab.let_go(fault.node)


def _nothing(lab: Lab, fault: Fault) -> None:
    pass


async def _stop_in_order(lab: Lab, fault: Fault) -> None:
    await lab.stop(fault.node)


async def _stop_and_configure(lab: Lab, fault: Fault) -> None:
    lab.configure(fault.node, OTHER_SETTINGS[fault.amount % len(OTHER_SETTINGS)])
    await lab.stop(fault.node, by_force=fault.by_force)


def _pause(lab: Lab, fault: Fault) -> None:
    env = lab.cluster.env(fault.node)
    if not env.is_dead and not env.is_paused:
        lab.cluster.pause(fault.node)


async def _resume(lab: Lab, fault: Fault) -> None:
    lab.cluster.resume(fault.node)


def _jump(lab: Lab, fault: Fault) -> None:
    lab.world.clock_errors_ms[lab.name(fault.node)] = CLOCK_JUMPS_MS[fault.amount % len(CLOCK_JUMPS_MS)]


async def _jump_back(lab: Lab, fault: Fault) -> None:
    del lab.world.clock_errors_ms[lab.name(fault.node)]


# --- network -----------------------------------------------------------------------------------------------------


def _cut_one_way(lab: Lab, fault: Fault) -> None:
    lab.world.network.cut(lab.name(fault.node), lab.name(fault.peer))


async def _mend_one_way(lab: Lab, fault: Fault) -> None:
    lab.world.network.mend(lab.name(fault.node), lab.name(fault.peer))


def _cut_both_ways(lab: Lab, fault: Fault) -> None:
    one, other = lab.name(fault.node), lab.name(fault.peer)
    lab.world.network.cut(one, other)
    lab.world.network.cut(other, one)


async def _mend_both_ways(lab: Lab, fault: Fault) -> None:
    one, other = lab.name(fault.node), lab.name(fault.peer)
    lab.world.network.mend(one, other)
    lab.world.network.mend(other, one)


def _reset(lab: Lab, fault: Fault) -> None:
    lab.world.network.reset(lab.name(fault.node), lab.name(fault.peer))


async def _nothing_to_mend(lab: Lab, fault: Fault) -> None:
    pass


def _read_slowly(lab: Lab, fault: Fault) -> None:
    lab.world.network.slow_reader(lab.name(fault.node), fault.amount * 100)


async def _read_at_full_speed(lab: Lab, fault: Fault) -> None:
    lab.world.network.slow_reader(lab.name(fault.node), None)


def _make_network_slow(lab: Lab, fault: Fault) -> None:
    lab.world.network.set_latency(LATENCY_NS[0], fault.amount * 200_000)


async def _make_network_fast(lab: Lab, fault: Fault) -> None:
    lab.world.network.set_latency(*LATENCY_NS)


KINDS = {
    "disk dies and comes back": Kind(Target.ANY_DISK, _eio, _heal_disk),
    "disk dies and is replaced": Kind(Target.DATA_DISK, _eio, _replace_disk, loses_data=True),
    "empty disk at a restart": Kind(
        Target.DATA_DISK, _take_away, _put_in_an_empty_one, loses_data=True, seconds=(0.05, 6.0)
    ),
    "disk read-only": Kind(Target.ANY_DISK, _read_only, _heal_disk),
    "disk unreadable": Kind(Target.ANY_DISK, _unreadable, _heal_disk),
    "disk hangs": Kind(Target.ANY_DISK, _hang, _thaw, seconds=(0.1, 8.0)),
    "disk slow": Kind(Target.ANY_DISK, _slow, _speed_up),
    "process short of files": Kind(Target.ANY_DISK, _run_short, _speed_up, harms_disks=False),
    "disk full": Kind(Target.DATA_DISK, _fill, _make_room),
    "fsync fails once": Kind(Target.ANY_DISK, _fail_fsync_once, _heal_disk, loses_data=True),
    "bits rot": Kind(Target.DATA_DISK, _rot, _replace_disk, loses_data=True),
    "mount vanishes": Kind(Target.ANY_DISK, _unmount, _mount),
    SWAPPED: Kind(Target.TWO_DISKS, _swap, _let_go, seconds=(0.05, 5.0)),
    EXCHANGED: Kind(Target.TWO_BROKERS, _exchange, _exchange_back, seconds=(0.5, 5.0)),
    "disk cloned": Kind(Target.TWO_DISKS, _clone, _replace_disk, loses_data=True, seconds=(0.5, 5.0)),
    "disk dead at a restart": Kind(Target.ANY_DISK, _kill_and_eio, _heal_disk),
    "node killed": Kind(Target.NODE, _kill, _let_go, seconds=(0.05, 8.0)),
    "power cut": Kind(Target.NODE, _cut_power, _let_go, loses_data=True, seconds=(0.05, 8.0)),
    "node restarted in order": Kind(Target.NODE, _nothing, _stop_in_order, seconds=(0.0, 0.1)),
    "node restarted with other settings": Kind(Target.NODE, _nothing, _stop_and_configure, seconds=(0.0, 0.1)),
    "node paused": Kind(Target.NODE, _pause, _resume, seconds=(0.05, 8.0)),
    CLOCK_JUMPS: Kind(Target.NODE, _jump, _jump_back, is_rare=True),
    "slow reader": Kind(Target.NODE, _read_slowly, _read_at_full_speed, seconds=(0.1, 8.0)),
    "slow network": Kind(Target.NETWORK, _make_network_slow, _make_network_fast, seconds=(0.1, 8.0)),
    "connections reset": Kind(Target.LINK, _reset, _nothing_to_mend, seconds=(0.0, 0.1)),
    "link cut one way": Kind(Target.LINK, _cut_one_way, _mend_one_way, seconds=(0.05, 10.0)),
    "link cut": Kind(Target.LINK, _cut_both_ways, _mend_both_ways, seconds=(0.05, 10.0)),
}


def disks_of(fault: Fault, cluster: SimulatedCluster) -> list[str]:
    """Returns the names of the directories that a fault may change on its node: those that the fault names, or all data
    directories if it names none."""
    if fault.disk:
        return [name for name in (fault.disk, fault.other_disk) if name]
    return [f"d{number}" for number in cluster.disk_numbers(fault.node)]
