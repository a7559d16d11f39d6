"""A small shard for the tests of the coordinator's shell: it stores offsets, lets members wait, and has timers.

It stands in for the decisions of the real core, so that a test can choose exactly what a step contains.
"""

import asyncio
from collections.abc import Collection, Iterable

from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.result import Answer, Caller, CoordinatorRecord, Now, Step, TimerChange, Waiter
from common.protocol.errors import ErrorCode
from common.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from common.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from common.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

SESSION_NS = 1_000_000_000


class WrittenShard(GroupShard):
    """Keeps one offset for each group. A join waits until the next heartbeat, and a heartbeat starts a session whose end
    is recorded as the offset -2."""

    def __init__(self) -> None:
        super().__init__(GroupSettings())
        self.stored: dict[str, int] = {}
        self.joining: list[Waiter] = []
        self.dropped_topics: list[str] = []
        # What may expire, how often it was asked for, in which pieces it was looked at, and [] for a turn of the event loop.
        self.idle: list[str] = []
        self.expiries = 0
        self.looked_at: list[list[str]] = []

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        assert key is not None and value is not None
        self.stored[key.decode()] = int(value.partition(b".")[0])

    def loaded(self, now: Now) -> Step:
        return Step()

    def unloaded(self, error: ErrorCode) -> list[Answer]:
        return [Answer(waiter, JoinGroupResponse(error_code=error)) for waiter in self.joining]

    def _store(self, group_id: str, offset: int, padding: int = 0) -> CoordinatorRecord:
        self.stored[group_id] = offset
        return CoordinatorRecord(group_id.encode(), f"{offset}.{'x' * padding}".encode())

    def commit_offsets(self, now: Now, waiter: Waiter, caller: Caller, request: OffsetCommitRequest) -> Step:
        partition = request.topics[0].partitions[0]
        padding = len(partition.committed_metadata or "")
        record = self._store(request.group_id, partition.committed_offset, padding)
        return Step([record], [Answer(waiter, OffsetCommitResponse())])

    def fetch_offsets(
        self, now: Now, waiter: Waiter, request: OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> Step:
        offset = self.stored.get(request.group_id, -1)
        partitions = [OffsetFetchResponsePartitions(committed_offset=offset)]
        topics = [OffsetFetchResponseTopics(name="t", partitions=partitions)]
        return Step([], [Answer(waiter, OffsetFetchResponseGroup(group_id=request.group_id, topics=topics))])

    def join_group(self, now: Now, waiter: Waiter, caller: Caller, request: JoinGroupRequest, fresh_id: str) -> list[Step]:
        self.joining.append(waiter)
        return [Step()]

    def heartbeat(self, now: Now, waiter: Waiter, request: HeartbeatRequest) -> list[Step]:
        joined, self.joining = self.joining, []
        records = [self._store(request.group_id, request.generation_id)] if joined else []
        answers = [Answer(each, JoinGroupResponse(generation_id=request.generation_id)) for each in joined]
        timer = TimerChange(("session", request.group_id), None if request.generation_id < 0 else now.ns + SESSION_NS)
        return [Step(records, [*answers, Answer(waiter, HeartbeatResponse())], [timer])]

    def timer_fired(self, now: Now, key: tuple[str, ...]) -> list[Step]:
        return [Step([self._store(key[1], -2)])]

    def topics_deleted(self, now: Now, names: Collection[str]) -> list[Step]:
        self.dropped_topics += names
        return []

    def expirable(self) -> list[str]:
        self.expiries += 1
        return self.idle

    def expire(self, now: Now, ids: Iterable[str]) -> list[Step]:
        self.looked_at.append(list(ids))
        asyncio.get_running_loop().call_soon(self.looked_at.append, [])
        return []
