"""Tests the checkers of disk failure detection, acknowledged failures and sessions on a running cluster."""

import errno
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import replace

import pytest

from common.time_units import NS_PER_S
from tests.simulation.checkers import Checkers
from tests.simulation.checkers.detection import check_acknowledged
from tests.simulation.checkers.undisturbed import UndisturbedChecker
from tests.simulation.cluster import CONTROLLER_ID, SimulatedCluster
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEvent, SimulatedWorld
from tests.simulation.history import History
from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.violations import InvariantViolated


@pytest.mark.parametrize(
    "break_it",
    [
        lambda disk: disk.fail_with(errno.EIO),
        SimulatedDisk.make_read_only,
        SimulatedDisk.fail_reads,
        SimulatedDisk.hang,
        SimulatedDisk.unmount,
    ],
    ids=["dead", "read-only", "unreadable", "hung", "unmounted"],
)
def test_a_broker_finds_every_unusable_disk_within_the_bound(break_it: Callable[[SimulatedDisk], None]) -> None:
    """An idle disk breaks. The broker takes its directory offline before the checker complains."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=2)
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        break_it(cluster.disk(1, 2))
        assert cluster.disk(1, 2).is_unusable
        await world.sleep(10)
        assert "/b1/d2" not in checkers.brokers()[1]._directories.known.online.values()
        checkers.stop()

    SimulatedWorld(seed=1).run(scenario)


@pytest.mark.parametrize(
    ("bug_name", "match"),
    [
        ("nobody suspects a silent disk", "does not suspect /b1/d2"),
        ("a suspicion is for ever", "suspects /b1/d2"),
        (None, None),
    ],
)
def test_a_silent_disk_that_is_misjudged_is_found_out(bug_name: str | None, match: str | None) -> None:
    """I13: a disk hangs for a while, not long enough to be given up, and something waits for it. The broker must suspect it,
    and trust it afterwards."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=2)
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        cluster.disk(1, 2).hang()
        log_dirs = checkers.brokers()[1]._directories.log_dirs.values()
        waiting = next(log_dir for log_dir in log_dirs if log_dir.path == "/b1/d2").stat("a")
        await world.sleep(1.9)
        cluster.disk(1, 2).thaw()
        await waiting
        await world.sleep(2)
        checkers.stop()

    planted = nullcontext() if bug_name is None else next(bug for bug in PLANTED_BUGS if bug.name == bug_name).planted()
    expected = nullcontext() if match is None else pytest.raises(InvariantViolated, match=match)
    with planted, expected:
        SimulatedWorld(seed=1).run(scenario)


def test_a_disk_that_was_silent_between_two_looks_of_the_checker_may_be_suspected() -> None:
    """I13: the disk goes on as soon as the broker suspects it, before the checker sees how long it has been silent."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=2)
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        disk = cluster.disk(1, 2)
        world.event_watchers.append(lambda event: disk.thaw() if event.name == "log_dir_suspected" else None)
        # Then the silence gets long enough after a look of the checker, and before the next look of the broker.
        await world.sleep(0.01)
        disk.hang()
        log_dirs = checkers.brokers()[1]._directories.log_dirs.values()
        await next(log_dir for log_dir in log_dirs if log_dir.path == "/b1/d2").stat("a")
        await world.event("log_dir_trusted")
        checkers.stop()

    SimulatedWorld(seed=1).run(scenario)


@pytest.mark.parametrize("harmed", [(), ("/b1/d2",)])
def test_a_healthy_disk_that_is_given_up_is_found_out(harmed: Collection[str]) -> None:
    """I12: a directory may go offline only if its path is in `harmed`, the paths of the disks that the run has harmed."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=2)
        await cluster.start()
        checkers = Checkers(cluster, History(), harmed=harmed)
        checkers.install()
        cluster.disk(1, 2).fail_with(errno.EIO)
        await world.event("log_dir_failed")
        await world.sleep(0.1)
        checkers.stop()

    expected = nullcontext() if harmed else pytest.raises(InvariantViolated, match=r"I12.*broker-1 gives up /b1/d2")
    with expected:
        SimulatedWorld(seed=1).run(scenario)


def test_a_broker_that_does_not_look_is_found_out() -> None:
    """I13: the checker reports a broken disk after the bound, not before. If a disk is healed and breaks again, the time
    starts again."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=2)
        await cluster.start()
        checkers = Checkers(cluster, History())
        broker = checkers.brokers()
        cluster.disk(1, 2).make_read_only()
        checkers.detection.look(broker, 0)
        checkers.detection.look(broker, 6_000_000_000)
        with pytest.raises(InvariantViolated, match=r"I13.*/b1/d2.*6\.1 s"):
            checkers.detection.look(broker, 6_100_000_000)
        cluster.disk(1, 2).heal()
        checkers.detection.look(broker, 6_200_000_000)
        cluster.disk(1, 2).make_read_only()
        checkers.detection.look(broker, 6_300_000_000)

    SimulatedWorld(seed=1).run(scenario)


def test_a_directory_whose_fsync_failed_once_is_found_out() -> None:
    """I13: after one failed fsync the disk works again, but it has lost data, so the broker must give the directory up."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=2)
        await cluster.start()
        checkers = Checkers(cluster, History())
        broker = checkers.brokers()
        checkers.detection.look(broker, 0)
        cluster.disk(1, 2).fail_fsync_once()
        assert cluster.disk(1, 2).take_failing_writeback() is not None
        checkers.detection.look(broker, 1)
        with pytest.raises(InvariantViolated, match=r"I13.*/b1/d2"):
            checkers.detection.look(broker, 7_000_000_000)

    SimulatedWorld(seed=1).run(scenario)


