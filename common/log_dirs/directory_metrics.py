"""The Prometheus metrics that every directory of a node has, whatever the node's role (shell without I/O).

The metadata directory is among them: a node ends when it is full or hangs, and while it is slow, so is every change that a
controller makes.
"""

from collections.abc import Container, Iterator, Mapping

from common.ids import DirectoryId, uuid_text
from common.log_dirs.directories import NodeDirectories
from common.metrics_exposition import Sample, counter, gauge


def directory_samples(
    directories: NodeDirectories, suspected: Container[DirectoryId], io_errors: Mapping[tuple[str, str], int]
) -> Iterator[Sample]:
    """Yields the series of each online directory, with the space once it is measured, and the errors of all directories.
    `io_errors` counts them by path and operation."""
    for directory in directories.known.configured:
        space, directory_id = directory.space, directory.directory_id
        if directory_id is None or not directory.is_online:
            continue
        labels = {"logDirectory": directory.path, "directoryId": uuid_text(directory_id)}
        if space is not None:
            yield gauge("kafka_log_logdir_total_bytes", "Size of the file system.", space.total_bytes, **labels)
            yield gauge("kafka_log_logdir_usable_bytes", "Free space of the file system.", space.usable_bytes, **labels)
        yield gauge(
            "kafka_log_logdir_oldest_operation_age_seconds",
            "How long the oldest unfinished operation has waited.",
            directories.log_dirs[directory_id].oldest_operation_age_ns / 1e9,
            **labels,
        )
        yield gauge(
            "kafka_log_logdir_suspected",
            "1 while nothing finishes in the directory, and for diskraft.log.dir.suspect.ms afterwards.",
            int(directory_id in suspected),
            **labels,
        )
    for (log_dir, operation), count in io_errors.items():
        yield counter(
            "kafka_log_logdir_io_errors", "Failed operations on a directory.", count, logDirectory=log_dir, op=operation
        )
