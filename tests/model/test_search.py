"""All properties hold in every world that a small cluster can get into, and the search finds the bugs that break them."""

import pytest

from tests.model.cluster import Cluster, Faults, Size
from tests.model.planted_bugs import BUGS, FoundBug
from tests.model.search import Setting, search

# A search with this many states takes a few seconds. The others end by themselves.
STATES_MAX = 100_000

SETTINGS = (
    (Setting("one broker, assigned", Size(brokers=1), Faults(disks=1, kills=1, losses=1), True), STATES_MAX),
    (Setting("one broker, new topic", Size(brokers=1), Faults(disks=1, losses=2, records=1), False), STATES_MAX),
    (Setting("one broker, a move", Size(brokers=1), Faults(moves=1, disks=1, losses=1), True), STATES_MAX),
    (Setting("two brokers, a move", Size(), Faults(moves=1, disks=1, kills=1), True), 20_000),
    (Setting("two partitions", Size(brokers=1, partitions=2), Faults(disks=1, kills=1), False), 20_000),
    (Setting("two brokers, assigned", Size(), Faults(disks=1, kills=1), True), STATES_MAX),
    (Setting("two brokers, two disks fail", Size(), Faults(disks=2, records=1), True), STATES_MAX),
    (Setting("two brokers, new topic", Size(), Faults(disks=1, losses=1), False), 20_000),
    (Setting("three brokers", Size(brokers=3), Faults(disks=1, kills=1), True), 15_000),
)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("setting", "states_max"), SETTINGS, ids=[setting.name for setting, _ in SETTINGS])
def test_all_properties_hold(setting: Setting, states_max: int) -> None:
    """Every interleaving of what the protocol does and of the faults, up to a number of states where there are too many.
    Prints what was searched, and the way to the problem if there is one."""
    found = search(setting, states_max=states_max)
    print(found.line(setting.name), *found.story, sep="\n    ")
    assert found.problem == ""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("found_bug", BUGS, ids=[each.bug.name for each in BUGS])
def test_each_planted_bug_is_found(found_bug: FoundBug) -> None:
    """Without the bug, the same search finds nothing."""
    with found_bug.bug.planted():
        found = search(found_bug.setting, states_max=STATES_MAX)
    print(found.line(found_bug.bug.name), *found.story, sep="\n    ")
    assert found_bug.problem in found.problem
    assert search(found_bug.setting, states_max=max(found.states, 5_000)).problem == ""


def test_the_same_search_finds_the_same() -> None:
    """The number of states and transitions does not depend on the run: nothing is drawn, and no set is gone through."""
    setting = Setting("twice", Size(), Faults(disks=1, records=1), True)
    assert search(setting, states_max=STATES_MAX) == search(setting, states_max=STATES_MAX)


def test_the_cluster_begins_as_it_should() -> None:
    """In the first world of a settled setting both brokers lead or follow, and one record is acknowledged by both."""
    cluster = Cluster(Size())
    world = cluster.first(Faults(), is_settled=True)
    (key,) = cluster.keys
    partition = cluster.controllers[world.controller].log.partition(key)
    brokers = [cluster.brokers[number] for number in world.brokers]
    assert (partition.leader, partition.isr, world.acknowledged) == (1, (1, 2), (1,))
    assert [broker.version(key) for broker in brokers] == [1, 1]
    assert [partition.directory(broker.broker_id) for broker in brokers] == [
        broker.disks[0].directory_id for broker in brokers
    ]
