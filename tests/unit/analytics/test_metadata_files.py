"""Reading a metadata directory: segments in order, growing logs, retention, damage, and truncated logs."""

from pathlib import Path

import pytest

from analytics.errors import AnalyticsError
from analytics.metadata_files import DamagedLog, DivergedLog, LogBatch, MetadataFiles, Snapshot
from common.records.metadata_records import NoOpRecord
from tests.unit.analytics.metadata_dirs import MetadataDir


def told(files: MetadataFiles, next_offset: int = 0, last_epoch: int | None = None) -> list[str]:
    """Reads the log and returns its entries in short form: `first-last` for a batch, `snapshot end` for a snapshot."""
    return [
        f"{entry.header.base_offset}-{entry.header.last_offset}"
        if isinstance(entry, LogBatch)
        else f"snapshot {entry.snapshot_id.offset}"
        for entry in files.read(next_offset, last_epoch)
    ]


def three_segments(path: Path) -> MetadataDir:
    """Writes three segments with the batches 0-1, 2 | 3-4 | 5."""
    made = MetadataDir(path)
    made.append(NoOpRecord(), NoOpRecord())
    made.append(NoOpRecord())
    made.roll()
    made.append(NoOpRecord(), NoOpRecord())
    made.roll()
    made.append(NoOpRecord())
    return made


def test_segments_are_read_in_order_from_any_batch_on(tmp_path: Path) -> None:
    """Reads from the start, from the middle of a segment, from a segment's end, and from the log's end."""
    made = three_segments(tmp_path)
    files = MetadataFiles(made.path)
    assert told(files) == ["0-1", "2-2", "3-4", "5-5"]
    assert told(files, 2, 1) == ["2-2", "3-4", "5-5"]
    assert told(files, 3, 1) == ["3-4", "5-5"]
    assert told(files, 6, 1) == []


def test_the_folder_of_the_log_itself_may_be_named(tmp_path: Path) -> None:
    """The path may be that of the metadata directory or of its log folder, because users copy paths from listings. A folder
    without a log is an error that says so."""
    made = three_segments(tmp_path)
    assert told(MetadataFiles(made.folder)) == told(MetadataFiles(made.path))
    with pytest.raises(AnalyticsError, match="has no folder __cluster_metadata-0"):
        MetadataFiles(tmp_path / "elsewhere")


def test_a_log_that_grows_and_rolls_while_it_is_read_is_followed(tmp_path: Path) -> None:
    """A running read also returns batches that are appended meanwhile, to the same segment and to the next one."""
    made = MetadataDir(tmp_path)
    made.append(NoOpRecord())
    entries = MetadataFiles(made.path).read(0)
    assert isinstance(next(entries), LogBatch)
    made.append(NoOpRecord())
    made.roll()
    made.append(NoOpRecord())
    found = list(entries)
    assert [entry.header.base_offset for entry in found if isinstance(entry, LogBatch)] == [1, 2]


def test_an_unfinished_batch_at_the_end_is_left_for_the_next_time(tmp_path: Path) -> None:
    """If the last batch is cut off at any byte, the log reads as if the batch were not there, without an error."""
    made = MetadataDir(tmp_path)
    made.append(NoOpRecord())
    whole = made.segment.stat().st_size
    made.append(NoOpRecord(), NoOpRecord())
    content = made.segment.read_bytes()
    for size in range(whole, len(content)):
        made.segment.write_bytes(content[:size])
        assert told(MetadataFiles(made.path)) == ["0-0"]
    made.segment.write_bytes(content)
    assert told(MetadataFiles(made.path)) == ["0-0", "1-2"]


def test_a_wrong_checksum_ends_the_reading_with_the_place(tmp_path: Path) -> None:
    """The reader yields the batches before the damaged one, then raises an error with the position of the damage."""
    made = three_segments(tmp_path)
    path = made.folder / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    entries = MetadataFiles(made.path).read(0)
    assert isinstance(next(entries), LogBatch)
    with pytest.raises(DamagedLog, match=r"00000000000000000000\.log is damaged at position 83: .*CRC"):
        next(entries)


def test_damage_that_mends_itself_is_none(tmp_path: Path) -> None:
    """Between a truncation and the next append, a reader may see garbage. It therefore reads the batch again before it
    reports damage."""
    made = three_segments(tmp_path)
    good = made.segment.read_bytes()
    made.segment.write_bytes(good[:-1] + b"\xff")
    entries = MetadataFiles(made.path).read(0)
    found = [next(entries) for _ in range(3)]
    made.segment.write_bytes(good)
    found += list(entries)
    assert [entry.header.base_offset for entry in found if isinstance(entry, LogBatch)] == [0, 2, 3, 5]


