"""A second validator: reads the files on the disks without any of the code that wrote them.

Shell of the tests. It has its own small reader of meta.properties, partition folders, segments, record batches and the
metadata log. It compares the files of the simulated disks with the history and the committed image: I1, I2, I3, I5, I9, I10
and I11. The topic of a folder comes from partition.metadata, not from the folder's name. Replicas must have equal bytes
below the high watermark only.
"""

import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from crc32c import crc32c

from common.ids import DirectoryId, TopicId, TopicIdPartition, Uuid, uuid_from_text
from common.metadata.topic_names import is_internal_topic
from common.protocol.numbering import Numbering
from common.records.metadata_frame import decode_record
from common.records.metadata_records import KnownRecord
from tests.simulation.checkers.history import acknowledged_records
from tests.simulation.checkers.image import ImageChecker, ImageModel, ModelPartition, compare_images
from tests.simulation.history import History, Outcome, Produce, is_careless, is_compacted, is_transactional, key_of
from tests.simulation.violations import InvariantViolated

_BEGIN = struct.Struct(">qiib")
_HEAD = struct.Struct(">qiibIhiqqqhii")
_BEFORE_CRC_RANGE = 21
_BEFORE_LENGTH_ENDS = 12
METADATA_FOLDER = "__cluster_metadata-0"
CONTROL = 0x20
BATCHES_KEPT = 10_000
ALL = -1


# Tells of the name of a partition, or of its folder, whether it is compacted.
Compacts = Callable[[str], bool]


class UnreadableLog(Exception):
    """Some bytes of a log are not a record batch. The whole batches before these bytes end at `end_offset`."""

    def __init__(self, text: str, end_offset: int = 0) -> None:
        super().__init__(text)
        self.end_offset = end_offset


