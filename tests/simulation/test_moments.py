"""Tests faults that wait for an event of the cluster."""

from dataclasses import replace

import pytest

from tests.simulation.cluster import CONTROLLER_ID
from tests.simulation.environment import SimulatedEvent, SimulatedWorld
from tests.simulation.faults import Fault
from tests.simulation.moments import AMOUNT_AT_ONCE_AT_THE_TARGET, HALF_COMPACTED, HALF_SWAPPED, Moments

KILLED = Fault(at_ns=0, kind="node killed", node=1, moment="log_created", is_there=True, amount=1)
DEAD = Fault(at_ns=0, kind="disk dies and comes back", node=1, disk="d1", moment="log_created", is_there=True)
CUT = Fault(at_ns=0, kind="link cut", node=1, peer=2, moment="log_created", is_there=True, amount=1)


def happened(fault: Fault, *events: tuple[str, str, dict[str, object]]) -> Fault | None:
    """Returns the fault that happens when these events (node, name, fields) come, or None if it does not happen."""

    async def scenario(world: SimulatedWorld) -> Fault | None:
        moments = Moments(world)
        task = world.loop.create_task(moments.wait(fault))
        await world.sleep(1)
        for node, name, fields in events:
            world.note_event(SimulatedEvent(world.now_ns(), node, "info", name, fields))
        moments.end()
        return await task

    return SimulatedWorld(seed=1).run(scenario)


def test_a_fault_comes_with_its_event_and_with_no_other() -> None:
    """If the event has not come by the end of the chaos phase, the fault does not happen."""
    assert happened(KILLED, ("broker-3", "log_deleted", {})) is None
    found = happened(KILLED, ("broker-3", "log_created", {"log_dir": "/b3/d2"}), ("broker-2", "log_created", {}))
    assert found is not None
    assert found.node == 3


@pytest.mark.parametrize(
    ("fault", "event", "place"),
    [
        (KILLED, ("controller", "log_created", {}), (CONTROLLER_ID, 0, "")),
        (KILLED, ("controller", "log_created", {"broker_id": 2}), (2, 0, "")),
        (DEAD, ("broker-3", "log_created", {"log_dir": "/b3/d2"}), (3, 0, "d2")),
        (DEAD, ("broker-3", "log_created", {}), (3, 0, "d1")),
        (DEAD, ("controller", "log_created", {}), (1, 0, "d1")),
        (CUT, ("broker-3", "log_created", {}), (3, 2, "")),
        (CUT, ("broker-2", "log_created", {}), (1, 2, "")),
        (replace(KILLED, amount=4), ("broker-3", "log_created", {}), (CONTROLLER_ID, 0, "")),
        (replace(CUT, amount=4), ("broker-3", "log_created", {}), (3, CONTROLLER_ID, "")),
        (replace(CUT, amount=2), ("broker-3", "log_created", {}), (CONTROLLER_ID, 3, "")),
    ],
)
def test_a_fault_is_where_its_event_is(
    fault: Fault, event: tuple[str, str, dict[str, object]], place: tuple[int, int, str]
) -> None:
    """The fault hits the node that the event is about and the directory that it names, if this kind of fault can happen
    there. Some values of `amount` move it to the controller."""
    found = happened(fault, event)
    assert found is not None
    assert (found.node, found.peer, found.disk) == place


def test_a_fault_comes_between_the_two_renames_of_a_swap() -> None:
    """The old log has got its -delete name, and the copy still has its -future name. Neither the deletion of a log nor the
    end of a swap is this moment."""
    fault = Fault(
        at_ns=0,
        kind="disk dead at a restart",
        node=1,
        disk="d1",
        amount=AMOUNT_AT_ONCE_AT_THE_TARGET,
        moment=HALF_SWAPPED,
        is_there=True,
    )
    deleted, copy = f"t-0.{'ab' * 16}-delete", f"t-0.{'ab' * 16}-future"

    async def scenario(world: SimulatedWorld) -> None:
        source, target = world.disk("/b2/d1"), world.disk("/b2/d3")
        source.write(f"{deleted}/partition.metadata", b"")
        target.write("t-0/partition.metadata", b"")
        moments = Moments(world)
        task = world.loop.create_task(moments.wait(fault))
        await world.sleep(1)
        moments._operates("/b2/d1", "rename", "t-0")
        await world.sleep(1)
        assert not task.done()
        target.store.rename("t-0", copy)
        moments._operates("/b2/d1", "rename", "t-0")
        found = await task
        assert found is not None
        assert (found.node, found.disk) == (2, "d3")

    SimulatedWorld(seed=1).run(scenario)


def test_a_fault_comes_while_a_compacted_segment_takes_its_place() -> None:
    """An old segment has lost its name, and the compacted one has not got it yet. Neither retention nor the last rename of
    the swap is this moment."""
    fault = Fault(
        at_ns=0,
        kind="node killed",
        node=1,
        disk="d1",
        amount=AMOUNT_AT_ONCE_AT_THE_TARGET,
        moment=HALF_COMPACTED,
        is_there=True,
    )
    segment = "compacted-1-0/00000000000000000000.log"

    async def scenario(world: SimulatedWorld) -> None:
        disk = world.disk("/b2/d3")
        disk.write(f"{segment}.deleted", b"")
        disk.write("other-0/00000000000000000000.log.swap", b"")
        moments = Moments(world)
        task = world.loop.create_task(moments.wait(fault))
        await world.sleep(1)
        moments._operates("/b2/d3", "rename", segment)
        moments._operates("/b2/d3", "rename", f"{segment}.swap")
        await world.sleep(1)
        assert not task.done()
        disk.write(f"{segment}.swap", b"")
        moments._operates("/b2/d3", "rename", segment)
        found = await task
        assert found is not None
        assert found.node == 2

    SimulatedWorld(seed=1).run(scenario)


def test_a_fault_without_an_event_does_not_wait() -> None:
    """A fault without a moment happens at once."""
    fault = Fault(at_ns=0, kind="node killed", node=1)
    assert happened(fault) == fault
