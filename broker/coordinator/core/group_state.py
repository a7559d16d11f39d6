"""The states of a classic group (core).

              first member joins                all have joined, or the time is up
     Empty ----------------------> Preparing  ------------------------------------> Completing
       ^                           Rebalance                                        Rebalance
       |     no member is left     |       ^                                            |
       +---------------------------+       |  a member comes, goes or changes           | the leader has
                                           +--------------------------------------------+ assigned
                                           |                                            v
                                           +----------------------------------------- Stable

A group that is deleted, or whose shard is unloaded, is Dead. Only Empty and Stable are written to the log: a group is loaded
as Stable if it has members, otherwise as Empty.
"""

from enum import Enum


class GroupState(Enum):
    """The value is the name that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_FROM = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState) - {GroupState.DEAD},
}


def may_become(state: GroupState, next_state: GroupState) -> bool:
    return state in _FROM[next_state]
