"""Turns "this broker lost this directory" into partition changes (core; KIP-858).

Answers to Kafka's handleDirectoriesOffline. The index directory -> partitions names the replicas; what follows for their
leaders and ISRs is what fencing does, for these partitions only. The caller writes the registration change *after* these
records: whoever replays in order never sees a leader on a directory that is gone. Easy to get wrong: a report may come
again, and must then find and repair whatever leader or ISR entry is still there, so nothing here asks whether the directory
is news.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from common.ids import BrokerId, DirectoryId, TopicIdPartition
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.partition_change import PartitionChanges, moves_leader
from controller.core.result import ControllerEvent


@dataclass(frozen=True, slots=True)
class DirectoryFailure:
    """What one lost directory does to the partitions in it."""

    directory_id: DirectoryId
    records: Sequence[ApiMessageAndVersion]
    # All partitions whose ISR or leadership depended on this directory, also those where no record can help.
    partitions: Collection[TopicIdPartition]

    @property
    def leaders_moved(self) -> int:
        return sum(moves_leader(record) for record in self.records)


def handle_directory_failure(
    state: MetadataState, changes: PartitionChanges, broker_id: BrokerId, directory_id: DirectoryId
) -> DirectoryFailure:
    """The changes for every partition whose ISR names this broker's replica in this directory."""
    records: list[ApiMessageAndVersion] = []
    partitions: dict[TopicIdPartition, None] = {}
    for key in state.partitions_in_directory(broker_id, directory_id):
        if broker_id not in state.topics[key.topic_id].partitions[key.partition].isr:
            continue
        partitions[key] = None
        change = changes.without(key, broker_id)
        if change is not None:
            records.append(change)
    return DirectoryFailure(directory_id, records, partitions.keys())


def directory_failure_events(broker_id: BrokerId, failure: DirectoryFailure, *, is_news: bool) -> list[ControllerEvent]:
    """The story of one failure: reported at once, leaders moved when the records are committed."""
    fields = {"broker_id": broker_id, "directory_id": failure.directory_id}
    events: list[ControllerEvent] = []
    if is_news:
        events.append(ControllerEvent("log_dir_reported_offline", fields, is_about_commit=False))
    if is_news or failure.records:
        counts = {"partitions": len(failure.records), "leaders": failure.leaders_moved}
        events.append(ControllerEvent("leaders_moved", fields | counts))
    return events
