"""Moves replicas between brokers and directories: what kafka-reassign-partitions --execute and --cancel do (shell, KIP-113).

1. Everything that can be checked is checked before anything is changed.
2. The brokers are told the directories first, so that a replica that the reassignment creates is created in the right one.
   A broker that does not have the replica yet remembers it and answers REPLICA_NOT_AVAILABLE.
3. Then the reassignment starts. The brokers that gave that answer are asked again, until they have the replica.
4. After an error before the reassignment has started, the brokers are told to forget the directories. Otherwise a later
   reassignment would use some of them.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from admin.client import AdminClient
from admin.errors import AdminError
from admin.log_dirs import LogDirInfo
from admin.partitions import TopicPartition, TopicPartitionReplica
from admin.reassignments import PartitionReassignment
from common.protocol.errors import ErrorCode
from tools.errors import ToolError
from tools.kafka.reassignment_json import ANY_LOG_DIR, Reassignment
from tools.kafka.reassignment_states import by_broker

RETRY_SECONDS: Final = 0.1

LogDirs = Mapping[int, Mapping[str, LogDirInfo]]
"""The directories of each broker, by path."""


class TerseError(ToolError):
    """An error that Kafka's tool prints without "Error: ". Counterpart of TerseException."""


# --- looking ---------------------------------------------------------------------------------------------------------


