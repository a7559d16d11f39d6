"""The export to Parquet: its rows, atomic files, continuing an export, damaged logs, and one export at a time."""

import fcntl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from analytics.errors import AnalyticsError
from analytics.requirements import missing_package
from common.ids import uuid_text
from common.metadata.directory_ids import LOST
from common.protocol.numbering import Numbering
from common.records.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    KnownRecord,
    NoOpRecord,
    PartitionRecord,
)
from tests.unit.analytics.extras import need
from tests.unit.analytics.metadata_dirs import START_MS, MetadataDir, numbered
from tests.unit.common.metadata.builders import directory, register, topic, topic_id

need(missing_package("pyarrow"))

import pyarrow.parquet as pq  # noqa: E402

from analytics import parquet_output  # noqa: E402
from analytics.export import Summary, export_metadata  # noqa: E402
from tools.diskraft import main  # noqa: E402


@pytest.fixture
def made(tmp_path: Path) -> MetadataDir:
    """A log of six records in three batches."""
    made = MetadataDir(tmp_path / "metadata")
    made.append_leader_change()
    made.append(*numbered(Numbering.KIP858), register(1, directories=[directory(1)]))
    made.append(topic(1, "orders"), partition(0))
    return made


def partition(number: int) -> KnownRecord:
    return PartitionRecord(
        partition_id=number, topic_id=topic_id(1), replicas=[1], isr=[1], leader=1, directories=[directory(1)]
    )


def rows_in(out: Path) -> list[dict[str, Any]]:
    """Returns all rows of the folder as any Parquet reader reads them: file by file, in the order of the names."""
    found: list[dict[str, Any]] = pq.read_table(out).to_pylist()
    return found


def offsets_in(out: Path) -> list[int]:
    return [row["offset"] for row in rows_in(out)]


def names_in(out: Path) -> list[str]:
    return sorted(path.name for path in out.iterdir() if not path.name.startswith("."))


def test_one_row_for_each_record(made: MetadataDir, tmp_path: Path) -> None:
    """The file keeps the types: times are UTC with milliseconds, lists are lists, nulls are nulls."""
    out = tmp_path / "out"
    assert export_metadata(made.path, out) == Summary(
        first_offset=0, next_offset=6, records=6, files=1, numbering=Numbering.KIP858
    )
    rows = rows_in(out)
    assert [row["type"] for row in rows] == [
        "LEADER_CHANGE",
        "FEATURE_LEVEL_RECORD",
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
    ]
    assert rows[1]["time"] == datetime.fromtimestamp((START_MS + 1000) / 1000, UTC)
    assert (rows[5]["isr"], rows[5]["topic_name"], rows[5]["epoch"], rows[5]["batch_offset"]) == ([1], None, 2, 4)
    assert names_in(out) == [f"records-{0:020d}-{5:020d}.parquet"]


def test_a_second_export_continues(made: MetadataDir, tmp_path: Path) -> None:
    """If there are no new records, the second export writes no file. New records get a file of their own, and no offset
    occurs twice."""
    out = tmp_path / "out"
    export_metadata(made.path, out)
    assert export_metadata(made.path, out) == Summary(first_offset=6, next_offset=6, numbering=Numbering.KIP858)
    made.append(NoOpRecord())
    made.roll()
    made.append(partition(1), partition(2))
    assert export_metadata(made.path, out) == Summary(
        first_offset=6, next_offset=9, records=3, files=1, numbering=Numbering.KIP858
    )
    assert offsets_in(out) == list(range(9))
    assert names_in(out)[1:] == [f"records-{6:020d}-{8:020d}.parquet"]


