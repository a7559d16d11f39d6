"""Targets for the small files in a log directory: indexes, checkpoints, producer snapshots, meta.properties, names and so
on."""

from collections.abc import Callable
from contextlib import suppress

from crc32c import crc32c

from common.ids import BrokerEpoch, BrokerId, DirectoryId, LeaderEpoch, TopicId, Uuid
from common.raft.core.election_state import (
    ElectionState,
    InvalidQuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from common.slices import at_once
from common.storage.clean_shutdown import format_clean_shutdown, parse_clean_shutdown
from common.storage.index_entries import CorruptIndex
from common.storage.leader_epochs import LeaderEpochs
from common.storage.meta_properties import (
    VERSION_ZOOKEEPER,
    MalformedMetaProperties,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from common.storage.names import (
    FolderKind,
    marked_partition_folder,
    parse_partition_folder,
    parse_producer_snapshot_file,
    parse_segment_file,
    parse_snapshot_file,
    partition_folder,
    producer_snapshot_file,
    segment_file,
    snapshot_file,
)
from common.storage.offset_index import OffsetIndex
from common.storage.partition_metadata import (
    MalformedPartitionMetadata,
    format_partition_metadata,
    parse_partition_metadata,
)
from common.storage.producers.snapshot import (
    CorruptProducerSnapshot,
    decode_producer_snapshot,
    encode_producer_snapshot,
)
from common.storage.producers.state import ProducedBatch, ProducerEntry
from common.storage.text_checkpoint import (
    MalformedCheckpoint,
    format_epoch_checkpoint,
    format_offset_checkpoint,
    parse_epoch_checkpoint,
)
from common.storage.time_index import TimeIndex
from common.storage.transaction_index import AbortedTransaction, CorruptTransactionIndex, TransactionIndex
from tests.fuzz.target import Target
from tests.offset_checkpoints import parse_offset_checkpoint

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_BASE_OFFSET = 1000
_END_OFFSET = 1000 + 2**20
_SEGMENT_SIZE = 2**20


# --- indexes -----------------------------------------------------------------------------------------------------
def _check_offset_index(data: bytes) -> None:
    """An offset index has the entries of its file and only finds positions within the segment, or raises CorruptIndex. A
    lookup in a file that is out of order finds one of its entries, or raises CorruptIndex."""
    try:
        index = OffsetIndex.from_bytes(data, base_offset=_BASE_OFFSET, end_offset=_END_OFFSET, segment_size=_SEGMENT_SIZE)
    except CorruptIndex:
        return
    assert index.to_bytes() == data
    entries = index.entries
    for offset, position in entries:
        with suppress(CorruptIndex):
            assert index.batch_for(offset) in (None, *entries)
            assert index.batch_at_or_before(position) in (None, *entries)
    try:
        index.check_order()
    except CorruptIndex:
        return
    for offset, position in entries:
        assert _BASE_OFFSET <= offset < _END_OFFSET
        assert 0 <= position < _SEGMENT_SIZE
        assert index.batch_for(offset) == (offset, position) == index.batch_at_or_before(position)


def _check_time_index(data: bytes) -> None:
    """A time index has the entries of its file and only finds offsets within the segment, or raises CorruptIndex."""
    try:
        index = TimeIndex.from_bytes(data, base_offset=_BASE_OFFSET, end_offset=_END_OFFSET)
    except CorruptIndex:
        return
    assert index.to_bytes() == data
    offsets = {offset for _, offset in index.entries}
    for time, _ in index.entries:
        with suppress(CorruptIndex):
            assert index.offset_for(time) in (_BASE_OFFSET, *offsets)
    try:
        index.check_order()
    except CorruptIndex:
        return
    for time, offset in index.entries:
        assert _BASE_OFFSET <= offset < _END_OFFSET
        assert index.offset_for(time) == offset


def _offset_index_seeds() -> list[bytes]:
    index = OffsetIndex(_BASE_OFFSET)
    contents = [index.to_bytes()]
    for number in range(6):
        index.append(_BASE_OFFSET + 10 * number + 5, 4096 * (number + 1))
        contents.append(index.to_bytes())
    return [*contents, contents[-1] + bytes(16), contents[-1][:-3]]


def _time_index_seeds() -> list[bytes]:
    index = TimeIndex(_BASE_OFFSET)
    contents = [index.to_bytes()]
    for number in range(6):
        index.maybe_append(10**12 + number, _BASE_OFFSET + 10 * number)
        contents.append(index.to_bytes())
    return [*contents, contents[-1] + bytes(24), contents[-1][:-5]]


def _check_transaction_index(data: bytes) -> None:
    """Reading returns entries whose markers ascend, and that a search and a truncation can deal with, or raises
    CorruptTransactionIndex with a one-line message."""
    try:
        index = TransactionIndex.from_bytes(data, base_offset=_BASE_OFFSET)
    except CorruptTransactionIndex as error:
        _check_one_line(error)
        return
    entries = [index[number] for number in range(len(index))]
    markers = [each.last_offset for each in entries]
    assert markers == sorted({*markers})
    for each in entries:
        assert each in index.overlapping(each.last_offset, each.first_offset + 1)
        assert len(index.truncated_to(each.last_offset)) == markers.index(each.last_offset)
    again = TransactionIndex.from_bytes(index.to_bytes(), base_offset=_BASE_OFFSET)
    assert again.to_bytes() == index.to_bytes()


def _transaction_index_seeds() -> list[bytes]:
    index = TransactionIndex()
    contents = [b""]
    for number in range(4):
        marker = _BASE_OFFSET + 10 * number
        index.append(AbortedTransaction(number % 2, marker - 5, marker, marker + 1))
        contents.append(index.to_bytes())
    return [*contents, contents[-1][:-3], contents[-1] + contents[-1]]


# --- checkpoints -------------------------------------------------------------------------------------------------
def _check_offset_checkpoint(data: bytes) -> None:
    """Parsing returns partitions and offsets that the protocol can carry, or raises MalformedCheckpoint."""
    try:
        offsets = parse_offset_checkpoint(data)
    except MalformedCheckpoint:
        return
    assert parse_offset_checkpoint(format_offset_checkpoint(offsets)) == offsets
    for (_, partition), offset in offsets.items():
        assert 0 <= partition <= INT32_MAX
        assert 0 <= offset <= INT64_MAX


def _check_epoch_checkpoint(data: bytes) -> None:
    """Parsing returns ascending epochs and offsets that the protocol can carry, or raises MalformedCheckpoint."""
    try:
        entries = parse_epoch_checkpoint(data)
    except MalformedCheckpoint:
        return
    assert parse_epoch_checkpoint(format_epoch_checkpoint(entries)) == entries
    for epoch, start_offset in LeaderEpochs.parse(data).entries:
        assert 0 <= epoch <= INT32_MAX
        assert 0 <= start_offset <= INT64_MAX


def _offset_checkpoint_seeds() -> list[bytes]:
    return [
        format_offset_checkpoint({}),
        format_offset_checkpoint({("t", 0): 5, ("other.topic", 12): INT64_MAX}),
        b"0\n1\nt 0 9223372036854775808\n",
        b"0\n2\nt 0 1\nt 00 1\n",
        b"1\n0\n",
        b"",
    ]


def _epoch_checkpoint_seeds() -> list[bytes]:
    return [
        format_epoch_checkpoint([]),
        format_epoch_checkpoint([(0, 0), (1, 5), (7, 2**40)]),
        b"0\n1\n2147483648 1\n",
        b"0\n2\n1 5\n1 6\n",
    ]


# --- files of one record -----------------------------------------------------------------------------------------
def _check_meta_properties(data: bytes) -> None:
    """Parsing returns ids that can be sent and written again, or raises MalformedMetaProperties with a one-line message."""
    try:
        properties = parse_meta_properties(data)
    except MalformedMetaProperties as error:
        _check_one_line(error)
        return
    assert parse_meta_properties(format_meta_properties(properties)) == properties
    assert properties.node_id is None or 0 <= properties.node_id <= INT32_MAX
    (properties.cluster_id or "").encode()


def _meta_properties_seeds() -> list[bytes]:
    directory_id = DirectoryId(Uuid(bytes(range(16))))
    whole = MetaProperties(cluster_id="cluster", node_id=3, directory_id=directory_id)
    old = MetaProperties(cluster_id="cluster", node_id=3, version=VERSION_ZOOKEEPER)
    return [
        format_meta_properties(whole),
        format_meta_properties(old),
        b"#\n#Sat Nov 21\nversion = 1\ncluster.id: \\u0041\\\n  BC\nnode.id=1\n",
        b"version=1\nnode.id=2147483648\ncluster.id=x\n",
        b"version=1\nnode.id=1\ncluster.id=\\ud800\n",
    ]


def _check_quorum_state(data: bytes) -> None:
    """Decoding returns an election state that can be sent and written again, or raises InvalidQuorumState with a one-line
    message."""
    try:
        state = decode_quorum_state(data)
    except InvalidQuorumState as error:
        _check_one_line(error)
        return
    assert 0 <= state.epoch <= INT32_MAX
    for node_id in (state.leader_id, state.voted_id):
        assert node_id is None or 0 <= node_id <= INT32_MAX
    assert decode_quorum_state(encode_quorum_state(state, [])) == state


def _quorum_state_seeds() -> list[bytes]:
    state = ElectionState(LeaderEpoch(7), BrokerId(1), BrokerId(1))
    return [
        encode_quorum_state(state, [BrokerId(1)]),
        b'{"leaderId":1,"leaderEpoch":7,"votedId":1,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}',
        encode_quorum_state(ElectionState(), []),
        b'{"data_version":1,"leaderEpoch":1,"leaderId":-1,"votedId":-1,"votedDirectoryId":null}',
        b"[" * 3000,
    ]


def _check_clean_shutdown(data: bytes) -> None:
    """The shutdown was clean, whatever bytes the marker contains. If it contains a broker epoch, a request can carry it."""
    epoch = parse_clean_shutdown(data).broker_epoch
    assert epoch is None or 0 <= epoch <= INT64_MAX


def _clean_shutdown_seeds() -> list[bytes]:
    return [
        format_clean_shutdown(BrokerEpoch(5)),
        b"",
        b'{"version":0,"brokerEpoch":9223372036854775808}',
        b'{"a":' * 3000,
    ]


def _check_partition_metadata(data: bytes) -> None:
    """Parsing returns a topic id that is not zero, or raises MalformedPartitionMetadata with a one-line message."""
    try:
        topic_id = parse_partition_metadata(data)
    except MalformedPartitionMetadata as error:
        _check_one_line(error)
        return
    assert any(topic_id)
    assert parse_partition_metadata(format_partition_metadata(topic_id)) == topic_id


def _partition_metadata_seeds() -> list[bytes]:
    topic_id = TopicId(Uuid(bytes(range(16))))
    return [format_partition_metadata(topic_id), b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"version: 1\n"]


def _check_producer_snapshot(data: bytes) -> None:
    """Decoding returns entries that can be encoded again, or raises CorruptProducerSnapshot with a one-line message. The
    checksum would hide everything else, so the data is decoded with a valid checksum too."""
    for content in (data, data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]):
        try:
            entries = at_once(decode_producer_snapshot(content))
        except CorruptProducerSnapshot as error:
            _check_one_line(error)
            continue
        assert at_once(decode_producer_snapshot(encode_producer_snapshot(entries))) == entries


def _producer_snapshot_seeds() -> list[bytes]:
    known = ProducerEntry(3, [ProducedBatch(5, 9, 16, 20, 1000)], 1000, 6, 17)
    return [
        encode_producer_snapshot({}),
        encode_producer_snapshot({1: known, 2: ProducerEntry(1, [], 77, 2)}),
        encode_producer_snapshot({number: ProducerEntry() for number in range(20)}),
    ]


# --- names -------------------------------------------------------------------------------------------------------
def _check_names(data: bytes) -> None:
    """A parsed name formats back to itself, and its numbers fit the protocol."""
    name = data.decode("utf-8", errors="replace")
    if (folder := parse_partition_folder(name)) is not None:
        assert 0 <= folder.partition <= INT32_MAX
        if folder.kind is FolderKind.CURRENT:
            assert partition_folder(folder.topic, folder.partition) == name
        elif len(name) < 200:
            unique = bytes.fromhex(folder.unique)
            assert marked_partition_folder(folder.topic, folder.partition, folder.kind, unique) == name
    if (segment := parse_segment_file(name)) is not None:
        assert segment[0] <= INT64_MAX
        assert segment_file(*segment) == name
    if (offset := parse_producer_snapshot_file(name)) is not None:
        assert offset <= INT64_MAX
        assert producer_snapshot_file(offset) == name
    if (snapshot := parse_snapshot_file(name)) is not None:
        assert snapshot[0] <= INT64_MAX
        assert snapshot[1] <= INT32_MAX
        assert snapshot_file(*snapshot) == name


def _name_seeds() -> list[bytes]:
    names = [
        partition_folder("t", 0),
        partition_folder("some-topic.name", 2**31),
        *(marked_partition_folder("t-1", 3, kind, bytes(range(16))) for kind in FolderKind if kind.value),
        segment_file(5),
        segment_file(10**19, ".timeindex"),
        producer_snapshot_file(5),
        producer_snapshot_file(10**19),
        snapshot_file(7, 2),
        snapshot_file(10**19, 9_999_999_999),
        "lost+found",
    ]
    return [name.encode() for name in names]


def _check_one_line(error: Exception) -> None:
    assert str(error)
    assert "\n" not in str(error)


def _target(name: str, check: Callable[[bytes], None], seeds: Callable[[], list[bytes]]) -> Target:
    return Target(name=name, check=check, seeds=seeds)


TARGETS = (
    _target("offset_index", _check_offset_index, _offset_index_seeds),
    _target("time_index", _check_time_index, _time_index_seeds),
    _target("transaction_index", _check_transaction_index, _transaction_index_seeds),
    _target("offset_checkpoint", _check_offset_checkpoint, _offset_checkpoint_seeds),
    _target("epoch_checkpoint", _check_epoch_checkpoint, _epoch_checkpoint_seeds),
    _target("meta_properties", _check_meta_properties, _meta_properties_seeds),
    _target("quorum_state", _check_quorum_state, _quorum_state_seeds),
    _target("clean_shutdown", _check_clean_shutdown, _clean_shutdown_seeds),
    _target("partition_metadata", _check_partition_metadata, _partition_metadata_seeds),
    _target("producer_snapshot", _check_producer_snapshot, _producer_snapshot_seeds),
    _target("names", _check_names, _name_seeds),
)
