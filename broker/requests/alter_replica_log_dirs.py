"""Answers AlterReplicaLogDirs, which moves replicas to other directories of this broker (shell, KIP-113).

Counterpart of KafkaApis.handleAlterReplicaLogDirsRequest. The answer only says that a move has begun, or that a preference
is remembered; DescribeLogDirs shows the progress.
"""

from collections.abc import Callable

from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


class AlterReplicaLogDirsRequests:
    """Handles AlterReplicaLogDirs. `alter(topic, index, path)` is `LogDirAlteration.alter`."""

    def __init__(self, alter: Callable[[str, int, str], ErrorCode]) -> None:
        self._alter = alter

    def handle(self, _context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
        results: dict[str, AlterReplicaLogDirTopicResult] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
                for index in topic.partitions:
                    error = self._alter(topic.name, index, directory.path)
                    result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
        return AlterReplicaLogDirsResponse(results=list(results.values()))
