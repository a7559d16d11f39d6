"""Elects the leader of one partition (core).

Counterpart of the election half of Kafka's PartitionChangeBuilder. The candidates in order:

1. Clean: an eligible member of the ISR. The current leader if it is such a member, otherwise the first one in replica order.
   With `prefers_first`, the first replica is tried before the current leader.
2. Unclean, if the topic allows it: any eligible replica, in replica order. The elected replica is then alone in the ISR.
3. Unclean, as the last resort: a LOST replica on an active broker. The elected replica starts empty (docs/DESIGN.md).
   Without this rule, a partition that has only LOST replicas would never have a leader again. A broker that has just
   assigned LOST is skipped (`not_revived`): the election caused by its own report must not undo the report.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from common.ids import NO_LEADER, BrokerId, DirectoryId
from common.metadata.directory_ids import LOST
from controller.core.eligibility import Eligibility


@dataclass(frozen=True, slots=True)
class Election:
    """The result of an election. `leader` may be NO_LEADER. `revives_lost` means that the leader's replica was LOST and will
    start empty."""

    leader: BrokerId
    is_unclean: bool = False
    revives_lost: bool = False


class Ballot(NamedTuple):
    """The input of an election: the partition's target state and its current leader."""

    replicas: Sequence[BrokerId]
    directories: Sequence[DirectoryId]
    isr: Sequence[BrokerId]
    leader: BrokerId


class ElectionPreference(NamedTuple):
    """What an operation prefers in its elections. `prefers_first` moves the leadership to the first replica if it can lead
    cleanly. A LOST replica on the broker `not_revived` is not elected. `is_unclean_allowed` overrides the configuration of
    the topic."""

    prefers_first: bool = False
    not_revived: BrokerId | None = None
    is_unclean_allowed: bool | None = None


NO_PREFERENCE = ElectionPreference()


def elect_leader(
    ballot: Ballot, eligibility: Eligibility, preference: ElectionPreference, *, is_unclean_allowed: bool
) -> Election:
    """Elects a leader by the rules in the module's docstring."""
    replicas, directories, isr, leader = ballot
    # Try the preferred first replica before the current leader, and the current leader before the other replicas.
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
