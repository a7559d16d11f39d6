"""Moves leaderships back to the first replicas (core; auto.leader.rebalance.enable).

Counterpart of maybeBalancePartitionLeaders in Kafka's ReplicationControlManager. The elections are clean: the first replica
takes over only if it is in the ISR and eligible. An imbalance is not urgent, so one pass moves a limited number of leaders,
and other operations run before the next pass. While a broker is down, a pass looks in vain at every partition that the
broker should lead. So it works in slices.
"""

from common.ids import NO_LEADER, TopicIdPartition
from common.metadata.registrations import PartitionRegistration
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.election import ElectionPreference
from controller.core.eligibility import Eligibility
from controller.core.long_decisions import Sliced, ends_slice
from controller.core.partition_change import PartitionChanges, PartitionTarget
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn

ELECTIONS_PER_PASS_MAX = 1_000
_FIRST_REPLICA = PartitionTarget(preference=ElectionPreference(prefers_first=True))


def is_led_by_preferred(partition: PartitionRegistration) -> bool:
    """Whether the first replica leads. A partition without a leader counts as imbalanced, as in Kafka."""
    return partition.leader == partition.replicas[0]


def elect_preferred_leaders(turn: Turn, _request: None) -> Sliced[ControllerResult[int]]:
    """Elects the first replica wherever it can lead, in slices. The response is the number of leaders moved."""
    state = turn.state
    changes = PartitionChanges(state, turn.settings, Eligibility(state))
    records: list[ApiMessageAndVersion] = []
    number = 0
    for topic in state.topics.values():
        for index, partition in topic.partitions.items():
            if ends_slice(number):
                yield
            number += 1
            if partition.leader == NO_LEADER or is_led_by_preferred(partition):
                continue
            change = changes.change(TopicIdPartition(topic.id, index), _FIRST_REPLICA)
            if change is not None:
                records.append(change)
            if len(records) == ELECTIONS_PER_PASS_MAX:
                return _result(records)
    return _result(records)


def _result(records: list[ApiMessageAndVersion]) -> ControllerResult[int]:
    events = [ControllerEvent("preferred_leaders_elected", {"partitions": len(records)})] if records else []
    return ControllerResult(records, len(records), is_atomic=False, events=events)
