"""The metrics of the transaction coordinator, named as in the stock jmx_exporter rules (shell without I/O).

Counterpart of the metrics of Kafka's TransactionMarkerChannelManager and AddPartitionsToTxnManager, and of
transaction-coordinator-metrics. What Kafka does not measure, such as the ids by state, has this project's prefix.
There is no LogAppendRetryQueueSize: a coordinator whose append fails loads its partition again, and that is counted.
"""

from collections import Counter
from collections.abc import Iterator

from broker.coordinator.core.transactions.state import TransactionState
from broker.coordinator.core.transactions.verification import VerificationCounts
from broker.coordinator.load_metrics import load_samples
from broker.coordinator.marker_sender import MarkerSender
from broker.coordinator.transaction_coordinator import TransactionCoordinator
from common.metrics_exposition import Sample, counter, gauge

_MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
_VERIFICATION = "kafka_server_addpartitionstotxnmanager"
_LOADS = "kafka_server_transaction_coordinator_metrics"


def transaction_samples(
    coordinator: TransactionCoordinator, sender: MarkerSender, verifications: VerificationCounts
) -> Iterator[Sample]:
    """Yields the current value of every metric."""
    shards = [shard for each in coordinator.loaded_and_loading() if (shard := each.shard) is not None]
    states = Counter(each.state for shard in shards for each in shard.transactions)
    for state in TransactionState:
        text = "Transactional ids that this broker coordinates, by state."
        yield gauge("diskraft_transactional_ids", text, states[state], state=state.label)
    yield gauge(
        f"{_MARKERS}_unknowndestinationqueuesize",
        "Transaction markers whose partition has no leader, or whose last attempt failed.",
        sender.retries,
    )
    yield gauge("diskraft_transactions_awaiting_markers", "Ended transactions that lack markers.", len(sender))
    yield gauge(
        "diskraft_transaction_markers_oldest_age_seconds",
        "How long the oldest ended transaction has lacked markers.",
        sender.oldest_age_ns / 1e9,
    )
    yield from load_samples(coordinator, _LOADS)
    yield from _verification_samples(verifications)


def _verification_samples(counts: VerificationCounts) -> Iterator[Sample]:
    """Yields Kafka's VerificationFailureRate and VerificationTimeMs as counters, from which rates and means follow."""
    yield counter(f"{_VERIFICATION}_verifications", "Questions whether a transaction is open.", counts.asked)
    yield counter(f"{_VERIFICATION}_verificationfailure", "Transactions that were not confirmed.", counts.failed)
    yield counter(f"{_VERIFICATION}_verificationtimems", "Time until the answers, in ms.", counts.time_ns_sum / 1e6)
    yield gauge(f"{_VERIFICATION}_verificationtimems_max", "Longest time since the start, in ms.", counts.time_ns_max / 1e6)
