"""AlterReplicaLogDirs as a request: one result for each replica. What becomes of a replica is in the tests of moves."""

import asyncio

from broker.requests.alter_replica_log_dirs import AlterReplicaLogDirsRequests
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from common.slices import ITEMS_PER_SLICE
from tests.counted import result_and_turns
from tests.unit.broker.requests.contexts import context

COUNT = 3 * ITEMS_PER_SLICE


async def turns_of(topics: list[AlterReplicaLogDirTopic]) -> tuple[AlterReplicaLogDirsResponse, int]:
    """Returns the response and the turns of the event loop until then."""

    def alter(_topic: str, index: int, path: str) -> ErrorCode:
        assert path == "/d1"
        return ErrorCode.NONE if index % 2 else ErrorCode.REPLICA_NOT_AVAILABLE

    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/d1", topics=topics)])
    answer = AlterReplicaLogDirsRequests(alter).handle(context(ApiKey.ALTER_REPLICA_LOG_DIRS, 2), request)
    if isinstance(answer, AlterReplicaLogDirsResponse):
        return answer, 0
    return await result_and_turns(answer)


def test_many_replicas_are_altered_in_slices() -> None:
    response, turns = asyncio.run(turns_of([AlterReplicaLogDirTopic(name="t", partitions=list(range(COUNT)))]))
    assert turns > 2
    [topic] = response.results
    assert [each.partition_index for each in topic.partitions] == list(range(COUNT))
    assert [each.error_code for each in topic.partitions[:2]] == [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NONE]


def test_many_topics_without_partitions_are_answered_in_slices() -> None:
    response, turns = asyncio.run(turns_of([AlterReplicaLogDirTopic(name=f"topic-{number}") for number in range(COUNT)]))
    assert turns > 2
    assert len(response.results) == COUNT


def test_a_few_replicas_are_altered_at_once() -> None:
    response, turns = asyncio.run(turns_of([AlterReplicaLogDirTopic(name="t", partitions=[1])]))
    assert turns == 0
    assert [each.error_code for each in response.results[0].partitions] == [ErrorCode.NONE]
