"""Chooses the leader of one partition (core).

Answers to the election half of Kafka's PartitionChangeBuilder. A clean election takes an eligible member of the ISR: the
present leader if it is one, else the first in replica order. Where the topic allows unclean elections, any eligible replica
may follow, and after that a LOST replica of an active broker, which starts empty (docs/DESIGN.md): it is the only way in
which such a partition ever has a leader again. A broker that has just called its replica LOST is passed over: the election
that its own report causes must not take the report back. Easy to get wrong: an unclean leader is alone in the ISR.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common.ids import NO_LEADER, BrokerId, DirectoryId
from common.metadata.directory_ids import LOST
from controller.core.eligibility import Eligibility


@dataclass(frozen=True, slots=True)
class Election:
    """Who leads, NO_LEADER included. `revives_lost` says that the leader's replica was LOST and will start empty."""

    leader: BrokerId
    is_unclean: bool = False
    revives_lost: bool = False


class Ballot(NamedTuple):
    """The partition as it shall be, and the leader that it has."""

    replicas: Sequence[BrokerId]
    directories: Sequence[DirectoryId]
    isr: Sequence[BrokerId]
    leader: BrokerId


class ElectionPreference(NamedTuple):
    """What an operation wants of an election, beside a leader. `prefers_first` moves leadership to the first replica if that
    can lead cleanly; the LOST replica of `not_revived` stays as it is."""

    prefers_first: bool = False
    not_revived: BrokerId | None = None


NO_PREFERENCE = ElectionPreference()


def elect_leader(
    ballot: Ballot, eligibility: Eligibility, preference: ElectionPreference, *, is_unclean_allowed: bool
) -> Election:
    """The outcome for one partition."""
    replicas, directories, isr, leader = ballot
    # The order of preference: the present leader, unless the first replica is wanted back, then replica order.
    wanted = replicas[0] if preference.prefers_first else leader
    for candidate in (wanted, leader):
        if candidate in isr and eligibility.is_eligible(candidate, directories[replicas.index(candidate)]):
            return Election(candidate)
    for broker, directory in zip(replicas, directories, strict=True):
        if broker in isr and eligibility.is_eligible(broker, directory):
            return Election(broker)
    if is_unclean_allowed:
        for broker, directory in zip(replicas, directories, strict=True):
            if eligibility.is_eligible(broker, directory):
                return Election(broker, is_unclean=True)
        for broker, directory in zip(replicas, directories, strict=True):
            if directory == LOST and broker != preference.not_revived and eligibility.is_active(broker):
                return Election(broker, is_unclean=True, revives_lost=True)
    return Election(NO_LEADER)
