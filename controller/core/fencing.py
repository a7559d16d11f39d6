"""Removes a broker from ISRs and leaderships, and fences brokers whose session expired (core).

Counterpart of handleBrokerFenced and maybeFenceReplicas in Kafka's ReplicationControlManager. Controlled shutdown,
registration and unregistration use the same removal. Partition changes come before the registration change, so that
replaying the log in order never shows a fenced leader. Only one broker is fenced per operation (KAFKA-13173): if one batch
removed two brokers, either could be elected as the other's successor.
"""

from collections.abc import Container
from dataclasses import replace

from common.ids import BrokerId, TopicIdPartition
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.eligibility import Eligibility
from controller.core.long_decisions import Sliced, ends_slice
from controller.core.partition_change import PartitionChanges
from controller.core.registration_change import registration_change
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.settings import ControllerSettings
from controller.core.turn import Turn


def generate_removal_records(
    state: MetadataState,
    changes: PartitionChanges,
    broker_id: BrokerId,
    *,
    except_for: Container[TopicIdPartition] = (),
) -> Sliced[list[ApiMessageAndVersion]]:
    """Removes the broker from every ISR that has another member, and from every leadership."""
    records: list[ApiMessageAndVersion] = []
    for number, key in enumerate(state.partitions_with_broker_in_isr(broker_id)):
        if ends_slice(number):
            yield
        if key not in except_for:
            change = changes.without(key, broker_id)
            if change is not None:
                records.append(change)
    return records


def generate_fencing_records(
    state: MetadataState, settings: ControllerSettings, registration: BrokerRegistration
) -> Sliced[list[ApiMessageAndVersion]]:
    """Returns all records that fence this broker: the partition changes, then the registration change."""
    after = replace(registration, fenced=True)
    eligibility = Eligibility(state, subject=registration.broker_id, after=after)
    changes = PartitionChanges(state, settings, eligibility)
    records = yield from generate_removal_records(state, changes, registration.broker_id)
    change = registration_change(state.metadata_version, registration, after)
    if change is not None:
        records.append(change)
    return records


def unfenced_brokers(state: MetadataState) -> list[BrokerId]:
    """Returns the unfenced brokers in ascending order. The expiry of a session matters only for these."""
    return sorted(broker_id for broker_id, registration in state.brokers.items() if not registration.fenced)


def fence_stale_broker(turn: Turn, _request: None) -> Sliced[ControllerResult[BrokerId | None]]:
    """Fences the broker that has been silent the longest, if its session has expired. The response is the id of the fenced
    broker, or None."""
    state, sessions = turn.state, turn.sessions
    broker_id = sessions.longest_silent(unfenced_brokers(state), turn.now_ns)
    if broker_id is None:
        return ControllerResult([], None)
    records = yield from generate_fencing_records(state, turn.settings, state.brokers[broker_id])
    sessions.set_controlled_shutdown_offset(broker_id, None)
    event = ControllerEvent(
        "broker_fenced", {"broker_id": broker_id, "reason": "session timeout", "partitions": len(records) - 1}
    )
    return ControllerResult(records, broker_id, events=[event])
