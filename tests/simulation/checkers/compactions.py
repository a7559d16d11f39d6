"""Checks how far compactions go: I28.

Shell of the tests. A record at or beyond the last stable offset may still be truncated, or turn out to be aborted. If a
compaction has dropped older records for it, their keys are lost with it.
"""

from collections.abc import Mapping

from broker.daemon import BrokerDaemon
from tests.simulation.checkers.replicas import hosted
from tests.simulation.environment import SimulatedEvent
from tests.simulation.violations import InvariantViolated


def check_compacted(event: SimulatedEvent, brokers: Mapping[int, BrokerDaemon]) -> None:
    """I28: a compaction ends at or before the last stable offset. Call this while the event is being logged. The last stable
    offset never decreases, so it was no higher when the compaction began."""
    if event.name != "log_compacted":
        return
    broker = brokers.get(int(event.node.rpartition("-")[2]))
    if broker is None:
        return
    end_offset = event.fields["first_dirty_offset"]
    for _, partition in hosted(broker):
        if partition.name == event.fields["partition"] and end_offset > partition.last_stable_offset:
            raise InvariantViolated(
                "I28",
                f"{event.node} has compacted {partition.name} up to {end_offset}, its last stable offset is "
                f"{partition.last_stable_offset}",
            )
