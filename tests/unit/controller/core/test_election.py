"""Leader elections, clean and unclean, with every kind of candidate. All elections use the same rule of eligibility."""

from collections.abc import Sequence

import pytest

from common.ids import NO_LEADER, BrokerEpoch, BrokerId, DirectoryId, IncarnationId, Uuid
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState
from controller.core.election import Ballot, Election, ElectionPreference, elect_leader
from controller.core.eligibility import Eligibility
from tests.unit.controller.core.context import directory

A, B, C = directory("a"), directory("b"), directory("c")
GONE = directory("gone")


def broker(
    broker_id: int,
    directories: Sequence[DirectoryId],
    *,
    fenced: bool = False,
    in_controlled_shutdown: bool = False,
) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=BrokerId(broker_id),
        epoch=BrokerEpoch(1),
        incarnation_id=IncarnationId(Uuid(bytes(16))),
        endpoints=(),
        features=(),
        rack=None,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        directories=tuple(directories),
    )


def elect(
    *brokers: BrokerRegistration,
    directories: Sequence[DirectoryId],
    isr: Sequence[int],
    leader: int = -1,
    unclean: bool = False,
    prefers_first: bool = False,
    not_revived: int = -1,
) -> Election:
    """Holds an election among replicas 1, 2 and 3."""
    state = MetadataState()
    for registration in brokers:
        state.brokers[registration.broker_id] = registration
    replicas = [BrokerId(1), BrokerId(2), BrokerId(3)]
    return elect_leader(
        Ballot(replicas, directories, [BrokerId(each) for each in isr], BrokerId(leader)),
        Eligibility(state),
        ElectionPreference(prefers_first=prefers_first, not_revived=BrokerId(not_revived)),
        is_unclean_allowed=unclean,
    )


ALL = (broker(1, [A]), broker(2, [B]), broker(3, [C]))


def test_a_leader_that_may_stay_stays() -> None:
    """Every partition change holds an election, so an election must not move a leader without reason."""
    assert elect(*ALL, directories=[A, B, C], isr=[1, 2, 3], leader=3) == Election(BrokerId(3))


def test_the_first_eligible_isr_member_in_replica_order_leads() -> None:
    """Replica order decides, not the order of the ISR."""
    assert elect(*ALL, directories=[A, B, C], isr=[3, 2]) == Election(BrokerId(2))


def test_preferring_the_first_moves_leadership_only_to_the_first() -> None:
    """If the first replica cannot lead, the leader stays."""
    assert elect(*ALL, directories=[A, B, C], isr=[1, 2], leader=2, prefers_first=True) == Election(BrokerId(1))
    assert elect(*ALL, directories=[A, B, C], isr=[2, 3], leader=3, prefers_first=True) == Election(BrokerId(3))


@pytest.mark.parametrize(
    ("registration", "where"),
    [
        pytest.param(broker(1, [A], fenced=True), A, id="fenced"),
        pytest.param(broker(1, [A], in_controlled_shutdown=True), A, id="in controlled shutdown"),
        pytest.param(broker(1, [A]), GONE, id="directory not registered"),
        pytest.param(broker(1, [A, B]), GONE, id="directory not among several"),
        pytest.param(broker(1, [A]), LOST, id="LOST"),
        pytest.param(broker(1, []), LOST, id="LOST, no directories registered"),
    ],
)
def test_who_may_not_lead(registration: BrokerRegistration, where: DirectoryId) -> None:
    """The next ISR member leads instead. If the leader was alone in the ISR, the partition has no leader."""
    others = (broker(2, [B]), broker(3, [C]))
    assert elect(registration, *others, directories=[where, B, C], isr=[1, 2], leader=1) == Election(BrokerId(2))
    assert elect(registration, *others, directories=[where, B, C], isr=[1], leader=1) == Election(NO_LEADER)


@pytest.mark.parametrize("where", [A, UNASSIGNED, MIGRATING])
def test_which_directories_count_as_online(where: DirectoryId) -> None:
    """A registered directory, UNASSIGNED and MIGRATING count as online. If the broker has no registered directories, every
    id except LOST does."""
    assert elect(*ALL, directories=[where, B, C], isr=[1]) == Election(BrokerId(1))
    assert elect(broker(1, []), directories=[GONE, B, C], isr=[1]) == Election(BrokerId(1))


def test_an_unregistered_broker_may_not_lead() -> None:
    """An unregistered broker may not lead even if its replica's directory would count as online."""
    assert elect(broker(2, [B]), directories=[UNASSIGNED, B, C], isr=[1]) == Election(NO_LEADER)


def test_unclean_elections_take_an_online_replica_outside_the_isr() -> None:
    """Such a replica is elected only if unclean elections are allowed, and only if no ISR member can lead."""
    fenced = broker(1, [A], fenced=True)
    assert elect(fenced, *ALL[1:], directories=[A, GONE, C], isr=[1]) == Election(NO_LEADER)
    assert elect(fenced, *ALL[1:], directories=[A, GONE, C], isr=[1], unclean=True) == Election(BrokerId(3), is_unclean=True)
    assert elect(*ALL, directories=[A, B, C], isr=[2], unclean=True) == Election(BrokerId(2))


def test_an_unclean_election_may_revive_a_lost_replica() -> None:
    """This is the last resort: no replica is online, but one is LOST on an active broker."""
    fenced = broker(1, [A], fenced=True)
    assert elect(fenced, *ALL[1:], directories=[LOST, GONE, LOST], isr=[2], unclean=True) == Election(
        BrokerId(3), is_unclean=True, revives_lost=True
    )
    assert elect(fenced, *ALL[1:], directories=[LOST, GONE, GONE], isr=[2], unclean=True) == Election(NO_LEADER)
    assert elect(*ALL, directories=[LOST, LOST, C], isr=[1], unclean=True) == Election(BrokerId(3), is_unclean=True)


def test_a_broker_that_has_just_lost_its_replica_is_not_revived() -> None:
    """Another broker's LOST replica may still be revived, and clean elections are not affected."""
    gone = [LOST, GONE, LOST]
    assert elect(*ALL, directories=gone, isr=[2], unclean=True, not_revived=1) == Election(
        BrokerId(3), is_unclean=True, revives_lost=True
    )
    assert elect(*ALL, directories=[LOST, GONE, GONE], isr=[1], unclean=True, not_revived=1) == Election(NO_LEADER)
    assert elect(*ALL, directories=[A, GONE, LOST], isr=[1], unclean=True, not_revived=1) == Election(BrokerId(1))
