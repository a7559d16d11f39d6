"""A broker's metrics: the names that dashboards use, and the series of a directory over its lifetime."""

import errno
from collections.abc import Mapping
from typing import Self

from broker.core.lifecycle import BrokerState
from broker.core.replication_quota import ReplicationQuota
from broker.hosting.loading_progress import LoadingProgress
from broker.hosting.moves import MoveCounts
from broker.hosting.partition import IsrCounts
from broker.hosting.replica_descriptions import ReplicaGauges
from broker.metrics import broker_samples
from common.environment.interface import LogDirError
from common.ids import DirectoryId, uuid_text
from common.log_dirs.log_directories import LogDirectories, LogDirectory
from common.metrics_exposition import Sample, SnapshotCollector
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.metadata.builders import directory

D1, D2 = directory(1), directory(2)


class Moves:
    """A stub of Moves with one replica that moves from D1 to D2."""

    counts: Mapping[DirectoryId, MoveCounts] = {
        D2: MoveCounts(finished=3, failed=1, bytes_copied=4000, throttled_ns=2_500_000_000)
    }
    max_lag = 17

    def count_into(self, directory_id: DirectoryId) -> int:
        return int(directory_id == D2)

    def bytes_to_go(self, directory_id: DirectoryId) -> int:
        return 600 if directory_id == D2 else 0


class Replicas:
    """Stands in for Replicas, with two replicas in D1 and none in D2."""

    def __init__(self) -> None:
        self.moves = Moves()
        self.cordoned = {"/d2"}
        self.loading_progress = LoadingProgress(SimulatedWorld(seed=1).node("broker-1"))
        self.isr_counts = IsrCounts()
        self.isr_counts.shrinks = 4
        self.isr_counts.expands = 5
        self.isr_counts.failed_updates = 6
        self.leader_quota = ReplicationQuota(lambda: 1)
        self.leader_quota.count(16, 0, is_paced=True)
        self.follower_quota = ReplicationQuota(lambda: 1)
        self.follower_quota.count(17, 0, is_paced=False)

    @property
    def descriptions(self) -> Self:
        return self

    def gauges(self) -> ReplicaGauges:
        return ReplicaGauges(
            partition_count=10,
            leader_count=3,
            offline_replica_count=1,
            under_replicated_partitions=2,
            under_min_isr_partition_count=7,
            at_min_isr_partition_count=8,
            reassigning_partitions=15,
            unplaceable_replica_count=9,
        )

    def is_cordoned(self, path: str) -> bool:
        return path in self.cordoned

    def count_in(self, directory_id: DirectoryId) -> int:
        return 2 if directory_id == D1 else 0


class Broker:
    """A broker with /d1 and /d2 online and /d3 offline since its start."""

    def __init__(self) -> None:
        self.replicas = Replicas()
        self.directories = LogDirectories(
            [
                LogDirectory(path="/d1", directory_id=D1),
                LogDirectory(path="/d2", directory_id=D2),
                LogDirectory(path="/d3", directory_id=None, cause="EIO"),
                LogDirectory(path="/m", directory_id=directory(9)),
            ],
            data_dirs=("/d1", "/d2", "/d3"),
            metadata_dir="/m",
        )

    def samples(self) -> list[Sample]:
        return list(
            broker_samples(
                state=BrokerState.RUNNING,
                known=self.directories,
                replicas=self.replicas,
                queued_assignments=11,
                applied_offset=12,
                lag_ms=13,
            )
        )

    def values(self, name: str) -> dict[str, float]:
        """Returns the value of each series with this name, by directory path ("" without a directory)."""
        return {dict(each.labels).get("logDirectory", ""): each.value for each in self.samples() if each.name == name}


def test_every_series_without_a_directory_has_its_stock_name_and_value() -> None:
    """Compares the values of all series without a directory. Most names are those of the stock jmx_exporter rules or of
    KIP-858."""
    broker = Broker()
    expected = {
        "kafka_server_kafkaserver_brokerstate": 3,
        "kafka_server_assignmentsmanager_queuedreplicatodirassignments": 11,
        "kafka_server_kafkaserver_queuedreplicatodirassignments": 11,
        "kafka_server_broker_metadata_metrics_last_applied_record_offset": 12,
        "kafka_server_broker_metadata_metrics_last_applied_record_lag_ms": 13,
        "kafka_server_replicamanager_partitioncount": 10,
        "kafka_server_replicamanager_leadercount": 3,
        "kafka_server_replicamanager_offlinereplicacount": 1,
        "kafka_server_replicamanager_underreplicatedpartitions": 2,
        "kafka_server_replicamanager_underminisrpartitioncount": 7,
        "kafka_server_replicamanager_atminisrpartitioncount": 8,
        "kafka_server_replicamanager_reassigningpartitions": 15,
        "kafka_server_replicamanager_isrshrinks": 4,
        "kafka_server_replicamanager_isrexpands": 5,
        "kafka_server_replicamanager_failedisrupdates": 6,
        "kafka_server_leaderreplication_bytes": 16,
        "kafka_server_followerreplication_bytes": 17,
        "diskraft_unplaceable_replicas": 9,
        "kafka_server_replicaalterlogdirsmanager_maxlag": 17,
        "kafka_log_logmanager_offlinelogdirectorycount": 1,
        "kafka_log_logmanager_cordonedlogdirectorycount": 1,
    }
    assert {name: broker.values(name) for name in expected} == {name: {"": value} for name, value in expected.items()}