async def current_replicas(
    admin: AdminClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the replicas of these partitions. Raises ToolError if one does not exist."""
    wanted = set(partitions)
    found = await replicas_of_topics(admin, {partition.topic for partition in wanted})
    missing = sorted(wanted - found.keys())
    if missing:
        raise ToolError(f"Unable to find partition: {', '.join(map(str, missing))}")
    return {partition: found[partition] for partition in sorted(wanted)}


async def replicas_of_topics(admin: AdminClient, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns the replicas of all partitions of these topics. Raises ToolError if one does not exist."""
    found, missing = await find_replicas(admin, topics)
    if missing:
        raise ToolError(f"Topic {missing[0]} not found.")
    return found


async def find_replicas(
    admin: AdminClient, topics: Iterable[str]
) -> tuple[dict[TopicPartition, tuple[int, ...]], list[str]]:
    """Returns the replicas of all partitions of these topics, and the topics that do not exist."""
    found: dict[TopicPartition, tuple[int, ...]] = {}
    missing = []
    for name, future in admin.describe_topics(sorted(topics)).items():
        try:
            topic = await future
        except AdminError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            missing.append(name)
        else:
            found |= {TopicPartition(name, each.partition): each.replicas for each in topic.partitions}
    return found, missing


async def check_brokers(admin: AdminClient, broker_ids: Iterable[int]) -> list[int]:
    """Returns the ids of all brokers. Raises ToolError if one of these is not among them."""
    existing = (await admin.describe_cluster()).broker_ids
    unknown = sorted(set(broker_ids) - set(existing))
    if unknown:
        raise ToolError(f"Unknown broker id {unknown[0]}")
    return existing


def places(partitions: Mapping[TopicPartition, Sequence[int]], log_dirs: LogDirs) -> dict[TopicPartitionReplica, str]:
    """Returns the directory of each of these replicas that is in one."""
    found = {
        TopicPartitionReplica(partition.topic, partition.partition, broker_id): path
        for broker_id, described in log_dirs.items()
        for path, log_dir in described.items()
        for partition, info in log_dir.replica_infos.items()
        if not info.is_future
    }
    replicas = [
        TopicPartitionReplica(partition.topic, partition.partition, broker_id)
        for partition, broker_ids in partitions.items()
        for broker_id in broker_ids
    ]
    return {replica: found[replica] for replica in replicas if replica in found}


def check_log_dirs(wishes: Mapping[TopicPartitionReplica, str], log_dirs: LogDirs) -> None:
    """Raises ToolError for a directory that its broker does not have, or that is offline or cordoned. The broker would
    refuse it too, but perhaps after another broker has begun."""
    for replica, path in sorted(wishes.items(), key=lambda item: by_broker(item[0])):
        log_dir = log_dirs[replica.broker_id].get(path)
        if log_dir is None:
            raise _failed_wish(replica, f"{path} is not a log directory of broker {replica.broker_id}")
        if not log_dir.is_online:
            raise _failed_wish(replica, f"{path} of broker {replica.broker_id} is offline")
        if log_dir.is_cordoned:
            raise _failed_wish(replica, f"{path} of broker {replica.broker_id} is cordoned")


def _failed_wish(replica: TopicPartitionReplica, reason: str) -> ToolError:
    return ToolError(f"Failed to alter dir for {replica}: {reason}")


# --- moving ----------------------------------------------------------------------------------------------------------


@dataclass
class _Wishes:
    """Directories for replicas, and which brokers have accepted them."""

    pending: dict[TopicPartitionReplica, str]
    accepted: dict[TopicPartitionReplica, str] = field(default_factory=dict)

    async def send(self, admin: AdminClient) -> None:
        """Sends what is pending. Raises ToolError for every answer but NONE and REPLICA_NOT_AVAILABLE."""
        failure: ToolError | None = None
        for replica, future in admin.alter_replica_log_dirs(self.pending).items():
            try:
                await future
            except AdminError as error:
                if error.code is ErrorCode.REPLICA_NOT_AVAILABLE:
                    continue
                reason = str(error)
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    place = f"{self.pending[replica]} of broker {replica.broker_id}"
                    reason = f"{place} has no room for a copy, or the replica is offline"
                failure = failure or _failed_wish(replica, reason)
            else:
                self.accepted[replica] = self.pending.pop(replica)
        if failure is not None:
            raise failure

    def report(self) -> None:
        """Prints what was accepted since the last report."""
        for replica in sorted(self.accepted, key=by_broker):
            # The space at the end is Kafka's.
            print(
                f"Successfully started moving log directory to {self.accepted[replica]} for replica "
                f"{replica.topic}-{replica.partition} with broker {replica.broker_id} "
            )
        self.accepted.clear()

    async def take_back(self, admin: AdminClient, partitions: Iterable[TopicPartition]) -> None:
        """Has the brokers forget the wishes for these partitions. A broker that does not answer is left alone."""
        named = set(partitions)
        sent = [each for each in (*self.pending, *self.accepted) if TopicPartition(each.topic, each.partition) in named]
        for future in admin.alter_replica_log_dirs(dict.fromkeys(sent, ANY_LOG_DIR)).values():
            try:
                await future
            except AdminError:
                continue


async def execute_moves(admin: AdminClient, log_dirs: Mapping[TopicPartitionReplica, str], *, timeout_ms: int) -> None:
    """Moves replicas that exist, or are being created, to these directories."""
    wishes = _Wishes(dict(log_dirs))
    await wishes.send(admin)
    await _until_accepted(admin, wishes, timeout_ms=timeout_ms)


async def execute_reassignment(
    admin: AdminClient, reassignment: Reassignment, *, allow_replication_factor_change: bool, timeout_ms: int
) -> None:
    """Moves replicas to other brokers and directories. Returns as soon as every move has started."""
    wishes = _Wishes(dict(reassignment.log_dirs))
    try:
        await wishes.send(admin)
    except ToolError:
        await wishes.take_back(admin, reassignment.replicas)
        raise
    errors = await _alter_reassignments(admin, reassignment.replicas, allow_replication_factor_change)
    if errors:
        await wishes.take_back(admin, errors)
        raise TerseError("\n".join(["Error reassigning partition(s):", *_error_lines(errors)]))
    print(
        f"Successfully started partition reassignment{_plural(reassignment.replicas)} for {_joined(reassignment.replicas)}"
    )
    await _until_accepted(admin, wishes, timeout_ms=timeout_ms)


async def cancel_reassignments(
    admin: AdminClient, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, PartitionReassignment]:
    """Cancels those of these partitions' reassignments that are in progress, and returns them."""
    ongoing = await admin.list_partition_reassignments(partitions)
    if not ongoing:
        print("None of the specified partition reassignments are active.")
        return ongoing
    errors = await _alter_reassignments(admin, dict.fromkeys(ongoing), True)
    if errors:
        lines = [f"Error cancelling partition reassignment{_plural(errors)} for:", *_error_lines(errors)]
        raise TerseError("\n".join(lines))
    print(f"Successfully cancelled partition reassignment{_plural(ongoing)} for: {_joined(ongoing)}")
    return ongoing


async def _alter_reassignments(
    admin: AdminClient, targets: Mapping[TopicPartition, Sequence[int] | None], allow_replication_factor_change: bool
) -> dict[TopicPartition, AdminError]:
    """Returns the errors of the partitions that were refused."""
    errors = {}
    results = admin.alter_partition_reassignments(targets, allow_replication_factor_change=allow_replication_factor_change)
    for partition, future in results.items():
        try:
            await future
        except AdminError as error:
            errors[partition] = error
    return errors


async def _until_accepted(admin: AdminClient, wishes: _Wishes, *, timeout_ms: int) -> None:
    """Sends the wishes again until every replica is there. Raises TerseError when the time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    wishes.report()
    while wishes.pending:
        if loop.time() >= deadline:
            replicas = ",".join(map(str, sorted(wishes.pending, key=by_broker)))
            raise TerseError(
                f"Timed out before log directory move{_plural(wishes.pending)} could be started for: {replicas}"
            )
        await asyncio.sleep(RETRY_SECONDS)
        await wishes.send(admin)
        wishes.report()


def _error_lines(errors: Mapping[TopicPartition, AdminError]) -> list[str]:
    return [f"{partition}: {error}" for partition, error in sorted(errors.items())]


def _plural(things: Mapping[TopicPartition, object] | Mapping[TopicPartitionReplica, object]) -> str:
    return "" if len(things) == 1 else "s"


def _joined(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions)))
