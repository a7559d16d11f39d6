"""The Prometheus metrics of the space in a node's directories (shell without I/O).

A controller has them too, and the metadata directory is among them: the node ends when it is full.
"""

from collections.abc import Iterator

from common.ids import uuid_text
from common.log_dirs.log_directories import LogDirectories
from common.metrics_exposition import Sample, gauge


def space_samples(known: LogDirectories) -> Iterator[Sample]:
    """Yields size and free space of each online directory, once they are measured."""
    for directory in known.configured:
        space, directory_id = directory.space, directory.directory_id
        if space is not None and directory_id is not None and directory.is_online:
            labels = {"logDirectory": directory.path, "directoryId": uuid_text(directory_id)}
            yield gauge("kafka_log_logdir_total_bytes", "Size of the file system.", space.total_bytes, **labels)
            yield gauge("kafka_log_logdir_usable_bytes", "Free space of the file system.", space.usable_bytes, **labels)
