"""A broker's metrics for Prometheus, named as in the stock jmx_exporter KRaft rules (shell without I/O).

The event loop calls `broker_samples` once a second; the metrics thread serves the result. The series of a directory have the
directory's path as `logDirectory` and its id as `directoryId`. The series that controllers have too are in
`common/log_dirs/directory_metrics.py`. An offline directory must keep its logdirectoryoffline series, with the value 1.
Otherwise an alert would resolve itself the moment the disk dies.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Protocol

from broker.core.lifecycle import BrokerState
from broker.core.replication_quota import ReplicationQuota
from broker.hosting.moves import MoveCounts
from broker.hosting.partition import IsrCounts
from broker.hosting.replica_descriptions import ReplicaGauges
from common.ids import DirectoryId, uuid_text
from common.log_dirs.log_directories import LogDirectories
from common.metrics_exposition import Sample, counter, gauge


class CountedMoves(Protocol):
    """The part of `Moves` that is used here."""

    @property
    def counts(self) -> Mapping[DirectoryId, MoveCounts]: ...

    @property
    def max_lag(self) -> int: ...

    def count_into(self, directory_id: DirectoryId) -> int: ...

    def bytes_to_go(self, directory_id: DirectoryId) -> int: ...


class Loading(Protocol):
    """The part of `LoadingProgress` that is used here."""

    def remaining_logs(self) -> Mapping[str, int]: ...


class Described(Protocol):
    """The part of `ReplicaDescriptions` that is used here."""

    def gauges(self) -> ReplicaGauges: ...

    def count_in(self, directory_id: DirectoryId) -> int: ...


class CountedReplicas(Protocol):
    """The part of `Replicas` that is used here."""

    @property
    def isr_counts(self) -> IsrCounts: ...

    @property
    def moves(self) -> CountedMoves: ...

    def is_cordoned(self, path: str) -> bool: ...

    @property
    def loading_progress(self) -> Loading: ...

    @property
    def leader_quota(self) -> ReplicationQuota: ...

    @property
    def follower_quota(self) -> ReplicationQuota: ...

    @property
    def descriptions(self) -> Described: ...


def broker_samples(
    *,
    state: BrokerState,
    known: LogDirectories,
    replicas: CountedReplicas,
    queued_assignments: int,
    applied_offset: int,
    lag_ms: int,
) -> Iterator[Sample]:
    """Yields the current value of every metric."""
    yield gauge("kafka_server_kafkaserver_brokerstate", "State of the broker (3 is running).", state.value)
    yield from _directory_samples(known, replicas)
    yield from _replica_samples(replicas)
    yield from _isr_samples(replicas.isr_counts)
    yield from _throttle_samples(replicas)
    for name in ("assignmentsmanager", "kafkaserver"):
        # Export the metric under both of its names: Apache Kafka's, then KIP-858's.
        yield gauge(
            f"kafka_server_{name}_queuedreplicatodirassignments",
            "Replicas whose directory the controller has not confirmed.",
            queued_assignments,
        )
    yield gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_offset", "Last applied metadata offset.", applied_offset
    )
    yield gauge(
        "kafka_server_broker_metadata_metrics_last_applied_record_lag_ms", "Age of the newest metadata record.", lag_ms
    )


def _directory_samples(known: LogDirectories, replicas: CountedReplicas) -> Iterator[Sample]:
    for path, remaining in replicas.loading_progress.remaining_logs().items():
        yield gauge("kafka_log_logmanager_remaininglogstorecover", "Logs still to be loaded.", remaining, dir=path)
    yield gauge("kafka_log_logmanager_offlinelogdirectorycount", "Directories that are offline.", len(known.offline))
    yield gauge(
        "kafka_log_logmanager_cordonedlogdirectorycount",
        "Directories that get no new replicas.",
        sum(replicas.is_cordoned(directory.path) for directory in known.data_dirs),
    )
    for directory in known.data_dirs:
        yield gauge(
            "kafka_log_logmanager_logdirectoryoffline",
            "1 when the directory is offline.",
            int(not directory.is_online),
            logDirectory=directory.path,
        )
        yield gauge(
            "kafka_log_logmanager_logdirectorycordoned",
            "1 while the directory gets no new replicas.",
            int(replicas.is_cordoned(directory.path)),
            logDirectory=directory.path,
        )
        directory_id = directory.directory_id
        if directory_id is None:
            continue
        labels = {"logDirectory": directory.path, "directoryId": uuid_text(directory_id)}
        yield from _move_counters(replicas.moves.counts.get(directory_id, MoveCounts()), labels)
        if not directory.is_online:
            continue
        yield gauge(
            "kafka_log_logdir_partitions",
            "Replicas in the directory.",
            replicas.descriptions.count_in(directory_id),
            **labels,
        )
        yield gauge("kafka_log_logdir_moves", "Replicas that move here.", replicas.moves.count_into(directory_id), **labels)
        yield gauge(
            "kafka_log_logdir_move_bytes_to_go",
            "Bytes that the moves into the directory still have to copy.",
            replicas.moves.bytes_to_go(directory_id),
            **labels,
        )


def _move_counters(counts: MoveCounts, labels: Mapping[str, str]) -> Iterator[Sample]:
    """Yields the counters of the moves into one directory. They remain when the directory goes offline, because its moves
    fail at that moment."""
    values = (
        ("moves_finished", "Replicas that have moved here.", counts.finished),
        ("moves_failed", "Moves that ended because the directory failed or was full.", counts.failed),
        ("move_copied_bytes", "Bytes copied by the moves into the directory.", counts.bytes_copied),
        ("move_throttled_seconds", "How long the moves waited for the rate.", counts.throttled_ns / 1e9),
    )
    for name, about, value in values:
        yield counter(f"kafka_log_logdir_{name}", about, value, **labels)


def _replica_samples(replicas: CountedReplicas) -> Iterator[Sample]:
    counts = asdict(replicas.descriptions.gauges())
    unplaceable_count = counts.pop("unplaceable_replica_count")
    for field_name, value in counts.items():
        # The fields are Kafka's gauge names in snake case, and the exported names have no underscores.
        name = field_name.replace("_", "")
        yield gauge(f"kafka_server_replicamanager_{name}", f"Kafka's ReplicaManager gauge {name}.", value)
    yield gauge("diskraft_unplaceable_replicas", "Replicas for which no directory has room.", unplaceable_count)
    yield gauge(
        "kafka_server_replicaalterlogdirsmanager_maxlag",
        "Records that the copy furthest behind its log still lacks.",
        replicas.moves.max_lag,
        clientId="ReplicaAlterLogDirs",
    )


def _isr_samples(counts: IsrCounts) -> Iterator[Sample]:
    yield counter("kafka_server_replicamanager_isrshrinks", "ISR shrinks asked for and accepted.", counts.shrinks)
    yield counter("kafka_server_replicamanager_isrexpands", "ISR expansions asked for and accepted.", counts.expands)
    yield counter("kafka_server_replicamanager_failedisrupdates", "ISR changes that were refused.", counts.failed_updates)


def _throttle_samples(replicas: CountedReplicas) -> Iterator[Sample]:
    """Yields counters whose rates are the byte-rate of Kafka's LeaderReplication and FollowerReplication."""
    yield counter(
        "kafka_server_leaderreplication_bytes",
        "Bytes of throttled partitions sent to followers.",
        replicas.leader_quota.throttled_bytes,
    )
    yield counter(
        "kafka_server_followerreplication_bytes",
        "Bytes of throttled partitions received from leaders.",
        replicas.follower_quota.throttled_bytes,
    )
