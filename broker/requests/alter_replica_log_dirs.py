"""Answers AlterReplicaLogDirs, which moves replicas to other directories of this broker (shell, KIP-113).

Counterpart of KafkaApis.handleAlterReplicaLogDirsRequest. The answer only says that a move has begun, or that a preference
is remembered; DescribeLogDirs shows the progress.
"""

from collections.abc import Awaitable, Callable, Generator

from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from common.slices import ITEMS_PER_SLICE, at_once, result_in_slices


class AlterReplicaLogDirsRequests:
    """Handles AlterReplicaLogDirs. `alter(topic, index, path)` is `LogDirAlteration.alter`."""

    def __init__(self, alter: Callable[[str, int, str], ErrorCode]) -> None:
        self._alter = alter

    def handle(
        self, _context: RequestContext, request: AlterReplicaLogDirsRequest
    ) -> AlterReplicaLogDirsResponse | Awaitable[AlterReplicaLogDirsResponse]:
        """The moves of many replicas begin in slices."""
        topics = [topic for directory in request.dirs for topic in directory.topics]
        if sum(1 + len(topic.partitions) for topic in topics) > ITEMS_PER_SLICE:
            return result_in_slices(self._alter_all(request))
        return at_once(self._alter_all(request))

    def _alter_all(self, request: AlterReplicaLogDirsRequest) -> Generator[None, None, AlterReplicaLogDirsResponse]:
        """Yields after each topic and partition."""
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
                yield
                for index in topic.partitions:
                    error = self._alter(topic.name, index, directory.path)
                    result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
                    yield
        return AlterReplicaLogDirsResponse(results=list(results.values()))
