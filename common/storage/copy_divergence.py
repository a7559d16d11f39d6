"""Finds the offset up to which a copy of a log agrees with the log (core, KIP-101 and KIP-279).

A future replica is copied from the current one, which may be truncated at any time and then continue with other records. As
between a follower and its leader, the leader epochs show where the two diverge: a record is identified by its offset and its
epoch, and if two logs have the same record at one offset, they agree on everything before it.

A follower asks its leader about one epoch at a time and truncates until the answer names an epoch that it has. Here both
caches are at hand, so the search is one loop over their entries, from the end of the shorter log down.
"""

from common.ids import Offset
from common.storage.leader_epochs import LeaderEpochs


def end_of_agreement(
    *, current: LeaderEpochs, current_start: Offset, current_end: Offset, copy: LeaderEpochs, copy_end: Offset
) -> Offset:
    """Returns the offset to which the copy must be truncated; the copy's log end if it agrees with the current log.

    Below `current_start`, the current log has no records to compare with. If the copy ends below that offset, the copy's end
    is returned, and the caller decides whether the copy can continue from there.
    """
    offset = min(current_end, copy_end)
    while offset > current_start:
        last = Offset(offset - 1)
        if current.epoch_at(last) == copy.epoch_at(last):
            return offset
        # Both epochs are constant from here up to `offset`, so the logs differ in all of that range.
        offset = max(current.start_at(last), copy.start_at(last), current_start)
    return offset
