"""Formats the output of scenarios so that it is the same for every seed: no ids, no broker epochs, no exact times.

Shell of the tests. A directory is named after the disk on which its id was first seen (`b2/d1`), wherever that disk is
mounted later. If the disk gets another id later, the name of that id ends with a prime (`b2/d1'`). The cluster orders some
lists by random id, such as the directories of a registration; these are sorted by name.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from common.ids import BrokerId, DirectoryId, TopicId, TopicIdPartition, Uuid, uuid_from_text, uuid_text
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import error_name
from common.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from common.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from common.protocol.numbering import Numbering
from common.protocol.schema import Struct
from common.records.batch import split_batches
from common.records.metadata_frame import decode_any_record
from common.records.metadata_records import (
    NO_LEADER_CHANGE,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from common.records.record import iterate_values
from common.storage.meta_properties import parse_meta_properties
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEvent
from tests.simulation.request_tap import Exchange

RESERVED = {UNASSIGNED: "UNASSIGNED", LOST: "LOST", MIGRATING: "MIGRATING"}

A_UUID = re.compile(r"(?<![\w-])[A-Za-z0-9_-]{22}(?![\w-])")

# The events that matter to an operator. `show log NAME` shows any other event.
STORY = frozenset(
    """
    awaited_replicas_lost broker_controlled_shutdown broker_fenced broker_kept_fenced broker_registered_again
    broker_running broker_stopped broker_unfenced
    broker_unregistered controller_active directory_id_added future_replica_left_alone future_replica_promoted
    future_replica_resumed heartbeat_refused isr_change_refused leaderless_partitions_elected leaders_moved
    log_deleted log_dir_failed log_dir_failure_acknowledged log_dir_offline log_dir_offline_at_start
    log_dir_reported_offline log_dir_warning log_reloaded move_cancelled move_caught_up move_delayed move_failed
    move_finished move_interrupted move_started node_halted preferred_leaders_elected registration_refused
    replica_not_placeable replicas_assigned_offline stray_log_put_aside truncating_below_high_watermark
    unknown_log_dir_reported
    """.split()
)

# Fields that differ from seed to seed, or repeat what the line already says.
HIDDEN_FIELDS = frozenset(
    """
    absence_ms advice broker_epoch elapsed_ms end_offset epoch incarnation_id listeners log_dirs pause_ms renamed_to
    source_directory_id topic_id
    """.split()
)

A_BROKER_EPOCH = re.compile(r"broker epoch \d+")

# Hides which operation failed first on a dead disk, because that depends on the seed.
AN_IO_ERROR = re.compile(r"\w+ on \S+ failed with (E[A-Z]+)")


class Names:
    """The names of the ids in one scenario. Call `look` before showing anything."""

    def __init__(self) -> None:
        self._directories: dict[DirectoryId, str] = dict(RESERVED)
        self._topics: dict[TopicId, str] = {}

    def look(self, disks: Mapping[str, SimulatedDisk], state: MetadataState) -> None:
        """Names the ids that exist now."""
        for path, disk in sorted(disks.items()):
            content = disk.files().get("meta.properties")
            found = parse_meta_properties(content).directory_id if content is not None else None
            if found is not None and found not in self._directories:
                name = path.lstrip("/")
                while name in self._directories.values():
                    name += "'"
                self._directories[found] = name
        for topic_id, topic in state.topics.items():
            self._topics.setdefault(topic_id, topic.name)

    def directory(self, directory_id: Uuid) -> str:
        return self._directories.get(DirectoryId(directory_id), "unknown")

    def directories(self, directory_ids: Iterable[Uuid]) -> str:
        return ",".join(sorted(map(self.directory, directory_ids))) or "none"

    def directory_id(self, name: str) -> DirectoryId | None:
        return next((id_ for id_, known in self._directories.items() if known == name), None)

    def topic(self, topic_id: Uuid) -> str:
        return self._topics.get(TopicId(topic_id), "unknown topic")

    def in_text(self, text: str) -> str:
        """Replaces the ids in a text by their names, and hides other things that differ from seed to seed."""
        text = A_BROKER_EPOCH.sub("broker epoch N", AN_IO_ERROR.sub(r"\1", text))
        return A_UUID.sub(self._of_match, text)

    def _of_match(self, match: re.Match[str]) -> str:
        try:
            uuid = uuid_from_text(match[0])
        except ValueError:
            return match[0]
        return self._directories.get(DirectoryId(uuid)) or self._topics.get(TopicId(uuid)) or match[0]


def members(broker_ids: Iterable[int]) -> str:
    """Formats an ISR, sorted, because its order has no meaning."""
    return ",".join(map(str, sorted(broker_ids))) or "none"


# --- the metadata -------------------------------------------------------------------------------------------------


def partition_line(names: Names, state: MetadataState, name: str, part: PartitionRegistration) -> str:
    leader = part.leader if part.has_leader else "none"
    places = " ".join(
        f"{broker_id}:{names.directory(directory)}{_offline_mark(state, broker_id, directory)}"
        for broker_id, directory in zip(part.replicas, part.directories, strict=True)
    )
    notes = "  RECOVERING" if part.leader_recovery_state else ""
    if part.adding_replicas:
        notes += f"  adding {members(part.adding_replicas)}"
    if part.removing_replicas:
        notes += f"  removing {members(part.removing_replicas)}"
    return f"{name}  leader {leader}  epoch {part.leader_epoch}  isr {members(part.isr)}  replicas {places}{notes}"


def _offline_mark(state: MetadataState, broker_id: BrokerId, directory_id: DirectoryId) -> str:
    registration = state.brokers.get(broker_id)
    if registration is None:
        return "(broker unregistered)"
    if registration.fenced:
        return "(broker fenced)"
    return "" if registration.has_online_directory(directory_id) else "(offline)"


def registration_line(names: Names, state: MetadataState, broker_id: int) -> str:
    registration = state.brokers.get(BrokerId(broker_id))
    if registration is None:
        return "not registered"
    words = ["fenced" if registration.fenced else "unfenced"]
    if registration.is_migrating_zk_broker:
        words.append("migrating from ZooKeeper")
    if registration.in_controlled_shutdown:
        words.append("in controlled shutdown")
    words.append(f"online {names.directories(registration.directories)}")
    if registration.lost_directories:
        words.append(f"lost {names.directories(registration.lost_directories)}")
    return ", ".join(words)


# --- records of the metadata log ----------------------------------------------------------------------------------


def metadata_records(content: bytes) -> list[Struct]:
    """Decodes the records of a segment of the metadata log, without control records."""
    return [
        record
        for header, view in split_batches(memoryview(content), allow_partial_tail=True)
        if not header.is_control
        for _, value in iterate_values(view)
        if isinstance(record := decode_any_record(value, Numbering.KIP858), Struct)
    ]


def record_line(names: Names, record: Struct) -> str | None:
    """Formats a record about brokers, topics or partitions. Returns None for any other record."""
    match record:
        case RegisterBrokerRecord():
            mode = " migrating" if record.is_migrating_zk_broker else ""
            return f"RegisterBroker broker={record.broker_id}{mode} LogDirs={names.directories(record.log_dirs)}"
        case UnregisterBrokerRecord():
            return f"UnregisterBroker broker={record.broker_id}"
        case BrokerRegistrationChangeRecord():
            return _registration_change_line(names, record)
        case TopicRecord():
            return f"Topic {record.name}"
        case RemoveTopicRecord():
            return f"RemoveTopic {names.topic(record.topic_id)}"
        case PartitionRecord():
            directories = ",".join(map(names.directory, record.directories)) or "absent"
            return (
                f"Partition {names.topic(record.topic_id)}-{record.partition_id} leader={record.leader} "
                f"isr={members(record.isr)} Directories={directories}"
            )
        case PartitionChangeRecord():
            return _partition_change_line(names, record)
    return None


def _registration_change_line(names: Names, record: BrokerRegistrationChangeRecord) -> str:
    line = f"BrokerRegistrationChange broker={record.broker_id}"
    if record.fenced:
        line += " fence" if record.fenced > 0 else " unfence"
    if record.in_controlled_shutdown:
        line += " in-controlled-shutdown"
    return line + (f" LogDirs={names.directories(record.log_dirs)}" if record.log_dirs else "")


def _partition_change_line(names: Names, record: PartitionChangeRecord) -> str:
    line = f"PartitionChange {names.topic(record.topic_id)}-{record.partition_id}"
    if record.leader != NO_LEADER_CHANGE:
        line += f" leader={record.leader if record.leader >= 0 else 'none'}"
    if record.isr is not None:
        line += f" isr={members(record.isr)}"
    if record.leader_recovery_state >= 0:
        line += " recovering" if record.leader_recovery_state else " recovered"
    if record.directories is not None:
        line += f" Directories={','.join(map(names.directory, record.directories))}"
    return line


# --- RPCs ---------------------------------------------------------------------------------------------------------


def exchange_line(names: Names, exchange: Exchange) -> str:
    """Formats a request to the controller and its response."""
    question, answer = _exchange(names, exchange.request, exchange.response)
    return f"{question} -> {answer}"


def _replicas_of(request: AssignReplicasToDirsRequest) -> set[TopicIdPartition]:
    return {
        TopicIdPartition(TopicId(topic.topic_id), partition.partition_index)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }


def with_assignments_together(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """Merges consecutive assignment requests of a broker. How many requests the broker needs depends on the seed."""
    together: list[Exchange] = []
    for exchange in exchanges:
        request, response = exchange.request, exchange.response
        before = together[-1] if together else exchange
        if (
            isinstance(request, AssignReplicasToDirsRequest)
            and isinstance(response, AssignReplicasToDirsResponse)
            and isinstance(before.request, AssignReplicasToDirsRequest)
            and isinstance(before.response, AssignReplicasToDirsResponse)
            and before is not exchange
            and before.sender == exchange.sender
            and before.response.error_code == response.error_code
            and _replicas_of(before.request).isdisjoint(_replicas_of(request))
        ):
            request = replace(request, directories=[*before.request.directories, *request.directories])
            response = replace(response, directories=[*before.response.directories, *response.directories])
            together.pop()
        together.append(Exchange(exchange.sender, request, response))
    return together


def _exchange(names: Names, request: Struct, response: Any) -> tuple[str, str]:
    error = error_name(response.error_code)
    match request:
        case BrokerRegistrationRequest():
            assert isinstance(response, BrokerRegistrationResponse)
            return f"broker {request.broker_id} BrokerRegistration LogDirs={names.directories(request.log_dirs)}", error
        case BrokerHeartbeatRequest():
            assert isinstance(response, BrokerHeartbeatResponse)
            return _heartbeat(names, request), _heartbeat_answer(response)
        case AssignReplicasToDirsRequest():
            assert isinstance(response, AssignReplicasToDirsResponse)
            return f"broker {request.broker_id} AssignReplicasToDirs {_assigned(names, request)}", _refusals(response, error)
        case AlterPartitionRequest():
            assert isinstance(response, AlterPartitionResponse)
            return f"broker {request.broker_id} AlterPartition {_proposed(names, request)}", _refusals(response, error)
    return type(request).__name__.removesuffix("Request"), error


def _heartbeat(names: Names, request: BrokerHeartbeatRequest) -> str:
    words = [f"broker {request.broker_id} BrokerHeartbeat"]
    if request.offline_log_dirs:
        words.append(f"OfflineLogDirs={names.directories(request.offline_log_dirs)}")
    words += [word for word, asked in (("WantFence", request.want_fence), ("WantShutDown", request.want_shut_down)) if asked]
    return " ".join(words)


def _heartbeat_answer(response: BrokerHeartbeatResponse) -> str:
    words = [error_name(response.error_code)]
    facts = (
        ("IsCaughtUp", response.is_caught_up),
        ("IsFenced", response.is_fenced),
        ("ShouldShutDown", response.should_shut_down),
    )
    return " ".join(words + [word for word, is_so in facts if is_so])


def _assigned(names: Names, request: AssignReplicasToDirsRequest) -> str:
    return " ".join(
        sorted(
            f"{names.topic(topic.topic_id)}-{partition.partition_index}={names.directory(directory.id)}"
            for directory in request.directories
            for topic in directory.topics
            for partition in topic.partitions
        )
    )


def _proposed(names: Names, request: AlterPartitionRequest) -> str:
    return " ".join(
        f"{names.topic(topic.topic_id)}-{partition.partition_index} "
        f"isr={members(partition.new_isr or [each.broker_id for each in partition.new_isr_with_epochs])}"
        for topic in request.topics
        for partition in topic.partitions
    )


def _refusals(response: Any, error: str) -> str:
    """Returns the error of the response, or else the errors of its partitions."""
    topics = response.topics if isinstance(response, AlterPartitionResponse) else _topics_of(response)
    codes = {error_name(partition.error_code): None for topic in topics for partition in topic.partitions}
    return error if response.error_code or not codes else ",".join(codes)


def _topics_of(response: AssignReplicasToDirsResponse) -> list[Any]:
    return [topic for directory in response.directories for topic in directory.topics]


# --- the logs of the nodes ----------------------------------------------------------------------------------------


def event_line(names: Names, event: SimulatedEvent) -> str:
    fields = " ".join(
        f"{key}={_value(names, value)}"
        for key, value in event.fields.items()
        if key not in HIDDEN_FIELDS and value is not None
    )
    return f"{event.node:<10}  {event.name}  {fields}".rstrip()


def _value(names: Names, value: Any) -> str:
    if isinstance(value, bytes):
        value = uuid_text(value)
    text = names.in_text(str(value))
    return f'"{text}"' if " " in text else text


def without_repeats(lines: Sequence[str]) -> list[str]:
    """Keeps one line of each sequence of equal lines."""
    return [line for number, line in enumerate(lines) if number == 0 or line != lines[number - 1]]


def in_columns(rows: Collection[Sequence[str]]) -> list[str]:
    """Aligns the cells of all rows in columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(next(iter(rows), ())))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
