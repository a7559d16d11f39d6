"""Turns a failed log directory of a broker into partition changes (core; KIP-858).

Counterpart of Kafka's handleDirectoriesOffline. The metadata state has an index from each directory to the partitions in it.
In these partitions the broker loses leadership and ISR membership, exactly as if it were fenced. The caller writes the
registration change *after* these records, so that replaying the log in order never shows a leader on a failed directory.
Brokers repeat their reports. A repeated report must repair any leader or ISR entry still in the directory, so nothing here
checks whether the failure was already known.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from common.ids import BrokerId, DirectoryId, TopicIdPartition
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.long_decisions import Sliced, ends_slice
from controller.core.partition_change import PartitionChanges, moves_leader
from controller.core.result import ControllerEvent


@dataclass(frozen=True, slots=True)
class DirectoryFailure:
    """The consequences of one lost directory for the partitions in it."""

    directory_id: DirectoryId
    records: Sequence[ApiMessageAndVersion]
    # All partitions with an ISR member in this directory, including those for which there is nothing to change.
    partitions: Collection[TopicIdPartition]

    @property
    def leaders_moved(self) -> int:
        return sum(moves_leader(record) for record in self.records)


def handle_directory_failure(
    state: MetadataState, changes: PartitionChanges, broker_id: BrokerId, directory_id: DirectoryId
) -> Sliced[DirectoryFailure]:
    """Takes this broker out of the leadership of every partition that it keeps in this directory, and out of the ISR unless
    it is the last member."""
    records: list[ApiMessageAndVersion] = []
    partitions: dict[TopicIdPartition, None] = {}
    for number, key in enumerate(state.partitions_in_directory(broker_id, directory_id)):
        if ends_slice(number):
            yield
        if broker_id not in state.topics[key.topic_id].partitions[key.partition].isr:
            continue
        partitions[key] = None
        change = changes.without(key, broker_id)
        if change is not None:
            records.append(change)
    return DirectoryFailure(directory_id, records, partitions.keys())


def directory_failure_events(broker_id: BrokerId, failure: DirectoryFailure, *, is_news: bool) -> list[ControllerEvent]:
    """Returns the log events of one failure: the report, logged at once, and the moved leaders, logged at the commit."""
    fields = {"broker_id": broker_id, "directory_id": failure.directory_id}
    events: list[ControllerEvent] = []
    if is_news:
        events.append(ControllerEvent("log_dir_reported_offline", fields, is_about_commit=False))
    if is_news or failure.records:
        counts = {"partitions": len(failure.records), "leaders": failure.leaders_moved}
        events.append(ControllerEvent("leaders_moved", fields | counts))
    return events
