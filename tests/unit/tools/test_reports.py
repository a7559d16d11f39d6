"""The human-readable tables that `diskraft reports` prints."""

from typing import Any

import pytest

from tools.reports import print_failures


def failure(*partitions: tuple[str, int], source: str = "segment") -> dict[str, Any]:
    return {
        "directory_id": "D" * 22,
        "broker_id": 1,
        "time": "2026-01-02T03:04:05.678Z",
        "source": source,
        "leaders_moved": 0,
        "leaderless": 0,
        "last_change_ms": 7 if partitions else None,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in partitions],
    }


def test_failures_are_one_row_each(capsys: pytest.CaptureFixture[str]) -> None:
    """A row shows the full ids, and for each topic the partitions as ranges. A failure known only from a snapshot shows
    "before"."""
    moved = failure(("b", 5), ("a", 1), ("a", 0), ("a", 2), ("a", 9))
    print_failures([moved, failure(source="snapshot")])
    words = capsys.readouterr().out.split()
    assert words.count("D" * 22) == 2
    assert {"5:", "0-2,9", "5", "7", "before"} <= set(words)


def test_a_long_list_of_partitions_leaves_the_other_rows_short(capsys: pytest.CaptureFixture[str]) -> None:
    """Only its own row is wrapped by a terminal."""
    print_failures([failure(*(("a", 2 * number) for number in range(200))), failure()])
    _, header, long, short = capsys.readouterr().out.splitlines()
    assert len(header) < 125 < len(long)
    assert len(short) < 125


def test_no_failure_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints a sentence instead of an empty table. If programs read stdout, it goes to stderr."""
    print_failures([], to_stderr=True)
    captured = capsys.readouterr()
    assert (captured.out, captured.err.strip()) == ("", "no directory has failed")
