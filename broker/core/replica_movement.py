"""Keeps the state of each replica's move to another directory of this broker (core, KIP-113, KIP-858).

Counterpart of the promotion states in Kafka's ReplicaAlterLogDirsThread. A move passes through these states:

                 the copy has caught up,                the metadata names
                 the metadata names another directory   the target
    COPYING ────────────────────────────────> ASSIGNING ──────────────────> ready to swap

1. The copying goes on in every state. A move leaves this table when the copy has become the current log, or when the move
   was cancelled or has failed.
2. In ASSIGNING, the broker reports the target to the controller as the replica's directory. In COPYING, and once the move
   has left this table, it reports the directory of the current log. So if a move is cancelled or its target fails, this
   ordinary report also reverts the assignment.
3. The applied metadata acknowledges an assignment. A response alone does not: responses can be lost, late, or about an older
   request. But if the broker has reported another directory before, as an earlier move was cancelled, the response to the
   latest report must have come as well (`DirectoryReports`).
4. If a broker is killed after the acknowledgement, the metadata names the target at the next start, although the copy may
   lag far behind. Such a move starts in COPYING like any other. It cannot become ASSIGNING until the metadata again names a
   directory other than the target. So an assignment of an earlier incarnation never counts as an acknowledgement.
"""

from dataclasses import dataclass
from enum import Enum, auto

from common.ids import DirectoryId, TopicIdPartition


class MoveState(Enum):
    COPYING = auto()
    """The copy has not caught up yet, or the metadata still names the target because of an earlier attempt (rule 4)."""

    ASSIGNING = auto()
    """The broker reports the target as the replica's directory."""


@dataclass(slots=True)
class Move:
    """One move. `target` never changes: a move to a different directory is a new Move."""

    target: DirectoryId
    state: MoveState = MoveState.COPYING


class ReplicaMovement:
    """The table of moves. Its methods change nothing but the table."""

    def __init__(self) -> None:
        # The moves that have begun and not ended. Invariant: each of these replicas is hosted, in a directory other than the
        # target. Changes when: `begin` or `end` is called.
        self._moves: dict[TopicIdPartition, Move] = {}

    def __len__(self) -> int:
        return len(self._moves)

    def __contains__(self, key: TopicIdPartition) -> bool:
        return key in self._moves

    def target(self, key: TopicIdPartition) -> DirectoryId | None:
        """Returns the directory that the replica is moving to; None if it is not moving."""
        move = self._moves.get(key)
        return None if move is None else move.target

    def begin(self, key: TopicIdPartition, target: DirectoryId) -> None:
        """Adds a move. Replaces the replica's earlier move, if any."""
        self._moves[key] = Move(target)

    def end(self, key: TopicIdPartition) -> None:
        """Removes the replica's move, whether it is done, cancelled or failed. Idempotent."""
        self._moves.pop(key, None)

    def reported(self, key: TopicIdPartition) -> DirectoryId | None:
        """Returns the directory to report for the replica instead of its current one; None before ASSIGNING (rule 2)."""
        move = self._moves.get(key)
        return move.target if move is not None and move.state is MoveState.ASSIGNING else None

    def caught_up(self, key: TopicIdPartition, assigned: DirectoryId | None) -> bool:
        """Notes that the copy has everything that the current log has. `assigned` is the directory in the applied metadata.
        Returns whether the broker did not report the target before and reports it from now on."""
        move = self._moves[key]
        if move.state is MoveState.ASSIGNING or assigned == move.target:
            return False
        move.state = MoveState.ASSIGNING
        return True

    def may_swap(self, key: TopicIdPartition, assigned: DirectoryId | None) -> bool:
        """Whether the copy may become the current log once it has caught up again (rule 3)."""
        move = self._moves[key]
        return move.state is MoveState.ASSIGNING and assigned == move.target
