"""Finds up to where a copy of a log still agrees with the log (core, KIP-101 and KIP-279).

A future replica is copied from the current one, which may be truncated at any time and then continue with other records. As
between a follower and its leader, the leader epochs show where the two part: a record is identified by its offset and its
epoch, and if two logs have the same record at one offset, they agree on everything before it.

A follower asks its leader about one epoch at a time and truncates until the answer names an epoch that it has. Here both
caches are at hand, so the search is one loop over their entries, from the end of the shorter log down.
"""

from common.ids import Offset
from common.storage.leader_epochs import LeaderEpochs


def end_of_agreement(
    *, current: LeaderEpochs, current_start: Offset, current_end: Offset, copy: LeaderEpochs, copy_end: Offset
) -> Offset:
    """Returns the offset to which the copy must be truncated; its log end if it agrees with the current log.

    Below `current_start` there is nothing to compare with. If the copy ends there, its end is returned: whether it can
    continue from there is for the caller to decide.
    """
    offset = min(current_end, copy_end)
    while offset > current_start:
        last = Offset(offset - 1)
        if current.epoch_at(last) == copy.epoch_at(last):
            return offset
        # Both epochs are constant from here up to `offset`, so the logs differ in all of that range.
        offset = max(current.start_at(last), copy.start_at(last), current_start)
    return offset
