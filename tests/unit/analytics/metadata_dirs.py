"""Builds metadata directories by hand: appends batches to segments and writes snapshot files."""

from collections.abc import Sequence
from pathlib import Path

from common.ids import LeaderEpoch
from common.protocol.numbering import Numbering
from common.protocol.schema import message_schema
from common.raft.core.snapshot_content import SnapshotEncoder
from common.records.control import LeaderChangeMessage, encode_control_batch
from common.records.metadata_frame import ApiMessageAndVersion, encode_record
from common.records.metadata_records import FeatureLevelRecord, KnownRecord
from common.records.record import encode_values_batch
from common.storage.names import segment_file, snapshot_file

CLUSTER_ID = "ek4mZ1zRQ0yGLuV2MgUpYQ"
START_MS = 1_700_000_000_000


def numbered(numbering: Numbering) -> list[KnownRecord]:
    """Returns the first records of a cluster: its metadata.version, and the feature that stands for this numbering."""
    records: list[KnownRecord] = [FeatureLevelRecord(name="metadata.version", feature_level=21)]
    if numbering is Numbering.KIP858:
        records.append(FeatureLevelRecord(name="diskraft.directory.numbering", feature_level=1))
    return records


class MetadataDir:
    """A metadata directory that a test writes. Each call of `append` writes one batch."""

    def __init__(self, path: Path, *, numbering: Numbering = Numbering.KIP858, cluster_id: str = CLUSTER_ID) -> None:
        self.path = path
        self.folder = path / "__cluster_metadata-0"
        self.folder.mkdir(parents=True)
        (path / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\nnode.id=100\n")
        self.numbering = numbering
        self.next_offset = 0
        self.epoch = 1
        self.now_ms = START_MS
        self.segment = self.roll()

    def roll(self) -> Path:
        """Begins a new segment."""
        self.segment = self.folder / segment_file(self.next_offset)
        self.segment.touch()
        return self.segment

    def append(self, *records: KnownRecord, after_ms: int = 1000) -> int:
        """Appends one batch and returns its first offset. See `newest_version` for the versions of the records."""
        return self.append_frames(*(self._frame(record) for record in records), after_ms=after_ms)

    def append_frames(self, *frames: bytes, after_ms: int = 1000) -> int:
        """Appends one batch of encoded records and returns its first offset."""
        self.now_ms += after_ms
        batch = encode_values_batch(frames, base_offset=self.next_offset, leader_epoch=self.epoch, timestamp_ms=self.now_ms)
        return self.append_bytes(bytes(batch), len(frames))

    def append_leader_change(self) -> int:
        """Appends the control batch of a new leader and returns its offset."""
        self.epoch += 1
        batch = encode_control_batch(
            [LeaderChangeMessage(leader_id=100)],
            timestamp_ms=self.now_ms,
            base_offset=self.next_offset,
            leader_epoch=self.epoch,
        )
        return self.append_bytes(bytes(batch), 1)

    def append_bytes(self, content: bytes, offsets: int) -> int:
        """Appends any bytes, and counts them as this many offsets. Returns the first of these offsets."""
        first = self.next_offset
        with self.segment.open("ab") as file:
            file.write(content)
        self.next_offset += offsets
        return first

    def snapshot(self, *records: KnownRecord, end_offset: int | None = None) -> Path:
        """Writes a snapshot with these records. It stands for everything below `end_offset`, by default the log's end."""
        end = self.next_offset if end_offset is None else end_offset
        encoder = SnapshotEncoder(epoch=LeaderEpoch(self.epoch), numbering=self.numbering, written_ms=self.now_ms + 500)
        entries = [ApiMessageAndVersion(record, newest_version(record)) for record in records]
        content = b"".join([encoder.header(self.now_ms), *encoder.records(entries), encoder.footer()])
        path = self.folder / snapshot_file(end, self.epoch)
        path.write_bytes(content)
        return path

    def _frame(self, record: KnownRecord) -> bytes:
        return encode_record(record, newest_version(record), self.numbering)


def newest_version(record: KnownRecord) -> int:
    """Returns the newest version of this record's type. For partitions it is 1: the later version adds eligible leader
    replicas, which the tests do not write."""
    last = message_schema(type(record)).versions.last
    return 1 if type(record).__name__ in ("PartitionRecord", "PartitionChangeRecord") else last


def offsets(rows: Sequence[dict[str, object]]) -> list[object]:
    return [row["offset"] for row in rows]
