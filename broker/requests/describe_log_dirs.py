"""Answers DescribeLogDirs: every configured directory with its replicas, or its error (shell, KIP-113, KIP-827).

Counterpart of ReplicaManager.describeLogDirs. An offline directory is listed with KAFKA_STORAGE_ERROR. The sizes of the file
systems are those last seen by the health probe: statvfs may hang on a dead disk, so we never call it here. A replica that is
moving is listed twice: in its directory, and as a future replica in the directory that it moves to.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Set
from operator import attrgetter

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
from common.slices import ELEMENTS_PER_SLICE, at_once, result_in_slices

# In version 0, an empty list of topics means all topics (KIP-113). From version 1 on, it means none.
_NO_TOPICS_FIRST_VERSION = 1

# What a replica takes in a response, about.
_REPLICA_BYTES = 30


class DescribeLogDirsRequests:
    """Handles DescribeLogDirs. `describe` returns all current and future replicas, of which there are about `count`, and
    `is_cordoned` says whether the directory at a path gets no new ones."""

    def __init__(
        self,
        directories: LogDirectories,
        *,
        describe: Callable[[], Iterable[ReplicaDescription]],
        count: Callable[[], int],
        is_cordoned: Callable[[str], bool],
    ) -> None:
        self._directories = directories
        self._describe = describe
        self._count = count
        self._is_cordoned = is_cordoned
        # Held while many replicas are described, because the descriptions of thousands take megabytes.
        self._long_answer = asyncio.Lock()

    def handle(
        self, context: RequestContext, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse | Awaitable[DescribeLogDirsResponse]:
        """Returns the directories in the order of log.dirs, with the partitions that the request names, or with all. Many
        replicas are described in slices."""
        wanted = None
        if request.topics or (request.topics is not None and context.api_version >= _NO_TOPICS_FIRST_VERSION):
            wanted = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
        count = self._count()
        if count > ELEMENTS_PER_SLICE:
            context.memory.expect_response((count if wanted is None else min(count, len(wanted))) * _REPLICA_BYTES)
            return self._answer_in_slices(wanted)
        return at_once(self._answer(wanted))

    async def _answer_in_slices(self, wanted: Set[tuple[str, int]] | None) -> DescribeLogDirsResponse:
        async with self._long_answer:
            return await result_in_slices(self._answer(wanted), items=ELEMENTS_PER_SLICE)

    def _answer(self, wanted: Set[tuple[str, int]] | None) -> Generator[None, None, DescribeLogDirsResponse]:
        """Yields after each replica that is described, and after each topic that is added to the answer."""
        found: dict[DirectoryId, dict[str, list[DescribeLogDirsPartition]]] = {}
        for replica in self._describe():
            if wanted is None or (replica.topic, replica.index) in wanted:
                topics = found.setdefault(replica.directory_id, {})
                topics.setdefault(replica.topic, []).append(
                    DescribeLogDirsPartition(
                        partition_index=replica.index,
                        partition_size=replica.size_bytes,
                        offset_lag=replica.offset_lag,
                        is_future_key=replica.is_future,
                    )
                )
            yield
        response = DescribeLogDirsResponse()
        for directory in self._directories.data_dirs:
            result = self._result(directory)
            response.results.append(result)
            if result.error_code != ErrorCode.NONE or directory.directory_id is None:
                continue
            for name, partitions in sorted(found.get(directory.directory_id, {}).items()):
                partitions.sort(key=attrgetter("partition_index"))
                result.topics.append(DescribeLogDirsTopic(name=name, partitions=partitions))
                yield
        return response

    def _result(self, directory: LogDirectory) -> DescribeLogDirsResult:
        """Describes the directory without its replicas."""
        result = DescribeLogDirsResult(log_dir=directory.path, is_cordoned=self._is_cordoned(directory.path))
        space = directory.space
        if not directory.is_online or directory.directory_id is None:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        elif space is not None:
            result.total_bytes, result.usable_bytes = space.total_bytes, space.usable_bytes
        return result
