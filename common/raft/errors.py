"""The exceptions of the quorum driver. Disk errors are LogDirError instead (core)."""

from common.ids import BrokerId, LeaderEpoch


class NotLeader(Exception):
    """This node does not lead the metadata log in the requested epoch."""

    def __init__(self, epoch: LeaderEpoch, leader_id: BrokerId | None) -> None:
        where = "nobody that this node knows of" if leader_id is None else f"node {leader_id}"
        super().__init__(f"epoch {epoch} of the metadata log is led by {where}")


class QuorumFailure(Exception):
    """The metadata log is damaged, belongs to another cluster, or contradicts its quorum. Fatal. The text is one line."""
