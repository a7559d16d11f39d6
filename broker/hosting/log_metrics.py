"""Sizes of logs and directories for Prometheus (shell without I/O).

Answers to the Size gauge of Kafka's Log. Easy to get wrong: this walks over every replica, so it is done now and then and
the samples are shown again in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from broker.hosting.directory_logs import ReplicaDescription
from common.ids import DirectoryId, uuid_text
from common.metrics_exposition import Sample, gauge

# In publications of the metrics, one a second.
WALK_EVERY = 5


class DescribedReplicas(Protocol):
    """What `Replicas` tells about a directory."""

    def describe(self, directory_id: DirectoryId) -> Iterable[ReplicaDescription]: ...


class LogSizes:
    """The sizes of one broker's logs, walked over at every WALK_EVERY-th call."""

    def __init__(self) -> None:
        self._calls = 0
        self._samples: list[Sample] = []

    def samples(self, online: Mapping[DirectoryId, str], replicas: DescribedReplicas) -> Sequence[Sample]:
        """The newest samples. `online` has the path of each online directory by its id."""
        if self._calls % WALK_EVERY == 0:
            self._samples = []
            for directory_id, path in online.items():
                self._walk(path, directory_id, replicas)
        self._calls += 1
        return self._samples

    def _walk(self, path: str, directory_id: DirectoryId, replicas: DescribedReplicas) -> None:
        used_bytes = 0
        for replica in replicas.describe(directory_id):
            used_bytes += replica.size_bytes
            self._samples.append(
                gauge(
                    "kafka_log_log_size",
                    "Bytes of a replica's log.",
                    replica.size_bytes,
                    topic=replica.topic,
                    partition=str(replica.index),
                    logDirectory=path,
                )
            )
        self._samples.append(
            gauge(
                "kafka_log_logdir_used_bytes",
                "Bytes of all logs in the directory.",
                used_bytes,
                logDirectory=path,
                directoryId=uuid_text(directory_id),
            )
        )
