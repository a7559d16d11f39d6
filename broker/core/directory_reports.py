"""Knows what this broker has told the controller about the directory of each replica (core, KIP-858).

The applied metadata may be older than the broker's latest reports. If a replica moves, the move is cancelled and another
begins, the broker reports one directory after the other. When it then sees the directory that it wants in the metadata, that
may be the outcome of its first report, and the next record may name another directory. The controller handles the reports in
the order in which the broker sends them, one request at a time, so the answer to the latest report settles the matter.
Kafka's AssignmentsManager goes by the answers alone.
"""

from dataclasses import dataclass

from common.ids import DirectoryId, TopicIdPartition


@dataclass(slots=True)
class _Report:
    """The latest report about a replica."""

    directory_id: DirectoryId
    is_answered: bool = False
    # Whether every report about the replica named this directory.
    is_only: bool = True


class DirectoryReports:
    """The latest report of each replica for which the metadata may not show it yet."""

    def __init__(self) -> None:
        # Changes when: a report is sent or answered, nothing is left to report, or the replica leaves the broker. A replica
        # about which several directories were reported keeps its entry, because the metadata may agree for a moment only.
        self._latest: dict[TopicIdPartition, _Report] = {}

    def sent(self, replica: TopicIdPartition, directory_id: DirectoryId) -> None:
        """Notes that a report was sent, perhaps once more."""
        latest = self._latest.get(replica)
        if latest is None:
            self._latest[replica] = _Report(directory_id)
        elif latest.directory_id != directory_id:
            self._latest[replica] = _Report(directory_id, is_only=False)

    def answered(self, replica: TopicIdPartition) -> bool:
        """Notes that the controller has carried out, or refused for good, the latest report about the replica. Returns
        whether `is_final` had to wait for that."""
        latest = self._latest.get(replica)
        if latest is None or latest.is_answered:
            return False
        latest.is_answered = True
        return not latest.is_only

    def settled(self, replica: TopicIdPartition) -> None:
        """Notes that nothing is left to report about the replica, mostly because the metadata names the directory."""
        latest = self._latest.get(replica)
        if latest is not None and latest.is_only:
            del self._latest[replica]

    def left(self, replica: TopicIdPartition) -> None:
        """Notes that the metadata places the replica on this broker no more. Idempotent."""
        self._latest.pop(replica, None)

    def is_final(self, replica: TopicIdPartition, directory_id: DirectoryId) -> bool:
        """Whether none of the broker's reports can make the metadata name another directory after this one."""
        latest = self._latest.get(replica)
        if latest is None:
            return True
        return latest.directory_id == directory_id and (latest.is_only or latest.is_answered)
