"""Elects leaders at the request of an administrator (core; KIP-183, KIP-460).

Counterpart of electLeaders in Kafka's ReplicationControlManager, with its error codes and messages.

1. A *preferred* election makes the first replica the leader, if it can lead cleanly. It never elects uncleanly, even if the
   topic allows that.
2. An *unclean* election finds a leader for a partition that has none. If no ISR member can lead, it elects a replica outside
   the ISR, even if the topic does not allow that, because the administrator has asked for an unclean election.
3. If the request asks for all partitions, those that need no election are left out of the response.
"""

from collections.abc import Iterable, Mapping

from common.ids import TopicIdPartition
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.elect_leaders import (
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.election import ElectionPreference
from controller.core.eligibility import Eligibility
from controller.core.long_decisions import Sliced, SliceMeter
from controller.core.partition_change import PartitionChanges, PartitionTarget
from controller.core.preferred import is_led_by_preferred
from controller.core.record_limit import RECORDS_PER_REQUEST_MAX, too_many_records
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn

_TARGETS = {
    ElectionType.PREFERRED: PartitionTarget(preference=ElectionPreference(prefers_first=True, is_unclean_allowed=False)),
    ElectionType.UNCLEAN: PartitionTarget(preference=ElectionPreference(is_unclean_allowed=True)),
}
_FAILURES = {
    ElectionType.PREFERRED: (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."),
    ElectionType.UNCLEAN: (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}


def elect_leaders(turn: Turn, request: ElectLeadersRequest) -> Sliced[ControllerResult[ElectLeadersResponse]]:
    """Runs the elections, in slices. The response has one result per partition. Raises ApiError(INVALID_REQUEST or
    POLICY_VIOLATION)."""
    if request.topic_partitions is not None and not request.topic_partitions:
        # As in Kafka, an empty list of partitions is no error, whatever the election type.
        return ControllerResult([], ElectLeadersResponse())
    if request.election_type not in tuple(ElectionType):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    elections = _Elections(turn, ElectionType(request.election_type))
    response = ElectLeadersResponse()
    meter = SliceMeter()
    wanted = yield from _wanted(turn.state, request, meter)
    for name, indexes in wanted.items():
        results: list[PartitionResult] = []
        for index in indexes:
            if meter.ends_slice(1):
                yield
            results.append(elections.result(name, index))
        if request.topic_partitions is None:
            results = [result for result in results if result.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        response.replica_election_results.append(ReplicaElectionResult(topic=name, partition_result=results))
    if len(elections.records) > RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    # Not atomic: the elections are independent of each other.
    return ControllerResult(elections.records, response, is_atomic=False, events=elections.events())


def _wanted(state: MetadataState, request: ElectLeadersRequest, meter: SliceMeter) -> Sliced[Mapping[str, Iterable[int]]]:
    """Returns the partitions to look at, by topic name. No partition is there twice."""
    if request.topic_partitions is None:
        return {topic.name: topic.partitions for topic in state.topics.values()}
    wanted: dict[str, dict[int, None]] = {}
    for named in request.topic_partitions:
        if meter.ends_slice(1):
            yield
        wanted.setdefault(named.topic, {}).update(dict.fromkeys(named.partitions))
    return wanted


class _Elections:
    """The elections of one request."""

    def __init__(self, turn: Turn, election_type: ElectionType) -> None:
        self.records: list[ApiMessageAndVersion] = []
        self._state = turn.state
        self._changes = PartitionChanges(turn.state, turn.settings, Eligibility(turn.state))
        self._type = election_type

    def result(self, topic_name: str, index: int) -> PartitionResult:
        """Runs the election of one partition, and returns its result."""
        result = PartitionResult(partition_id=index)
        try:
            self._elect(topic_name, index)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        return result

    def events(self) -> list[ControllerEvent]:
        if not self.records:
            return []
        fields = {"election_type": self._type.name.lower(), "partitions": len(self.records)}
        return [ControllerEvent("leaders_elected", fields)]

    def _elect(self, topic_name: str, index: int) -> None:
        topic = self._state.topic_named(topic_name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}")
        partition = topic.partitions.get(index)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_name}-{index}")
        if self._is_needless(partition):
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
        change = self._changes.change(TopicIdPartition(topic.id, index), _TARGETS[self._type])
        if change is None:
            raise ApiError(*_FAILURES[self._type])
        self.records.append(change)

    def _is_needless(self, partition: PartitionRegistration) -> bool:
        return is_led_by_preferred(partition) if self._type is ElectionType.PREFERRED else partition.has_leader
