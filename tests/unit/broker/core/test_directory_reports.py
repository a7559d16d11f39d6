"""What the broker has told the controller about a replica's directory, and when that is settled."""

from broker.core.directory_reports import DirectoryReports
from common.ids import DirectoryId, TopicId, TopicIdPartition, Uuid

P0 = TopicIdPartition(TopicId(Uuid(b"t" * 16)), 0)
D1 = DirectoryId(Uuid(b"1" * 16))
D2 = DirectoryId(Uuid(b"2" * 16))


def reported(*directories: DirectoryId) -> DirectoryReports:
    reports = DirectoryReports()
    for directory_id in directories:
        reports.sent(P0, directory_id)
    return reports


def test_without_a_report_everything_is_final() -> None:
    """The broker has reported nothing, so nothing of it can change the metadata."""
    assert DirectoryReports().is_final(P0, D1)
    assert not DirectoryReports().answered(P0)


def test_a_single_directory_needs_no_answer() -> None:
    """However often it was reported: whatever the controller still does, it names that directory."""
    reports = reported(D1, D1)
    assert reports.is_final(P0, D1)
    assert not reports.is_final(P0, D2)
    assert not reports.answered(P0), "this answer was not needed"


def test_a_second_directory_needs_an_answer() -> None:
    """Until then the controller may not have seen the second report, or not even the first."""
    reports = reported(D1, D2)
    assert not reports.is_final(P0, D1)
    assert not reports.is_final(P0, D2)
    assert reports.answered(P0)
    assert reports.is_final(P0, D2)
    assert not reports.answered(P0), "it was answered before"


def test_a_directory_that_was_reported_before_needs_an_answer() -> None:
    """The first report may be what the metadata shows, while the second is still to come."""
    reports = reported(D1, D2)
    reports.answered(P0)
    reports.sent(P0, D1)
    assert not reports.is_final(P0, D1)
    assert reports.answered(P0)
    assert reports.is_final(P0, D1)


def test_settling_ends_only_what_nothing_contradicts() -> None:
    """The metadata may agree for a moment only, if several directories were reported."""
    reports = reported(D1)
    reports.settled(P0)
    reports.sent(P0, D2)
    assert reports.is_final(P0, D2), "the first report is over"
    reports = reported(D1, D2)
    reports.settled(P0)
    assert not reports.is_final(P0, D2)


def test_a_replica_that_comes_back_starts_anew() -> None:
    """What was reported before the replica left does not count."""
    reports = reported(D1, D2)
    reports.left(P0)
    assert reports.is_final(P0, D1)