def test_acknowledged_means_committed_and_a_session_ends() -> None:
    """I16: a broker must not treat a failure as acknowledged while the committed metadata lists the directory as online. I6:
    a broker that is dead for longer than its session must be fenced, unless the controller is unable to do that."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=2)
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        await world.sleep(1)
        image = checkers.image.image
        online = next(iter(image.brokers[1].directories))
        event = SimulatedEvent(0, "broker-1", "info", "log_dir_failure_acknowledged", {"directory_id": online})
        with pytest.raises(InvariantViolated, match="I16"):
            check_acknowledged(event, image)
        check_acknowledged(SimulatedEvent(0, "broker-1", "info", event.name, {"directory_id": b"x" * 16}), image)
        sessions = UndisturbedChecker(world.disk)
        for now_ns, is_well in ((0, True), (7, True), (8, False), (9, True), (15, True)):
            sessions.look_at_sessions(
                [1], image, now_ns * NS_PER_S, session_timeout_ns=4 * NS_PER_S, is_controller_well=is_well
            )
        with pytest.raises(InvariantViolated, match=r"I6.*dead for 8\.0 s"):
            sessions.look_at_sessions([1], image, 17 * NS_PER_S, session_timeout_ns=4 * NS_PER_S, is_controller_well=True)
        checkers.stop()

    SimulatedWorld(seed=1).run(scenario)


@pytest.mark.parametrize("is_told", [True, False])
def test_what_a_broker_takes_for_acknowledged_is_judged_by_what_was_committed_then(is_told: bool) -> None:
    """I16: a broker may learn about a commit of a new controller slightly before the checkers do (seed 40034). The checkers
    keep the broker's event until they have seen the commit, and judge it then."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=2)
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        await world.sleep(1)
        online = checkers.brokers()[1]._directories.known.online
        directory_id = next(id_ for id_, path in online.items() if path == "/b1/d2")
        event = SimulatedEvent(0, "broker-1", "info", "log_dir_failure_acknowledged", {"directory_id": directory_id})
        # An idle controller writes a NoOpRecord now and then, so the checkers' image reaches the next offset soon.
        checkers._unjudged.append((checkers.image.next_offset + 1, event))
        checkers._judge_acknowledged()
        assert checkers._unjudged
        if is_told:
            known = checkers.image.image.brokers
            known[1] = replace(known[1], directories=known[1].directories - {directory_id})
        await world.until(lambda: not checkers._unjudged, within_seconds=10)
        await world.sleep(1)
        checkers.stop()

    with nullcontext() if is_told else pytest.raises(InvariantViolated, match="I16"):
        SimulatedWorld(seed=1).run(scenario)


def test_a_controller_that_was_stopped_may_say_so() -> None:
    """I6: a controller that was paused may excuse silent brokers, but for no longer than its pause."""

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=1, disks=1)
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        cluster.pause(CONTROLLER_ID)
        await world.sleep(2.5)
        cluster.resume(CONTROLLER_ID)
        await world.event("controller_was_stopped")
        await world.sleep(0.1)
        checkers.stop()

    SimulatedWorld(seed=1).run(scenario)


def test_an_excuse_for_a_slow_commit_is_found_out() -> None:
    """I6: the metadata disk hangs while the controller fences a broker. With the planted bug the controller mistakes that
    wait for a pause of its process, and excuses silent brokers. Without the bug it excuses none."""
    bug = next(each for each in PLANTED_BUGS if each.name == "a slow commit excuses silent brokers")

    async def scenario(world: SimulatedWorld) -> None:
        cluster = SimulatedCluster(world, brokers=2, disks=1)
        await cluster.start()
        checkers = Checkers(cluster, History())
        checkers.install()
        cluster.crash(1)
        await world.sleep(2.4)
        disk = world.disk("/controller/metadata")
        disk.hang()
        await world.sleep(1.9)
        disk.thaw()
        await world.event("broker_fenced", node="controller")
        await world.sleep(0.5)
        checkers.stop()

    SimulatedWorld(seed=1).run(scenario)
    with bug.planted(), pytest.raises(InvariantViolated, match="I6: controller excuses"):
        SimulatedWorld(seed=1).run(scenario)
