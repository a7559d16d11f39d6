"""The metrics of the group coordinator, named as in the stock jmx_exporter rules (shell without I/O).

Counterpart of Kafka's GroupMetadataManager gauges and group-coordinator-metrics. Each broker counts the groups of the
partitions that it leads, so a sum over the brokers counts each group once.
"""

from collections import Counter
from collections.abc import Iterator

from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroupState
from broker.coordinator.core.group_state import GroupState
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.load_metrics import load_samples
from common.metrics_exposition import Sample, counter, gauge

_GROUPS = "kafka_coordinator_group_groupmetadatamanager"
_LOADS = "kafka_server_group_coordinator_metrics"


def group_samples(coordinator: GroupCoordinator) -> Iterator[Sample]:
    """Yields the current value of every metric."""
    shards = [shard for each in coordinator.loaded_and_loading() if (shard := each.shard) is not None]
    states = Counter(group.state for shard in shards for group in shard.groups)
    yield gauge(f"{_GROUPS}_numgroups", "Classic groups in the partitions that this broker leads.", states.total())
    for state in GroupState:
        name = f"{_GROUPS}_numgroups{state.value.lower()}"
        yield gauge(name, f"Classic groups in the state {state.value}.", states[state])
    yield gauge(f"{_GROUPS}_numoffsets", "Committed offsets.", sum(len(shard.offsets) for shard in shards))
    consumer_states = Counter(group.state for shard in shards for group in shard.consumer_groups)
    for protocol, count in (("classic", states.total()), ("consumer", consumer_states.total())):
        yield gauge(f"{_LOADS}_group_count", "Groups by the protocol of their members.", count, protocol=protocol)
    for consumer_state in ConsumerGroupState:
        yield gauge(
            f"{_LOADS}_consumer_group_count",
            "Groups of the consumer protocol by state.",
            consumer_states[consumer_state],
            state=consumer_state.value.lower(),
        )
    yield from load_samples(coordinator, _LOADS)
    yield counter(f"{_LOADS}_partition_loads", "Partitions whose groups were loaded.", coordinator.load_counts.loaded)
