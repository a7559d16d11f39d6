"""Sizes of logs and directories for Prometheus (shell without I/O).

Counterpart of the Size gauge of Kafka's Log. Collecting the sizes visits every replica, so it happens only at every
WALK_EVERY-th publication. The publications in between repeat the last samples.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from broker.hosting.directory_logs import ReplicaDescription
from common.ids import DirectoryId, uuid_text
from common.metrics_exposition import Sample, gauge

# The sizes are collected once per this many publications of the metrics. There is one publication per second.
WALK_EVERY = 5


class DescribedReplicas(Protocol):
    """The part of `Replicas` that this module uses."""

    def describe(self, directory_id: DirectoryId) -> Iterable[ReplicaDescription]: ...


class LogSizes:
    """The sizes of one broker's logs, refreshed at every WALK_EVERY-th call."""

    def __init__(self) -> None:
        self._calls = 0
        self._samples: list[Sample] = []

    def samples(self, online: Mapping[DirectoryId, str], replicas: DescribedReplicas) -> Sequence[Sample]:
        """Returns the newest samples. `online` maps the id of each online directory to its path."""
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
