"""The replicas of a partition while a reassignment moves them to other brokers (core; KIP-455).

Counterpart of Kafka's PartitionReassignmentReplicas and PartitionReassignmentRevert. The stages of a reassignment from
brokers 1, 2 to brokers 2, 3:

    replicas 1 2                                              before
    replicas 2 3 1     adding 3     removing 1                begun: 3 starts to fetch, 1 may go on leading
    replicas 2 3                                              completed: ISR contained 2 and 3
    replicas 2 1                                              or reverted

1. A reassignment is completed by the first change of the partition at which every replica that it adds is in the ISR and at
   least one replica of the target can lead. A replica that stays need not be in the ISR: while its broker is down, no other
   broker could be emptied. But if fewer replicas are left than before, all of them must be in the ISR, which would become
   smaller otherwise. While no replica of the target can lead, the reassignment is not completed, because the replicas to be
   removed may be the only ones that can still be elected.
2. A reassignment that replaces another one is compared with the *original* replicas. So a replica that only the replaced
   reassignment was adding is in both `adding` and `removing`, and a revert restores the original replicas. Apache Kafka
   would keep that replica after a revert (docs/DESIGN.md, "Reassignments").
3. A replica that stays keeps its directory.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from common.ids import BrokerId, DirectoryId
from common.metadata.registrations import PartitionRegistration


class Assignment(NamedTuple):
    """The replicas of a partition with their directories, and the replicas that a reassignment adds and removes."""

    replicas: tuple[BrokerId, ...]
    # Invariant: directories[i] belongs to replicas[i].
    directories: tuple[DirectoryId, ...]
    # Invariant: both are sorted, and each is a subset of the replicas.
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def is_reassignment(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas that are left once the reassignment is completed."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def original(self) -> tuple[BrokerId, ...]:
        """The replicas without those that the reassignment adds."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    def directory(self, broker_id: BrokerId) -> DirectoryId:
        return self.directories[self.replicas.index(broker_id)]

    def with_directory(self, broker_id: BrokerId, directory_id: DirectoryId) -> "Assignment":
        """Returns the assignment with the broker's replica in this directory."""
        directories = tuple(
            directory_id if replica == broker_id else known
            for replica, known in zip(self.replicas, self.directories, strict=True)
        )
        return self._replace(directories=directories)

    def reduced_to(self, replicas: Sequence[BrokerId]) -> "Assignment":
        """Returns the assignment reduced to these replicas, without a reassignment."""
        known = dict(zip(self.replicas, self.directories, strict=True))
        return Assignment(tuple(replicas), tuple(known[replica] for replica in replicas))


def assignment_of(partition: PartitionRegistration) -> Assignment:
    return Assignment(partition.replicas, partition.directories, partition.adding_replicas, partition.removing_replicas)


def reassigned(
    before: Assignment, target: Sequence[BrokerId], directory_of: Callable[[BrokerId], DirectoryId]
) -> Assignment:
    """Returns the assignment that begins the reassignment to `target`. `directory_of` chooses the directory of an added
    replica. If `target` only reorders the replicas, there is nothing to move, and no reassignment begins."""
    original = before.original
    removing = sorted(replica for replica in before.replicas if replica not in target)
    replicas = (*target, *removing)
    known = dict(zip(before.replicas, before.directories, strict=True))
    return Assignment(
        replicas,
        tuple(known[replica] if replica in known else directory_of(replica) for replica in replicas),
        tuple(sorted(replica for replica in replicas if replica not in original)),
        tuple(removing),
    )


class Revert(NamedTuple):
    """The state that a partition gets when its reassignment is reverted."""

    assignment: Assignment
    isr: tuple[BrokerId, ...]
    # Whether the ISR had only replicas that the reassignment was adding. The new ISR may then lack committed records.
    is_unclean: bool


def reverted(partition: PartitionRegistration) -> Revert:
    before = assignment_of(partition)
    original = before.original
    isr = tuple(member for member in partition.isr if member in original)
    return Revert(before.reduced_to(original), isr or original[:1], is_unclean=not isr)


def completed(assignment: Assignment, isr: Sequence[BrokerId]) -> tuple[Assignment, tuple[BrokerId, ...]] | None:
    """Returns the assignment and the ISR with the reassignment completed; None if a replica that has to be in the ISR is
    missing (rule 1), or if there is no reassignment."""
    target = assignment.target
    added = [replica for replica in assignment.adding if replica in target]
    awaited = target if len(added) < len(assignment.removing) else added
    isr_after = tuple(member for member in isr if member in target)
    if not assignment.is_reassignment or not isr_after or not all(replica in isr_after for replica in awaited):
        return None
    return assignment.reduced_to(target), isr_after