@pytest.mark.parametrize("garbage", [bytes(100), b"\xff" * 100], ids=["zeros", "ones"])
def test_garbage_behind_the_last_batch_is_damage(tmp_path: Path, garbage: bytes) -> None:
    """A power cut can leave garbage after the last batch. The node truncates the garbage on its next start."""
    made = three_segments(tmp_path)
    made.append_bytes(garbage, 1)
    with pytest.raises(DamagedLog, match="form no batch"):
        told(MetadataFiles(made.path))


def test_a_missing_segment_is_damage(tmp_path: Path) -> None:
    """The reader must never skip offsets silently."""
    made = three_segments(tmp_path)
    (made.folder / f"{3:020d}.log").unlink()
    with pytest.raises(DamagedLog, match="the offsets from 3 to 4 are missing"):
        told(MetadataFiles(made.path))


def test_a_snapshot_stands_for_what_retention_deleted(tmp_path: Path) -> None:
    """The reader uses the oldest usable snapshot, to read as many records as possible from the segments. A read that starts
    later does not need a snapshot."""
    made = three_segments(tmp_path)
    made.snapshot(end_offset=3)
    made.snapshot(end_offset=5)
    (made.folder / f"{0:020d}.log").unlink()
    files = MetadataFiles(made.path)
    assert told(files) == ["snapshot 3", "3-4", "5-5"]
    assert told(files, 3, 1) == ["3-4", "5-5"]


def test_a_snapshot_that_is_not_whole_is_passed_over(tmp_path: Path) -> None:
    """A snapshot without its footer is skipped, and the next one is used. If none is left, that is an error."""
    made = three_segments(tmp_path)
    first, second = made.snapshot(end_offset=3), made.snapshot(end_offset=5)
    (made.folder / f"{0:020d}.log").unlink()
    first.write_bytes(first.read_bytes()[:-80])
    assert [entry for entry in told(MetadataFiles(made.path)) if entry.startswith("snapshot")] == ["snapshot 5"]
    second.unlink()
    with pytest.raises(DamagedLog, match="the log begins at offset 3, and no snapshot covers the offsets from 0"):
        told(MetadataFiles(made.path))
    for segment in made.folder.glob("*.log"):
        segment.unlink()
    with pytest.raises(DamagedLog, match="there are no segments, and no snapshot covers the offsets from 0"):
        told(MetadataFiles(made.path))


def test_segments_that_disappear_while_they_are_read(tmp_path: Path) -> None:
    """While the log is read, retention deletes the next segments. The reader continues with the snapshot, and yields no
    offset twice."""
    made = three_segments(tmp_path)
    entries = MetadataFiles(made.path).read(0)
    assert isinstance(next(entries), LogBatch)
    made.snapshot(end_offset=5)
    (made.folder / f"{0:020d}.log").unlink()
    (made.folder / f"{3:020d}.log").unlink()
    found = list(entries)
    assert [type(entry) for entry in found] == [LogBatch, Snapshot, LogBatch]


def test_a_log_that_was_cut_back_is_noticed(tmp_path: Path) -> None:
    """Either the last record that was read has another epoch now, or the next offset is in the middle of a batch. In both
    cases this is no longer the log that was read before."""
    made = three_segments(tmp_path)
    files = MetadataFiles(made.path)
    with pytest.raises(DivergedLog, match="offset 4 has epoch 1, and what was read before ends with offset 4 of epoch 7"):
        told(files, 5, 7)
    with pytest.raises(DivergedLog, match="holds the offsets 3 to 4"):
        told(files, 4, 1)


def test_a_log_that_was_cut_back_and_is_still_shorter_is_noticed(tmp_path: Path) -> None:
    """A newer epoch at an offset that was read before shows the truncation. Without one, the log may be that of a node that
    lags behind, and has nothing new."""
    made = MetadataDir(tmp_path)
    made.append(NoOpRecord())
    made.append_leader_change()
    files = MetadataFiles(made.path)
    assert told(files, 5, 2) == []
    with pytest.raises(DivergedLog, match="offset 1 has epoch 2, and what was read before ends with offset 4 of epoch 1"):
        told(files, 5, 1)


def test_reading_leaves_the_directory_as_it_is(tmp_path: Path) -> None:
    """Reading creates and changes no file, not even a modification time."""
    made = three_segments(tmp_path)

    def state() -> list[tuple[str, int, int]]:
        return sorted((str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in made.path.rglob("*"))

    before = state()
    told(MetadataFiles(made.path))
    assert state() == before


def test_a_folder_without_segments_is_an_empty_log(tmp_path: Path) -> None:
    """The directory looks like this between formatting and the first start."""
    made = MetadataDir(tmp_path)
    assert told(MetadataFiles(made.path)) == []
    made.segment.unlink()
    assert told(MetadataFiles(made.path)) == []
