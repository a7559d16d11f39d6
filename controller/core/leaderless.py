"""Finds a leader for partitions that have none (core).

The level-triggered half of leader election: whatever made a replica eligible (its broker was unfenced, its directory
assignment changed, an unclean election was allowed, another controller forgot), the periodic sweep finds it. Easy to get
wrong: most leaderless partitions stay leaderless on most sweeps, and those must cost a look and never a record.
"""

from collections.abc import Container

from common.ids import NO_LEADER, BrokerId, TopicIdPartition
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.eligibility import Eligibility
from controller.core.partition_change import PartitionChanges
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn

ELECTIONS_PER_SWEEP_MAX = 1_000


def generate_elections_on_broker(
    state: MetadataState,
    changes: PartitionChanges,
    broker_id: BrokerId,
    *,
    except_for: Container[TopicIdPartition] = (),
) -> list[ApiMessageAndVersion]:
    """Leaders for the leaderless partitions of a broker that is becoming unfenced."""
    records: list[ApiMessageAndVersion] = []
    for key in state.partitions_led_by(NO_LEADER):
        partition = state.topics[key.topic_id].partitions[key.partition]
        if broker_id in partition.replicas and key not in except_for:
            change = changes.change(key)
            if change is not None:
                records.append(change)
    return records


def elect_leaderless(turn: Turn, _request: None) -> ControllerResult[int]:
    """Leaders for as many leaderless partitions as one sweep takes. The response is how many were elected."""
    state = turn.state
    changes = PartitionChanges(state, turn.settings, Eligibility(state))
    records: list[ApiMessageAndVersion] = []
    for key in state.partitions_led_by(NO_LEADER):
        change = changes.change(key)
        if change is not None:
            records.append(change)
            if len(records) == ELECTIONS_PER_SWEEP_MAX:
                break
    events = [ControllerEvent("leaderless_partitions_elected", {"partitions": len(records)})] if records else []
    return ControllerResult(records, len(records), is_atomic=False, events=events)
