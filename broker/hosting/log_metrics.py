"""Sizes of logs and directories for Prometheus (shell without I/O).

Counterpart of the Size gauge of Kafka's Log. Replicas note when their size may have changed, and each publication of the
metrics looks at these only. So the sizes of a broker at rest cost the same for any number of replicas.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.hosting.replica_descriptions import ReplicaDescription
from common.ids import DirectoryId, TopicIdPartition, uuid_text
from common.metrics_exposition import Sample, gauge


class ResizedReplicas(Protocol):
    """The part of `ReplicaDescriptions` that this module uses."""

    def take_resized(self) -> Mapping[TopicIdPartition, ReplicaDescription | None]: ...


class LogSizes:
    """The sizes of one broker's logs."""

    def __init__(self) -> None:
        # The last description of each replica, and its sample.
        self._replicas: dict[TopicIdPartition, tuple[ReplicaDescription, Sample]] = {}
        # Invariant: the sums of the sizes in `_replicas`.
        self._used_bytes: Counter[DirectoryId] = Counter()

    def samples(self, online: Mapping[DirectoryId, str], replicas: ResizedReplicas) -> Sequence[Sample]:
        """Returns the newest samples. `online` maps the id of each online directory to its path."""
        for key, replica in replicas.take_resized().items():
            self._note(key, replica, online)
        used = [
            gauge(
                "kafka_log_logdir_used_bytes",
                "Bytes of all logs in the directory.",
                self._used_bytes[directory_id],
                logDirectory=path,
                directoryId=uuid_text(directory_id),
            )
            for directory_id, path in online.items()
        ]
        return [*(sample for _, sample in self._replicas.values()), *used]

    def _note(self, key: TopicIdPartition, replica: ReplicaDescription | None, online: Mapping[DirectoryId, str]) -> None:
        if key in self._replicas:
            former, _ = self._replicas.pop(key)
            self._used_bytes[former.directory_id] -= former.size_bytes
        # A replica whose directory has just failed is about to leave.
        if replica is None or replica.directory_id not in online:
            return
        self._used_bytes[replica.directory_id] += replica.size_bytes
        sample = gauge(
            "kafka_log_log_size",
            "Bytes of a replica's log.",
            replica.size_bytes,
            topic=replica.topic,
            partition=str(replica.index),
            logDirectory=online[replica.directory_id],
        )
        self._replicas[key] = replica, sample
