"""Builds the record that changes a broker's registration (core).

Fencing, unfencing, controlled shutdown, lost and cordoned directories share one BrokerRegistrationChangeRecord, written in
the lowest version that can express the change, as in Kafka's controller. On replay an empty list of online directories means
"no change", so the record cannot express the loss of the last directory. The broker is fenced instead, and stays fenced.
"""

from common.metadata import metadata_version
from common.metadata.registrations import BrokerRegistration
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    ControlledShutdownChange,
    FenceBrokerRecord,
    FencingChange,
    UnfenceBrokerRecord,
)


def registration_change(level: int, before: BrokerRegistration, after: BrokerRegistration) -> ApiMessageAndVersion | None:
    """Returns the record that turns `before` into `after`. None if nothing changes that this metadata.version can
    express."""
    fencing = FencingChange.NONE
    if after.fenced != before.fenced:
        fencing = FencingChange.FENCE if after.fenced else FencingChange.UNFENCE
    if level < metadata_version.BROKER_REGISTRATION_CHANGE_LEVEL:
        return _legacy_fencing(fencing, before)
    record = BrokerRegistrationChangeRecord(broker_id=before.broker_id, broker_epoch=before.epoch, fenced=fencing)
    version = 0
    is_leaving = after.in_controlled_shutdown and not before.in_controlled_shutdown
    if is_leaving and level >= metadata_version.IN_CONTROLLED_SHUTDOWN_LEVEL:
        record.in_controlled_shutdown = ControlledShutdownChange.IN_CONTROLLED_SHUTDOWN
        version = 1
    if after.directories != before.directories:
        record.log_dirs = list(after.directories)
        version = 2
    if after.cordoned_directories != before.cordoned_directories and metadata_version.is_cordoning_supported(level):
        assert after.cordoned_directories is not None, "only a new registration or level makes the cordons unknown again"
        record.cordoned_log_dirs = list(after.cordoned_directories)
        version = 3
    if record == BrokerRegistrationChangeRecord(broker_id=before.broker_id, broker_epoch=before.epoch):
        return None
    return ApiMessageAndVersion(record, version)


def _legacy_fencing(fencing: FencingChange, before: BrokerRegistration) -> ApiMessageAndVersion | None:
    if fencing is FencingChange.NONE:
        return None
    record_class = FenceBrokerRecord if fencing is FencingChange.FENCE else UnfenceBrokerRecord
    return ApiMessageAndVersion(record_class(id=before.broker_id, epoch=before.epoch), 0)
