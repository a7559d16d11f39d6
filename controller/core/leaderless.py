"""Elects leaders for partitions that have none (core).

These elections look at the current state, not at what changed. A replica can become eligible in many ways: its broker is
unfenced, its directory assignment changes, unclean elections are enabled, or an earlier controller missed an election. The
periodic sweep finds the partition in every case. Most sweeps can elect no leader for most leaderless partitions; nothing is
written for these.
"""

from collections.abc import Container

from common.ids import NO_LEADER, BrokerId, TopicIdPartition
from common.metadata.state import MetadataState
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.eligibility import Eligibility
from controller.core.long_decisions import Sliced, ends_slice
from controller.core.partition_change import PartitionChanges
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn

ELECTIONS_PER_SWEEP_MAX = 1_000


def generate_elections_on_broker(
    state: MetadataState,
    changes: PartitionChanges,
    broker_id: BrokerId,
    *,
    except_for: Container[TopicIdPartition],
) -> Sliced[list[ApiMessageAndVersion]]:
    """Returns the records that elect leaders for leaderless partitions with a replica on a broker that is being unfenced."""
    records: list[ApiMessageAndVersion] = []
    for number, key in enumerate(state.partitions_led_by(NO_LEADER)):
        if ends_slice(number):
            yield
        partition = state.topics[key.topic_id].partitions[key.partition]
        if broker_id in partition.replicas and key not in except_for:
            change = changes.change(key)
            if change is not None:
                records.append(change)
    return records


def elect_leaderless(turn: Turn, _request: None) -> Sliced[ControllerResult[int]]:
    """Elects leaders for up to ELECTIONS_PER_SWEEP_MAX leaderless partitions. The response is the number of leaders
    elected."""
    state = turn.state
    changes = PartitionChanges(state, turn.settings, Eligibility(state))
    records: list[ApiMessageAndVersion] = []
    for number, key in enumerate(state.partitions_led_by(NO_LEADER)):
        if ends_slice(number):
            yield
        change = changes.change(key)
        if change is not None:
            records.append(change)
            if len(records) == ELECTIONS_PER_SWEEP_MAX:
                break
    events = [ControllerEvent("leaderless_partitions_elected", {"partitions": len(records)})] if records else []
    return ControllerResult(records, len(records), is_atomic=False, events=events)