@pytest.mark.parametrize("numbering", list(Numbering))
def test_a_continued_export_knows_numbering_and_transaction(tmp_path: Path, numbering: Numbering) -> None:
    """The numbering and the open transaction come from records that only the first export has read."""
    made = MetadataDir(tmp_path / "metadata", numbering=numbering)
    made.append(*numbered(numbering), topic(1), BeginTransactionRecord())
    begin = made.next_offset - 1
    export_metadata(made.path, tmp_path / "out")
    lost = PartitionRecord(partition_id=0, topic_id=topic_id(1), replicas=[1], directories=[LOST])
    made.append(lost, EndTransactionRecord(), NoOpRecord())
    export_metadata(made.path, tmp_path / "out")
    rows = rows_in(tmp_path / "out")
    assert rows[begin + 1]["directories"] == ["LOST"]
    assert [row["transaction_offset"] for row in rows[begin:]] == [begin, begin, begin, None]


def test_a_long_log_fills_several_files(made: MetadataDir, tmp_path: Path) -> None:
    """When a batch fills a file, the next batch goes into a new file."""
    for number in range(10):
        made.append(partition(number), NoOpRecord())
    summary = export_metadata(made.path, tmp_path / "out", rows_per_file=8)
    assert (summary.records, summary.files) == (26, 4)
    assert offsets_in(tmp_path / "out") == list(range(26))