def test_directories_show_their_id_and_what_they_hold() -> None:
    """Each online directory has series with its id and its replica count."""
    broker = Broker()
    assert broker.values("kafka_log_logmanager_logdirectoryoffline") == {"/d1": 0, "/d2": 0, "/d3": 1}
    assert broker.values("kafka_log_logmanager_logdirectorycordoned") == {"/d1": 0, "/d2": 1, "/d3": 0}
    assert broker.values("kafka_log_logdir_partitions") == {"/d1": 2, "/d2": 0}
    labels = [dict(each.labels) for each in broker.samples() if each.name == "kafka_log_logdir_partitions"]
    assert labels == [
        {"logDirectory": "/d1", "directoryId": uuid_text(D1)},
        {"logDirectory": "/d2", "directoryId": uuid_text(D2)},
    ]


def test_a_directory_that_fails_keeps_its_offline_series() -> None:
    """The offline series goes to 1 and stays, because an alert on it must not resolve by itself. The directory's other
    series disappear."""
    broker = Broker()
    broker.directories.step(LogDirError("/d1", "append", errno.EIO))
    assert broker.values("kafka_log_logmanager_logdirectoryoffline") == {"/d1": 1, "/d2": 0, "/d3": 1}
    assert broker.values("kafka_log_logmanager_offlinelogdirectorycount") == {"": 2}
    assert broker.values("kafka_log_logdir_partitions") == {"/d2": 0}


def test_moves_are_shown_in_the_directory_that_they_fill() -> None:
    """Every online directory has all series from the start, so a rate can be computed even for the first move."""
    broker = Broker()
    expected = {
        "kafka_log_logdir_moves": 1,
        "kafka_log_logdir_move_bytes_to_go": 600,
        "kafka_log_logdir_moves_finished": 3,
        "kafka_log_logdir_moves_failed": 1,
        "kafka_log_logdir_move_copied_bytes": 4000,
        "kafka_log_logdir_move_throttled_seconds": 2.5,
    }
    assert {name: broker.values(name) for name in expected} == {
        name: {"/d1": 0, "/d2": value} for name, value in expected.items()
    }


def test_the_move_counters_of_a_directory_outlive_it() -> None:
    """When a target directory fails, its moves fail at the same time, and the counters must still show that. Series of
    current moves are no longer shown for the directory."""
    broker = Broker()
    broker.directories.step(LogDirError("/d2", "append", errno.EIO))
    assert broker.values("kafka_log_logdir_moves_failed") == {"/d1": 0, "/d2": 1}
    assert broker.values("kafka_log_logdir_moves") == {"/d1": 0}


def test_all_of_it_can_be_exposed() -> None:
    """The samples can be published: all series of a name have the same kind and label names, and counters end in _total."""
    collector = SnapshotCollector(lambda: 0)
    collector.publish(Broker().samples())
    families = {family.name: family for family in collector.collect()}
    (moves,) = {sample.name for sample in families["kafka_log_logdir_moves_failed"].samples}
    assert moves == "kafka_log_logdir_moves_failed_total"
    assert len(families["kafka_log_logdir_partitions"].samples) == 2


def test_a_broker_that_loads_its_logs_counts_them_down() -> None:
    """The series has the name and the label of Kafka's remainingLogsToRecover, and disappears after the start, as there."""
    broker = Broker()
    progress = broker.replicas.loading_progress.begin("/d1")
    progress.remaining_logs = 5
    found = [each for each in broker.samples() if each.name == "kafka_log_logmanager_remaininglogstorecover"]
    assert [(dict(each.labels), each.value) for each in found] == [({"dir": "/d1"}, 5)]
    broker.replicas.loading_progress.end(progress)
    assert "kafka_log_logmanager_remaininglogstorecover" not in {each.name for each in broker.samples()}
