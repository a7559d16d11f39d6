"""The controller's gauges, under the names of the stock jmx_exporter rules (shell).

Answers to Kafka's QuorumControllerMetrics and ControllerMetadataMetrics. The loop takes a snapshot now and then; what needs
a walk over all partitions is counted again only after the metadata has changed. Easy to get wrong: a standby knows the
cluster too, so only ActiveControllerCount tells which node's numbers may be a little ahead of the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from common.environment.interface import Environment
from common.ids import NO_LEADER
from common.metadata.state import MetadataState
from common.metrics_exposition import Sample, counter, gauge
from common.time_units import NS_PER_MS
from controller.core.preferred import is_led_by_preferred
from controller.quorum_controller import QuorumController


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerMetrics:
    """What was so at one moment."""

    active_controller_count: int
    active_broker_count: int
    fenced_broker_count: int
    global_topic_count: int
    global_partition_count: int
    offline_partitions_count: int
    preferred_replica_imbalance_count: int
    metadata_error_count: int
    last_applied_record_offset: int
    last_applied_record_timestamp: int
    last_applied_record_lag_ms: int
    last_committed_record_offset: int
    timed_out_broker_heartbeat_count: int
    new_active_controllers_count: int
    event_queue_operations_started_count: int
    event_queue_operations_timed_out_count: int
    event_queue_time_ms: float
    event_queue_processing_time_ms: float
    unclean_leader_elections_total: int

    def samples(self) -> list[Sample]:
        """For the collector."""
        prefix = "kafka_controller_kafkacontroller_"
        gauges = [
            ("activecontrollercount", "1 on the active controller, else 0.", self.active_controller_count),
            ("activebrokercount", "Registered brokers that are not fenced.", self.active_broker_count),
            ("fencedbrokercount", "Registered brokers that are fenced.", self.fenced_broker_count),
            ("globaltopiccount", "Topics of the cluster.", self.global_topic_count),
            ("globalpartitioncount", "Partitions of the cluster.", self.global_partition_count),
            ("offlinepartitionscount", "Partitions without a leader.", self.offline_partitions_count),
            (
                "preferredreplicaimbalancecount",
                "Partitions that are not led by their first replica.",
                self.preferred_replica_imbalance_count,
            ),
            ("metadataerrorcount", "Errors while processing the metadata log.", self.metadata_error_count),
            ("lastappliedrecordoffset", "Newest record that the state has.", self.last_applied_record_offset),
            ("lastappliedrecordtimestamp", "When it was appended, in ms.", self.last_applied_record_timestamp),
            ("lastappliedrecordlagms", "How old it is.", self.last_applied_record_lag_ms),
            ("lastcommittedrecordoffset", "Newest committed record.", self.last_committed_record_offset),
            (
                "timedoutbrokerheartbeatcount",
                "Heartbeats that waited too long for their turn.",
                self.timed_out_broker_heartbeat_count,
            ),
            ("newactivecontrollerscount", "How often this node became active.", self.new_active_controllers_count),
            (
                "eventqueueoperationsstartedcount",
                "Events that were carried out.",
                self.event_queue_operations_started_count,
            ),
            (
                "eventqueueoperationstimedoutcount",
                "Events that waited beyond their deadline.",
                self.event_queue_operations_timed_out_count,
            ),
        ]
        samples = [gauge(prefix + name, text, value) for name, text, value in gauges]
        manager = "kafka_controller_controllereventmanager_"
        samples += [
            gauge(
                manager + "eventqueuetimems", "Longest wait of an event since the last snapshot.", self.event_queue_time_ms
            ),
            gauge(
                manager + "eventqueueprocessingtimems",
                "Longest event since the last snapshot.",
                self.event_queue_processing_time_ms,
            ),
            counter(
                "kafka_controller_controllerstats_uncleanleaderelections",
                "Leaders elected from outside the ISR.",
                self.unclean_leader_elections_total,
            ),
        ]
        return samples


class ControllerMeter:
    """Takes the snapshots of one controller."""

    def __init__(self, env: Environment, controller: QuorumController) -> None:
        self._env = env
        self._controller = controller
        self._counted_at: tuple[MetadataState, int] | None = None
        self._imbalance_count = 0

    def snapshot(self) -> ControllerMetrics:
        """What is so now. The slowest times since the last snapshot are forgotten with it."""
        controller = self._controller
        state = controller.state
        statistics = controller.queue.statistics
        fenced_count = sum(registration.fenced for registration in state.brokers.values())
        queue_time_ns, statistics.queue_time_max_ns = statistics.queue_time_max_ns, 0
        processing_time_ns, statistics.processing_time_max_ns = statistics.processing_time_max_ns, 0
        return ControllerMetrics(
            active_controller_count=int(controller.is_active),
            active_broker_count=len(state.brokers) - fenced_count,
            fenced_broker_count=fenced_count,
            global_topic_count=len(state.topics),
            global_partition_count=state.partition_count,
            offline_partitions_count=len(state.partitions_led_by(NO_LEADER)),
            preferred_replica_imbalance_count=self._count_imbalance(state),
            # An error while processing the log ends the process.
            metadata_error_count=0,
            last_applied_record_offset=state.last_offset,
            last_applied_record_timestamp=controller.committed_wall_ms,
            last_applied_record_lag_ms=0
            if controller.is_active
            else max(0, self._env.wall_ms() - controller.committed_wall_ms),
            last_committed_record_offset=controller.committed_offset,
            timed_out_broker_heartbeat_count=controller.timed_out_heartbeat_count,
            new_active_controllers_count=controller.new_active_count,
            event_queue_operations_started_count=statistics.started_count,
            event_queue_operations_timed_out_count=statistics.timed_out_count,
            event_queue_time_ms=queue_time_ns / NS_PER_MS,
            event_queue_processing_time_ms=processing_time_ns / NS_PER_MS,
            unclean_leader_elections_total=controller.unclean_election_count,
        )

    def samples(self) -> Sequence[Sample]:
        return self.snapshot().samples()

    def _count_imbalance(self, state: MetadataState) -> int:
        if self._counted_at is not None:
            counted_state, change_count = self._counted_at
            if counted_state is state and change_count == self._controller.change_count:
                return self._imbalance_count
        self._counted_at = (state, self._controller.change_count)
        self._imbalance_count = sum(
            not is_led_by_preferred(partition) for topic in state.topics.values() for partition in topic.partitions.values()
        )
        return self._imbalance_count
