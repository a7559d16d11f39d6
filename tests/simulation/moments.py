"""Faults that wait for an event, so that they hit in the middle of an operation.

Shell of the tests. An event is logged in the middle of a daemon's step. The fault comes right after that step, at the same
virtual time or a little later. No daemon logs `HALF_SWAPPED` and `HALF_COMPACTED`, they are seen on the disks: a move is
between the two renames of its swap; an old segment has lost its name to a compacted one, which has not got it yet.
"""

import asyncio
from dataclasses import replace

from common.storage.names import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX
from tests.simulation.cluster import CONTROLLER_ID
from tests.simulation.environment import SimulatedEvent, SimulatedWorld
from tests.simulation.faults import KINDS, METADATA, Fault, Target

DELAYS_SECONDS = (0.0, 0.0, 0.0, 0.001, 0.005, 0.05, 0.3)
EVERY_NODE = (Target.NODE, Target.LINK)
HALF_SWAPPED = "half_swapped"
HALF_COMPACTED = "half_compacted"
# A fault with this amount has no delay, hits the target of a move rather than its source, and the moving broker rather than
# the controller.
AMOUNT_AT_ONCE_AT_THE_TARGET = 14


class Moments:
    """The waiting faults of one world, until `end()`."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._waiting: list[tuple[Fault, asyncio.Future[SimulatedEvent | None]]] = []
        self._is_over = False
        world.event_watchers.append(self._happens)
        world.operation_watchers.append(self._operates)

    async def wait(self, fault: Fault) -> Fault | None:
        """Waits for the fault's event. Returns the fault with its final target, or None if the event did not come."""
        if not fault.moment:
            return fault
        if self._is_over:
            return None
        waiter: asyncio.Future[SimulatedEvent | None] = self._world.loop.create_future()
        self._waiting.append((fault, waiter))
        event = await waiter
        if event is None:
            return None
        await self._world.sleep(DELAYS_SECONDS[fault.amount % len(DELAYS_SECONDS)])
        return _placed(fault, event) if fault.is_there else fault

    def _happens(self, event: SimulatedEvent) -> None:
        still_waiting = []
        for fault, waiter in self._waiting:
            if fault.moment == event.name:
                waiter.set_result(event)
            else:
                still_waiting.append((fault, waiter))
        self._waiting = still_waiting

    def _operates(self, path: str, kind: str, name: str) -> None:
        if kind != "rename":
            return
        for moment, look in ((HALF_SWAPPED, _half_swapped), (HALF_COMPACTED, _half_compacted)):
            if any(fault.moment == moment for fault, _ in self._waiting):
                event = look(self._world, path, name)
                if event is not None:
                    self._happens(event)

    def end(self) -> None:
        """Ends all waits: the faults that are still waiting do not happen."""
        self._is_over = True
        for _, waiter in self._waiting:
            waiter.set_result(None)
        self._waiting.clear()


def _half_swapped(world: SimulatedWorld, path: str, renamed: str) -> SimulatedEvent | None:
    """Returns the event if the folder was the current log of a moving replica, whose copy has not got its name yet."""
    home = path.rpartition("/")[0]
    deleted = [name for name in world.disk(path).folders() if name.startswith(f"{renamed}.") and name.endswith("-delete")]
    copies = {f"{name.removesuffix('-delete')}-future" for name in deleted}
    for target in world.paths_under(home):
        if target != path and copies & set(world.disk(target).folders()):
            fields = {"source": path, "target": target}
            return SimulatedEvent(world.now_ns(), home.replace("/b", "broker-"), "info", HALF_SWAPPED, fields)
    return None


def _half_compacted(world: SimulatedWorld, path: str, renamed: str) -> SimulatedEvent | None:
    """Returns the event if the file was a segment that a compaction is replacing."""
    if not renamed.endswith(LOG_SUFFIX):
        return None
    folder = f"{renamed.rpartition('/')[0]}/"
    names = [name for name in world.disk(path).files() if name.startswith(folder)]
    if renamed + DELETED_SUFFIX not in names:
        return None
    if not any(name.endswith((LOG_SUFFIX + CLEANED_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX)) for name in names):
        return None
    node = path.rpartition("/")[0].replace("/b", "broker-")
    return SimulatedEvent(world.now_ns(), node, "info", HALF_COMPACTED, {"log_dir": path})


def _placed(fault: Fault, event: SimulatedEvent) -> Fault:
    """Returns the fault moved to the node that the event is about and to the directory it names, if a fault of this kind can
    happen there. The controller takes part in most operations, so the fault sometimes hits the controller, or the link to
    it, instead."""
    target = KINDS[fault.kind].target
    node = _node_of(event)
    if target is Target.NODE and fault.amount % 4 == 0:
        return replace(fault, node=CONTROLLER_ID)
    if target is Target.LINK and fault.amount % 2 == 0 and node != CONTROLLER_ID:
        ends = (node, CONTROLLER_ID) if fault.amount % 4 == 0 else (CONTROLLER_ID, node)
        return replace(fault, node=ends[0], peer=ends[1])
    if target is Target.NETWORK or node == fault.peer or (node == CONTROLLER_ID and target not in EVERY_NODE):
        return fault
    placed = replace(fault, node=node)
    # An event of a move names two directories, the source and the target. Choose one of them.
    path = event.fields.get("log_dir") or event.fields.get("source" if fault.amount % 2 else "target", "")
    disk = str(path).rpartition("/")[2]
    if target is Target.ANY_DISK or (target is Target.DATA_DISK and disk != METADATA):
        return replace(placed, disk=disk or fault.disk)
    return placed


def _node_of(event: SimulatedEvent) -> int:
    """Returns the node that an event is about. An event of the controller is often about a broker."""
    about = event.fields.get("broker_id")
    if isinstance(about, int):
        return about
    return CONTROLLER_ID if event.node == "controller" else int(event.node.rpartition("-")[2])
