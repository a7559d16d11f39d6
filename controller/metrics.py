"""The controller's gauges, under the names of the stock jmx_exporter rules (shell).

Counterpart of Kafka's QuorumControllerMetrics and ControllerMetadataMetrics. The event loop calls `samples` once a second.
Counting the imbalanced partitions means visiting every partition, so that count is cached until the metadata changes. A
standby reports the cluster's numbers too; ActiveControllerCount shows which node is active. The active controller's numbers
may be slightly ahead of the committed log.
"""

from common.environment.interface import Environment
from common.ids import NO_LEADER
from common.metadata.state import MetadataState
from common.metrics_exposition import Sample, counter, gauge
from common.time_units import NS_PER_MS
from controller.core.preferred import is_led_by_preferred
from controller.quorum_controller import QuorumController

PREFIX = "kafka_controller_kafkacontroller_"
EVENT_PREFIX = "kafka_controller_controllereventmanager_"


class ControllerMeter:
    """Collects the metrics of one controller."""

    def __init__(self, env: Environment, controller: QuorumController) -> None:
        self._env = env
        self._controller = controller
        self._counted_at: tuple[MetadataState, int] | None = None
        self._imbalance_count = 0

    def samples(self) -> list[Sample]:
        """Returns the current values. Each maximum time covers the period since the last call."""
        controller, state = self._controller, self._controller.state
        statistics = controller.queue.statistics
        fenced_count = sum(registration.fenced for registration in state.brokers.values())
        wall_ms = self._env.wall_ms()
        lag_ms = 0 if controller.is_active else max(0, wall_ms - controller.committed_wall_ms)
        queue_time_ns, statistics.queue_time_max_ns = statistics.queue_time_max_ns, 0
        processing_time_ns, statistics.processing_time_max_ns = statistics.processing_time_max_ns, 0
        gauges = [
            ("activecontrollercount", "1 on the active controller, else 0.", int(controller.is_active)),
            ("activebrokercount", "Registered brokers that are not fenced.", len(state.brokers) - fenced_count),
            ("fencedbrokercount", "Registered brokers that are fenced.", fenced_count),
            ("globaltopiccount", "Topics of the cluster.", len(state.topics)),
            ("globalpartitioncount", "Partitions of the cluster.", state.partition_count),
            ("offlinepartitionscount", "Partitions without a leader.", len(state.partitions_led_by(NO_LEADER))),
            (
                "preferredreplicaimbalancecount",
                "Partitions that are not led by their first replica.",
                self._count_imbalance(state),
            ),
            # Always 0, because an error while processing the log ends the process.
            ("metadataerrorcount", "Errors while processing the metadata log.", 0),
            ("lastappliedrecordoffset", "Newest record that the state has.", state.last_offset),
            ("lastappliedrecordtimestamp", "When it was appended, in ms.", controller.committed_wall_ms),
            ("lastappliedrecordlagms", "How old it is.", lag_ms),
            ("lastcommittedrecordoffset", "Newest committed record.", controller.committed_offset),
            (
                "timedoutbrokerheartbeatcount",
                "Heartbeats that waited too long for their turn.",
                controller.timed_out_heartbeat_count,
            ),
            ("newactivecontrollerscount", "How often this node became active.", controller.new_active_count),
            ("eventqueueoperationsstartedcount", "Events that were carried out.", statistics.started_count),
            (
                "eventqueueoperationstimedoutcount",
                "Events that waited beyond their deadline.",
                statistics.timed_out_count,
            ),
        ]
        return [
            *(gauge(PREFIX + name, text, value) for name, text, value in gauges),
            gauge(
                EVENT_PREFIX + "eventqueuetimems",
                "Longest wait of an event since the last snapshot.",
                queue_time_ns / NS_PER_MS,
            ),
            gauge(
                EVENT_PREFIX + "eventqueueprocessingtimems",
                "Longest event since the last snapshot.",
                processing_time_ns / NS_PER_MS,
            ),
            gauge(
                "diskraft_awaited_replicas",
                "Replicas whose brokers stay fenced until their directories are known.",
                controller.awaited_replica_count,
            ),
            counter(
                "kafka_controller_controllerstats_uncleanleaderelections",
                "Leaders elected from outside the ISR.",
                controller.unclean_election_count,
            ),
        ]

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
