"""Answers DescribeLogDirs: every configured directory with its replicas, or its error (shell, KIP-113, KIP-827).

Counterpart of ReplicaManager.describeLogDirs. An offline directory is listed with KAFKA_STORAGE_ERROR. The sizes of the file
systems are those last seen by the health probe: statvfs may hang on a dead disk, so we never call it here. A replica that is
moving is listed twice: in its directory, and as a future replica in the directory that it moves to.
"""

from collections.abc import Callable, Sequence

from broker.hosting.replica_descriptions import ReplicaDescription
from common.ids import DirectoryId
from common.log_dirs.log_directories import LogDirectories, LogDirectory
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

UNKNOWN_SIZE = -1

# In version 0, an empty list of topics means all topics (KIP-113). From version 1 on, it means none.
_NO_TOPICS_FIRST_VERSION = 1

Describe = Callable[[DirectoryId], Sequence[ReplicaDescription]]


class DescribeLogDirsRequests:
    """Handles DescribeLogDirs. `describe` and `describe_future` return the current and the future replicas of an online
    directory, `is_cordoned` says whether the directory at a path gets no new ones."""

    def __init__(
        self,
        directories: LogDirectories,
        *,
        describe: Describe,
        describe_future: Describe,
        is_cordoned: Callable[[str], bool],
    ) -> None:
        self._is_cordoned = is_cordoned
        self._directories = directories
        self._describe = describe
        self._describe_future = describe_future

    def handle(self, context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        """Returns the directories in the order of log.dirs, with the partitions that the request names, or with all."""
        wanted = None
        if request.topics or (request.topics is not None and context.api_version >= _NO_TOPICS_FIRST_VERSION):
            wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
        return DescribeLogDirsResponse(results=[self._result(each, wanted) for each in self._directories.data_dirs])

    def _result(self, directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
        directory_id, space = directory.directory_id, directory.space
        if not directory.is_online or directory_id is None:
            return DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR,
                log_dir=directory.path,
                is_cordoned=self._is_cordoned(directory.path),
            )
        topics: dict[str, DescribeLogDirsTopic] = {}
        replicas = [*self._describe(directory_id), *self._describe_future(directory_id)]
        for replica in sorted(replicas, key=lambda replica: (replica.topic, replica.index)):
            if wanted is None or (replica.topic, replica.index) in wanted:
                topic = topics.setdefault(replica.topic, DescribeLogDirsTopic(name=replica.topic))
                topic.partitions.append(
                    DescribeLogDirsPartition(
                        partition_index=replica.index,
                        partition_size=replica.size_bytes,
                        offset_lag=replica.offset_lag,
                        is_future_key=replica.is_future,
                    )
                )
        return DescribeLogDirsResult(
            log_dir=directory.path,
            topics=list(topics.values()),
            total_bytes=space.total_bytes if space is not None else UNKNOWN_SIZE,
            usable_bytes=space.usable_bytes if space is not None else UNKNOWN_SIZE,
            is_cordoned=self._is_cordoned(directory.path),
        )
