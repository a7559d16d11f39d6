"""The end of a classic group (core)."""

from broker.coordinator.core.classic_group import ClassicGroup
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.core.turn import SESSION, Turn
from common.records.group_records import GroupMetadataKey, encode_key


def write_group_deletion(turn: Turn, group: ClassicGroup) -> None:
    """Writes the tombstone of a group that has no members. Its committed offsets are the shard's."""
    for member_id in group.pending_members:
        turn.cancel_timer((SESSION, group.group_id, member_id))
    turn.write_tombstone(encode_key(GroupMetadataKey(group=group.group_id)))
    group.become(GroupState.DEAD, turn.now)