@dataclass(frozen=True, slots=True)
class RawBatch:
    """One batch as the file has it."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    is_control: bool
    data: bytes
    # The offset and the value of each record, in order.
    records: tuple[tuple[int, bytes | None], ...]
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def values(self) -> tuple[bytes | None, ...]:
        return tuple(value for _, value in self.records)


@dataclass(slots=True)
class RawLog:
    """The batches of all segments of one folder."""

    folder: str
    first_offset: int = 0
    is_compacted: bool = False
    batches: list[RawBatch] = field(default_factory=list)
    # The content of each producer snapshot, by the offset in its name.
    snapshots: dict[int, bytes] = field(default_factory=dict)

    @property
    def start_offset(self) -> int:
        return self.batches[0].base_offset if self.batches else self.first_offset

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.first_offset

    def records(self) -> Iterator[tuple[int, bytes | None]]:
        """Yields the offsets and values of what producers wrote."""
        for batch in self.batches:
            if not batch.is_control:
                yield from batch.records


@dataclass(slots=True)
class RawDirectory:
    """One disk: its directory.id and the current logs on it."""

    broker_id: int
    path: str
    directory_id: DirectoryId | None
    logs: dict[TopicIdPartition, RawLog] = field(default_factory=dict)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_batches(content: bytes) -> Iterator[RawBatch]:
    """Yields every batch of a segment. Raises UnreadableLog at the first byte that is not part of a whole batch."""
    position = 0
    while position < len(content):
        if len(content) - position < _HEAD.size:
            raise UnreadableLog(f"{len(content) - position} bytes are left at {position}")
        _, length, _, magic = _BEGIN.unpack_from(content, position)
        end = position + _BEFORE_LENGTH_ENDS + length
        if magic != 2 or length < _HEAD.size - _BEFORE_LENGTH_ENDS or end > len(content):
            raise UnreadableLog(f"no batch at {position}: magic {magic}, length {length}")
        batch = _parsed(content[position:end])
        if batch is None:
            raise UnreadableLog(f"the checksum of the batch at {position} is wrong")
        yield batch
        position = end


@lru_cache(maxsize=BATCHES_KEPT)
def _parsed(data: bytes) -> RawBatch | None:
    """Returns the batch with exactly these bytes, None if its checksum is wrong. Cached, because the same bytes are read
    from every replica, and again at every look."""
    base, _, epoch, _, crc, attributes, delta, *_, producer_id, producer_epoch, sequence, count = _HEAD.unpack_from(data)
    if crc32c(data[_BEFORE_CRC_RANGE:]) != crc:
        return None
    records = tuple((base + at, value) for at, value in _records(data[_HEAD.size :], count))
    is_control = bool(attributes & CONTROL)
    return RawBatch(base, base + delta, epoch, is_control, data, records, producer_id, producer_epoch, sequence)


def _records(content: bytes, count: int) -> Iterator[tuple[int, bytes | None]]:
    position = 0
    for _ in range(count):
        length, position = _varint(content, position)
        end = position + length
        position += 1
        _, position = _varint(content, position)
        offset_delta, position = _varint(content, position)
        key_length, position = _varint(content, position)
        position += max(key_length, 0)
        value_length, position = _varint(content, position)
        yield offset_delta, None if value_length < 0 else content[position : position + value_length]
        position = end


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[position]
        value |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def by_folder(files: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
    """Returns the files of each folder."""
    folders: dict[str, dict[str, bytes]] = {}
    for name, content in files.items():
        folders.setdefault(name.rpartition("/")[0], {})[name] = content
    return folders


def read_log(files: Mapping[str, bytes], folder: str, compacts: Compacts = is_compacted) -> RawLog:
    """Reads all segments of a folder in order, and its producer snapshots. Only a compacted log may have gaps. Raises
    UnreadableLog."""
    segments = _segments(files, folder)
    names = sorted(segments)
    # An empty log starts at the offset in the name of its first segment.
    log = RawLog(folder, _base_offset(names[0]) if names else 0, compacts(folder))
    for name in names:
        try:
            for batch in read_batches(segments[name]):
                is_gap = log.batches and batch.base_offset > log.end_offset
                if (log.batches and batch.base_offset < log.end_offset) or (is_gap and not log.is_compacted):
                    raise UnreadableLog(f"offset {batch.base_offset} follows {log.end_offset - 1}")
                log.batches.append(batch)
        except UnreadableLog as error:
            raise UnreadableLog(f"{name}: {error}", log.end_offset) from error
    for name, content in files.items():
        if name.startswith(f"{folder}/") and name.endswith(".snapshot"):
            log.snapshots[int(name.rpartition("/")[2].removesuffix(".snapshot"))] = content
    return log


def _segments(files: Mapping[str, bytes], folder: str) -> dict[str, bytes]:
    """Returns the segments by file name. A compacted segment with the suffix .swap stands for those that it replaces,
    however many of them are still there: a start completes the swap."""
    segments = {name: files[name] for name in files if name.startswith(f"{folder}/") and name.endswith(".log")}
    for swap in sorted(name for name in files if name.startswith(f"{folder}/") and name.endswith(".log.swap")):
        name = swap.removesuffix(".swap")
        end_offset = max((batch.last_offset + 1 for batch in read_batches(files[swap])), default=_base_offset(name))
        segments = {each: segments[each] for each in segments if not name <= each or _base_offset(each) >= end_offset}
        segments[name] = files[swap]
    return segments


def _base_offset(name: str) -> int:
    return int(name.rpartition("/")[2].removesuffix(".log"))


def properties(content: bytes) -> dict[str, str]:
    """Parses a properties file."""
    lines = [line.partition("=") for line in content.decode().splitlines() if line and not line.startswith("#")]
    return {key.strip(): value.strip() for key, _, value in lines}


def read_directory(broker_id: int, path: str, files: Mapping[str, bytes], compacts: Compacts = is_compacted) -> RawDirectory:
    """Reads a disk from its files. Raises UnreadableLog."""
    meta = properties(files.get("meta.properties", b""))
    directory_id = DirectoryId(uuid_from_text(meta["directory.id"])) if "directory.id" in meta else None
    directory = RawDirectory(broker_id, path, directory_id)
    folders = by_folder(files)
    for name, content in sorted(files.items()):
        folder, _, file = name.rpartition("/")
        if (
            file != "partition.metadata"
            or "." in folder.rpartition("-")[2]
            or folder.endswith(("-delete", "-stray", "-future"))
        ):
            continue
        topic_id = TopicId(uuid_from_text(topic_id_line(content)))
        directory.logs[TopicIdPartition(topic_id, int(folder.rpartition("-")[2]))] = read_log(
            folders[folder], folder, compacts
        )
    return directory


def topic_id_line(content: bytes) -> str:
    for line in content.decode().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "topic_id":
            return value.strip()
    raise UnreadableLog(f"partition.metadata without a topic id: {content!r}")


# --- judging ----------------------------------------------------------------------------------------------------------


def check_directories(directories: Sequence[RawDirectory], image: ImageModel) -> None:
    """I9, I10 and I11: each directory.id exists once, and a broker has each of its replicas once, in the directory that the
    metadata names."""
    owners: dict[Uuid, str] = {}
    places: dict[tuple[int, TopicIdPartition], RawDirectory] = {}
    for directory in directories:
        if directory.directory_id is None:
            continue
        owner = owners.setdefault(directory.directory_id, directory.path)
        if owner != directory.path:
            raise InvariantViolated("I9", f"{owner} and {directory.path} have the same directory.id")
        for key in directory.logs:
            other = places.setdefault((directory.broker_id, key), directory)
            if other is not directory:
                raise InvariantViolated("I10", f"{image.name(key)} is in {other.path} and in {directory.path}")
    for (broker_id, key), directory in places.items():
        part = image.partitions.get(key)
        if part is None or broker_id not in part.replicas:
            raise InvariantViolated("I11", f"{directory.path} has {directory.logs[key].folder}, which does not belong there")
        if image.is_assigned(part.directory(broker_id)) and part.directory(broker_id) != directory.directory_id:
            raise InvariantViolated("I11", f"{image.name(key)} is in {directory.path}, the metadata names another directory")


def check_logs(
    directories: Sequence[RawDirectory],
    partitions: Mapping[TopicIdPartition, ModelPartition],
    name_of: Callable[[TopicIdPartition], str],
    committed: Mapping[TopicIdPartition, int],
    history: History,
) -> None:
    """I1, I2 and I3: the replicas are equal and have every promised record exactly once. A record is promised if it was
    acknowledged with acks=all or read by a consumer."""
    written = {value: produce for produce in history.produces for value in produce.values}
    promised: dict[TopicIdPartition, list[Produce]] = {}
    for produce in history.acknowledged(acks=ALL):
        promised.setdefault(TopicIdPartition(produce.topic_id, produce.index), []).append(produce)
    read: dict[TopicIdPartition, dict[int, bytes]] = {}
    for poll in history.polls:
        read.setdefault(TopicIdPartition(poll.topic_id, poll.index), {}).update(poll.records)
    for key, part in partitions.items():
        replicas = {
            directory.broker_id: directory.logs[key]
            for directory in directories
            if key in directory.logs and directory.broker_id in part.isr
        }
        name = name_of(key)
        if set(replicas) != set(part.isr):
            raise InvariantViolated("I1", f"{name}: ISR {list(part.isr)}, logs found on {sorted(replicas)}")
        ends = [log.end_offset for log in replicas.values()]
        # With unclean elections records that were committed may be gone, but then from every replica.
        check_equal(name, replicas, max(ends) if is_careless(name) else committed.get(key, 0))
        for broker_id, log in replicas.items():
            where = f"{name} on broker {broker_id}"
            found = dict(log.records())
            if not is_internal_topic(name.rpartition("-")[0]) and not is_transactional(name):
                # What is in an internal topic was not sent by a client. Of transactions, I25 and I26 tell.
                check_values(name, where, found, written)
            if is_careless(name):
                continue
            acknowledged = itertools.chain.from_iterable(map(acknowledged_records, promised.get(key, [])))
            check_found(where, found, acknowledged, log.start_offset, "was acknowledged", is_compacted(name))
            check_found(where, found, read.get(key, {}).items(), log.start_offset, "was read", is_compacted(name))


def check_equal(name: str, replicas: Mapping[int, RawLog], committed: int) -> None:
    """I3: all replicas have the same bytes below the committed offset, except for what retention has deleted. Each replica
    is compacted on its own; there the ends of the batches must be the same, and the records that both have."""
    if any(log.is_compacted for log in replicas.values()):
        _check_equal_records(name, replicas, committed)
        return
    by_offset: dict[int, tuple[int, bytes]] = {}
    for broker_id, log in replicas.items():
        if log.end_offset < committed:
            raise InvariantViolated("I1", f"{name} on broker {broker_id} ends at {log.end_offset}; committed is {committed}")
        for batch in log.batches:
            if batch.base_offset >= committed:
                break
            other, data = by_offset.setdefault(batch.base_offset, (broker_id, batch.data))
            if data != batch.data:
                raise InvariantViolated(
                    "I3", f"{name}: offset {batch.base_offset} is not the same on brokers {other} and {broker_id}"
                )


def _check_equal_records(name: str, replicas: Mapping[int, RawLog], committed: int) -> None:
    batches: dict[int, tuple[int, tuple[int, int]]] = {}
    records: dict[int, tuple[int, bytes | None]] = {}
    for broker_id, log in replicas.items():
        if log.end_offset < committed:
            raise InvariantViolated("I1", f"{name} on broker {broker_id} ends at {log.end_offset}; committed is {committed}")
        for batch in log.batches:
            if batch.base_offset >= committed:
                break
            ending = (batch.last_offset, batch.leader_epoch)
            other, known = batches.setdefault(batch.base_offset, (broker_id, ending))
            if known != ending:
                raise InvariantViolated(
                    "I3", f"{name}: the batch at {batch.base_offset} ends differently on brokers {other} and {broker_id}"
                )
            for offset, value in batch.records:
                holder, same = records.setdefault(offset, (broker_id, value))
                if same != value:
                    raise InvariantViolated(
                        "I3", f"{name}: offset {offset} is not the same on brokers {holder} and {broker_id}"
                    )


def check_values(name: str, where: str, found: Mapping[int, bytes | None], written: Mapping[bytes, Produce]) -> None:
    """I2: every value was sent, was not refused, and is in the log once."""
    seen: dict[bytes, int] = {}
    for offset, value in found.items():
        produce = None if value is None else written.get(value)
        if value is None or produce is None or f"{produce.topic}-{produce.index}" != name:
            raise InvariantViolated("I2", f"{where}: offset {offset} holds {value!r}, which nobody wrote there")
        if produce.outcome is Outcome.FAILED:
            raise InvariantViolated("I2", f"{where}: offset {offset} was refused with {produce.error}")
        if seen.setdefault(value, offset) != offset:
            raise InvariantViolated("I2", f"{where}: offsets {seen[value]} and {offset} hold the same record")


def check_found(
    where: str,
    found: Mapping[int, bytes | None],
    promised: Iterable[tuple[int, bytes]],
    start_offset: int,
    why: str,
    is_log_compacted: bool = False,
) -> None:
    """I1: every promised record that retention has not deleted is at its offset. Compaction may remove it if the log has a
    later one with its key."""
    latest: dict[bytes, int] = {}
    if is_log_compacted:
        latest = {key_of(value): offset for offset, value in sorted(found.items()) if value is not None}
    for offset, value in promised:
        if is_log_compacted:
            is_superseded = offset not in found and latest.get(key_of(value), -1) > offset
            if is_superseded:
                continue
        if (offset >= start_offset or is_log_compacted) and found.get(offset) != value:
            there = found.get(offset)
            seen = "nothing" if there is None else there.rstrip(b".").decode(errors="replace")
            raise InvariantViolated("I1", f"{where}: {value.rstrip(b'.').decode()} {why} at {offset}; there is {seen}")


# --- the metadata log -------------------------------------------------------------------------------------------------


def check_metadata_logs(logs: Mapping[str, RawLog], image: ImageChecker, *, leader: str) -> None:
    """I5: all nodes' logs agree on the committed offsets they have, and the leader's log has every committed offset."""
    first = logs[leader]
    by_offset = {batch.base_offset: batch for batch in first.batches}
    if first.end_offset < image.next_offset:
        raise InvariantViolated("I5", f"the log of {leader} ends at {first.end_offset}; committed is {image.next_offset}")
    for node, log in logs.items():
        for batch in log.batches:
            known = by_offset.get(batch.base_offset)
            if known is not None and batch.base_offset < image.next_offset and known.data != batch.data:
                raise InvariantViolated("I5", f"offset {batch.base_offset} is not the same on {node} and {leader}")
    if first.start_offset == 0:
        replayed = ImageModel()
        for offset, record in decoded(first, image.next_offset):
            replayed.replay(record, offset)
        compare_images(image.image, replayed, f"the log of {leader}")


def decoded(log: RawLog, end_offset: int) -> Iterator[tuple[int, KnownRecord]]:
    """Yields the metadata records of a log below `end_offset`, with their offsets."""
    for batch in log.batches:
        if batch.is_control or batch.base_offset >= end_offset:
            continue
        for offset, value in enumerate(batch.values, start=batch.base_offset):
            yield offset, decode_record(value or b"", Numbering.KIP858)
