"""What a quorum driver raises. Errors of the disk are LogDirError and none of these (core)."""

from common.ids import BrokerId, LeaderEpoch


class NotLeader(Exception):
    """This node does not lead the metadata log in the epoch asked for, or stopped leading before the commit."""

    def __init__(self, epoch: LeaderEpoch, leader_id: BrokerId | None) -> None:
        where = "nobody that this node knows of" if leader_id is None else f"node {leader_id}"
        super().__init__(f"epoch {epoch} of the metadata log is led by {where}")
        self.epoch = epoch
        self.leader_id = leader_id


class QuorumFailure(Exception):
    """The metadata log cannot go on: damaged, of another cluster, or contradicting its quorum. Fatal; one line of text."""
