"""The checkpoint text format: content as Kafka writes it, and one clear error for anything else."""

import random

import pytest

from common.storage.text_checkpoint import (
    MalformedCheckpoint,
    OffsetCheckpointContent,
    format_epoch_checkpoint,
    format_offset_checkpoint,
    parse_epoch_checkpoint,
)
from tests.offset_checkpoints import parse_offset_checkpoint


def test_offsets_are_written_as_kafka_does_and_sorted() -> None:
    offsets = {("b", 1): 5, ("a", 10): 2**62, ("a", 2): 0}
    assert format_offset_checkpoint(offsets) == b"0\n3\na 2 0\na 10 4611686018427387904\nb 1 5\n"
    assert parse_offset_checkpoint(format_offset_checkpoint(offsets)) == offsets
    assert parse_offset_checkpoint(b"0\n0\n") == {}


def test_a_content_that_is_changed_again_and_again_equals_one_that_is_made_at_once() -> None:
    rng = random.Random(1)
    content, offsets = OffsetCheckpointContent(), dict[tuple[str, int], int]()
    for _ in range(200):
        changes: dict[tuple[str, int], int | None] = {
            (rng.choice("abc"), rng.randrange(12)): rng.choice((None, rng.randrange(100))) for _ in range(rng.randrange(4))
        }
        content.change(changes)
        offsets = {key: offset for key, offset in {**offsets, **changes}.items() if offset is not None}
        assert content.encode() == format_offset_checkpoint(offsets)
        assert parse_offset_checkpoint(content.encode()) == offsets


def test_epochs_are_written_as_kafka_does() -> None:
    assert format_epoch_checkpoint([(0, 0), (3, 17)]) == b"0\n2\n0 0\n3 17\n"
    assert parse_epoch_checkpoint(b"0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"0\n", "begins with its version"),
        (b"1\n0\n", "version 1 is unknown"),
        (b"x\n0\n", "line 1: 'x' is not a number"),
        (b"0\n2\na 0 1\n", "2 entries are announced, 1 are there"),
        (b"0\n0\na 0 1\n", "0 entries are announced, 1 are there"),
        (b"0\n1\na 0\n", "line 3 has 2 fields, not 3"),
        (b"0\n1\na 0 -1\n", "line 3: '-1' is not a number"),
        (b"0\n1\na 0 1_0\n", "line 3: '1_0' is not a number"),
        (b"0\n1\na 0 99999999999999999999\n", "is not a number"),
        (b"0\n2\na 0 1\na 0 2\n", "line 4 names a-0 for the second time"),
        (b"\xff\xfe", "not UTF-8"),
        (b"\0" * 20, "begins with its version"),
    ],
)
def test_malformed_offsets_are_refused_as_a_whole(content: bytes, complaint: str) -> None:
    with pytest.raises(MalformedCheckpoint, match=complaint):
        parse_offset_checkpoint(content)


def test_an_empty_file_of_offsets_is_valid() -> None:
    """A broker of Apache Kafka has empty ones until it writes to them. A file of epochs that is empty is built again from
    the log."""
    assert parse_offset_checkpoint(b"") == {}
    with pytest.raises(MalformedCheckpoint):
        parse_epoch_checkpoint(b"")


@pytest.mark.parametrize("content", [b"0\n2\n3 0\n3 5\n", b"0\n2\n3 5\n4 4\n", b"0\n1\n3 0 1\n", b"0\n1\n"])
def test_epochs_that_do_not_ascend_are_malformed(content: bytes) -> None:
    with pytest.raises(MalformedCheckpoint):
        parse_epoch_checkpoint(content)
