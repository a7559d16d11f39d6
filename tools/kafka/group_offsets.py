"""The offsets and partitions that kafka-consumer-groups asks the cluster for (shell)."""

from collections.abc import Iterable, Sequence

from admin.client import AdminClient
from admin.errors import AdminError
from admin.offsets import ListedOffset
from admin.partitions import TopicPartition
from common.protocol.errors import ErrorCode
from common.protocol.messages.list_offsets import LATEST
from tools.kafka.offset_plan import partitions_in


async def partitions_of(
    admin: AdminClient, topics: Sequence[str], *, timeout_ms: int
) -> tuple[list[TopicPartition], dict[str, AdminError]]:
    """Returns the partitions that the arguments name, each `topic` or `topic:0,1`, sorted, and the errors of topics whose
    partitions cannot be listed. Raises ToolError."""
    found = {each for topic in topics if ":" in topic for each in partitions_in(topic)}
    unknown: dict[str, AdminError] = {}
    described = admin.describe_topics([topic for topic in topics if ":" not in topic], timeout_ms=timeout_ms)
    for name, description in described.items():
        try:
            found.update(TopicPartition(name, each.partition) for each in (await description).partitions)
        except AdminError as error:
            unknown[name] = error
    return sorted(found), unknown


async def listed_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], timestamp: int, *, timeout_ms: int
) -> dict[TopicPartition, ListedOffset]:
    """Returns the offsets for this time. Raises the error of a partition that has none, that of an unknown one included."""
    wanted = list(partitions)
    leaders = await _leaders(admin, wanted, timeout_ms=timeout_ms)
    for partition in wanted:
        leader = leaders.get(partition)
        if isinstance(leader, AdminError):
            raise leader
        if leader is None:
            is_known = partition in leaders
            code = ErrorCode.LEADER_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            reason = "has no leader" if is_known else "does not exist"
            raise AdminError(code, f"partition {partition} {reason}")
    known = {each: leader for each, leader in leaders.items() if isinstance(leader, int) and each in set(wanted)}
    return await admin.list_offsets(known, timestamp, timeout_ms=timeout_ms).all()


async def end_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], *, timeout_ms: int
) -> dict[TopicPartition, int]:
    """Returns the end of each partition, without those that have no leader or do not exist any more."""
    wanted = set(partitions)
    leaders = await _leaders(admin, wanted, timeout_ms=timeout_ms)
    known = {each: leader for each, leader in leaders.items() if each in wanted and isinstance(leader, int)}
    ends: dict[TopicPartition, int] = {}
    for partition, listed in admin.list_offsets(known, LATEST, timeout_ms=timeout_ms).items():
        try:
            end = (await listed).offset
        except AdminError:
            continue
        if end is not None:
            ends[partition] = end
    return ends


async def _leaders(
    admin: AdminClient, partitions: Iterable[TopicPartition], *, timeout_ms: int
) -> dict[TopicPartition, int | AdminError | None]:
    """Returns the leader of every partition of these topics, None where there is none. A topic that cannot be described has
    its error at the partitions that were asked for."""
    wanted = list(partitions)
    leaders: dict[TopicPartition, int | AdminError | None] = {}
    for name, description in admin.describe_topics({each.topic for each in wanted}, timeout_ms=timeout_ms).items():
        try:
            for each in (await description).partitions:
                leaders[TopicPartition(name, each.partition)] = each.leader
        except AdminError as error:
            leaders.update((each, error) for each in wanted if each.topic == name)
    return leaders
