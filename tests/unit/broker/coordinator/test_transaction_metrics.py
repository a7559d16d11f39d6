"""The metrics of the transaction coordinator: the names that dashboards use, and where their values come from."""

from typing import Any, cast

from broker.coordinator.coordinator_partition import LoadCounts
from broker.coordinator.core.transactions.verification import VerificationCounts
from broker.coordinator.marker_sender import MarkerSender
from broker.coordinator.transaction_coordinator import TransactionCoordinator
from broker.coordinator.transaction_metrics import transaction_samples
from common.protocol.errors import ErrorCode
from tests.unit.broker.coordinator.core.transactions.transaction_world import TransactionWorld

MS = 1_000_000
MARKERS = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
LOADS = "kafka_server_transaction_coordinator_metrics"
VERIFICATION = "kafka_server_addpartitionstotxnmanager"


class Part:
    def __init__(self, shard: Any) -> None:
        self.shard = shard
        self.is_loaded = shard is not None


class Coordinator:
    """Has a loaded partition with three ids, and one that is being loaded."""

    topic = TransactionCoordinator.topic
    load_counts = LoadCounts(loaded=2, failed=1, load_time_ns_sum=30 * MS, load_time_ns_max=20 * MS)

    def __init__(self) -> None:
        world = TransactionWorld()
        for transactional_id in ("open", "ended", "new"):
            producer = world.producer(transactional_id)
            if transactional_id != "new":
                assert world.add(producer, ("a", 0), transactional_id=transactional_id) is ErrorCode.NONE
            if transactional_id == "ended":
                assert world.end(producer, transactional_id=transactional_id) is ErrorCode.NONE
        self._parts = [Part(world.shard), Part(None)]

    def loaded_and_loading(self) -> list[Part]:
        return self._parts


class Sender:
    retries = 4
    oldest_age_ns = 2500 * MS

    def __len__(self) -> int:
        return 3


def test_every_metric_has_its_name_and_its_value() -> None:
    samples = transaction_samples(
        cast(TransactionCoordinator, Coordinator()),
        cast(MarkerSender, Sender()),
        VerificationCounts(asked=9, failed=2, time_ns_sum=27 * MS, time_ns_max=8 * MS),
    )
    found = {(each.name, *dict(each.labels).values()): (each.value, each.counter) for each in samples}
    states = {name[1]: value for name, (value, _) in found.items() if name[0] == "diskraft_transactional_ids"}
    assert states == {
        "Empty": 1,
        "Ongoing": 1,
        "PrepareCommit": 1,
        "PrepareAbort": 0,
        "CompleteCommit": 0,
        "CompleteAbort": 0,
        "Dead": 0,
        "PrepareEpochFence": 0,
    }
    assert {name: value for name, value in found.items() if name[0] != "diskraft_transactional_ids"} == {
        ("diskraft_transactions_awaiting_markers",): (3, False),
        ("diskraft_transaction_markers_oldest_age_seconds",): (2.5, False),
        (f"{MARKERS}_unknowndestinationqueuesize",): (4, False),
        (f"{LOADS}_num_partitions", "active"): (1, False),
        (f"{LOADS}_num_partitions", "loading"): (1, False),
        (f"{LOADS}_partition_load_time_max",): (20, False),
        (f"{LOADS}_partition_load_time_avg",): (15, False),
        (f"{LOADS}_partition_load_failures",): (1, True),
        (f"{VERIFICATION}_verifications",): (9, True),
        (f"{VERIFICATION}_verificationfailure",): (2, True),
        (f"{VERIFICATION}_verificationtimems",): (27, True),
        (f"{VERIFICATION}_verificationtimems_max",): (8, False),
    }