def test_groups_and_chunks_are_cut_without_loss(made: MetadataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the sizes of chunks and row groups so low that records cross every boundary."""
    monkeypatch.setattr(parquet_output, "ROWS_PER_CHUNK", 2)
    monkeypatch.setattr(parquet_output, "ROWS_PER_GROUP", 4)
    for number in range(5):
        made.append(*(partition(number) for _ in range(number + 1)))
    export_metadata(made.path, tmp_path / "out")
    assert offsets_in(tmp_path / "out") == list(range(21))
    assert pq.read_metadata(tmp_path / "out" / names_in(tmp_path / "out")[0]).num_row_groups > 2


def test_a_snapshot_has_a_file_of_its_own(made: MetadataDir, tmp_path: Path) -> None:
    """The snapshot stands for the deleted offsets. All its rows have the last of these offsets and the time of the record
    there."""
    made.snapshot(*numbered(Numbering.KIP858), register(1, directories=[directory(1)], lost=[directory(2)]), topic(1))
    snapshot_ms = made.now_ms
    made.segment.unlink()
    made.roll()
    made.append(partition(0))
    out = tmp_path / "out"
    assert export_metadata(made.path, out).files == 2
    rows = rows_in(out)
    assert names_in(out) == [f"records-{0:020d}-{5:020d}.parquet", f"records-{6:020d}-{6:020d}.parquet"]
    assert [(row["offset"], row["source"]) for row in rows] == [(5, "snapshot")] * 6 + [(6, "segment")]
    assert [row["position"] for row in rows] == [0, 1, 2, 3, 4, 5, None]
    assert {row["time"] for row in rows[:6]} == {datetime.fromtimestamp(snapshot_ms / 1000, UTC)}
    assert rows[3]["lost_log_dirs"] == [uuid_text(directory(2))]
    assert export_metadata(made.path, out).records == 0


def test_a_file_gets_its_name_when_it_is_whole(made: MetadataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers never see an incomplete file, and an interrupted export leaves none."""
    out = tmp_path / "out"
    seen: list[list[str]] = []

    def interrupt(_records: int) -> None:
        seen.append(names_in(out))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_metadata(made.path, out, on_progress=interrupt)
    assert seen == [[]]
    assert sorted(path.name for path in out.iterdir()) == [".export.lock"]

    def fail(_path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet_output, "_sync", fail)
    with pytest.raises(OSError, match="No space"):
        export_metadata(made.path, out)
    assert sorted(path.name for path in out.iterdir()) == [".export.lock"]


def test_what_a_killed_export_left_is_removed(made: MetadataDir, tmp_path: Path) -> None:
    """A killed export leaves a half-written file under the temporary name. The next export removes the file without reading
    it."""
    out = tmp_path / "out"
    out.mkdir()
    (out / ".writing.parquet").write_bytes(b"half a file")
    export_metadata(made.path, out)
    assert sorted(path.name for path in out.iterdir()) == [".export.lock", *names_in(out)]
    assert offsets_in(out) == list(range(6))


def test_what_comes_before_damage_is_exported(made: MetadataDir, tmp_path: Path) -> None:
    """Each export writes the records before the damage and then reports the damage. Once the log is repaired, the next
    export continues after the last exported offset."""
    good = made.segment.read_bytes()
    made.append(partition(1))
    whole = made.segment.read_bytes()
    made.segment.write_bytes(whole[:-1] + b"\xff")
    out = tmp_path / "out"
    for _ in range(2):
        with pytest.raises(AnalyticsError, match=f"damaged at position {len(good)}"):
            export_metadata(made.path, out)
        assert offsets_in(out) == list(range(6))
    made.segment.write_bytes(whole)
    assert export_metadata(made.path, out).records == 1


def test_a_log_that_was_cut_back_is_not_mixed_with_the_old_one(made: MetadataDir, tmp_path: Path) -> None:
    """In the log, the last exported offset now has another epoch, so the export refuses to continue."""
    export_metadata(made.path, tmp_path / "out")
    other = MetadataDir(tmp_path / "other")
    other.epoch = 5
    other.append(*(NoOpRecord() for _ in range(6)))
    with pytest.raises(AnalyticsError, match="the log has been truncated since; export into a new folder"):
        export_metadata(other.path, tmp_path / "out")
    assert offsets_in(tmp_path / "out") == list(range(6))


def test_two_clusters_are_not_mixed(made: MetadataDir, tmp_path: Path) -> None:
    """The export compares the cluster ids. It refuses the log of another cluster, and accepts the log of another node of the
    same cluster."""
    export_metadata(made.path, tmp_path / "out")
    other = MetadataDir(tmp_path / "other", cluster_id="another")
    with pytest.raises(AnalyticsError, match="belongs to another"):
        export_metadata(other.path, tmp_path / "out")
    lagging = MetadataDir(tmp_path / "lagging")
    lagging.append_leader_change()
    assert export_metadata(lagging.path, tmp_path / "out").records == 0


def test_only_one_export_writes_into_a_folder(made: MetadataDir, tmp_path: Path) -> None:
    """A second export into the folder fails with an error and writes nothing."""
    out = tmp_path / "out"
    out.mkdir()
    with (out / ".export.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(AnalyticsError, match="another export is writing"):
            export_metadata(made.path, out)
    assert export_metadata(made.path, out).records == 6


def test_a_strange_file_under_our_name_is_an_error(made: MetadataDir, tmp_path: Path) -> None:
    """A file has the name of an export's file but cannot be read. The last exported offset is therefore unknown, and
    continuing could repeat or skip records."""
    out = tmp_path / "out"
    out.mkdir()
    (out / f"records-{0:020d}-{9:020d}.parquet").write_bytes(b"PAR1 or not")
    with pytest.raises(AnalyticsError, match="is not a file of an export"):
        export_metadata(made.path, out)


def test_the_command_tells_what_it_did(made: MetadataDir, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A success prints one line to stdout. An error prints one line to stderr and exits with status 1."""
    out = tmp_path / "out"
    arguments = ["metadata", "export", "--metadata-log-dir", str(made.path), "--out", str(out)]
    assert main(arguments) == 0
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"6 records (offsets 0 to 5) in 1 new files in {out}",
        "directory numbering: kip-858",
        "nothing new after offset 5",
    ]
    assert main(["metadata", "export", "--metadata-log-dir", str(tmp_path), "--out", str(out)]) == 1
    captured = capsys.readouterr()
    assert (captured.out, len(captured.err.splitlines())) == ("", 1)
    (tmp_path / "file").touch()
    assert main([*arguments[:-1], str(tmp_path / "file")]) == 1
    assert "File exists" in capsys.readouterr().err
