"""Builds the PartitionRecords of new partitions (core).

Only replicas on active brokers enter the first ISR (KAFKA-13083). The other replicas join it once they are online and have
caught up.
"""

from collections.abc import Sequence

from common.ids import BrokerId, TopicId
from common.metadata import metadata_version
from common.metadata.registrations import LeaderRecoveryState
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import PartitionRecord
from controller.core.eligibility import Eligibility
from controller.core.placement import default_directory


def new_partition_record(
    state: MetadataState, topic_id: TopicId, index: int, replicas: Sequence[BrokerId]
) -> ApiMessageAndVersion | None:
    """Returns the record that creates the partition; None if none of its replicas is on an active broker."""
    eligibility = Eligibility(state)
    isr = [broker_id for broker_id in replicas if eligibility.is_active(broker_id)]
    if not isr:
        return None
    record = PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(isr),
        leader=isr[0],
        leader_recovery_state=LeaderRecoveryState.RECOVERED,
        leader_epoch=0,
        partition_epoch=0,
    )
    if metadata_version.is_directory_assignment_supported(state.metadata_version):
        record.directories = [default_directory(state, broker_id) for broker_id in replicas]
    return ApiMessageAndVersion(record, metadata_version.partition_record_version(state.metadata_version))
