"""The text format of Kafka's checkpoint files: version, number of entries, one entry per line (core).

Counterpart of Kafka's CheckpointFile with its two formatters: `topic partition offset` for the files of a log directory, and
`epoch start_offset` for a partition's leader epochs. A file that is cut short or has a line too many is rejected as a whole,
because losing a single recovery point or epoch unnoticed is worse than having none.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from common.storage.names import EPOCH_MAX, OFFSET_MAX, PARTITION_MAX

VERSION = 0

TopicPartition = tuple[str, int]


class MalformedCheckpoint(Exception):
    """The content is not a valid checkpoint of this kind; the text says what is wrong and usually names the line."""


class OffsetCheckpointContent:
    """The content of an offset checkpoint file that is stored again and again. It keeps the line of each entry, so that a
    change of a few entries formats only these."""

    def __init__(self) -> None:
        self._lines: dict[TopicPartition, bytes] = {}
        # Whether `_lines` is in the order of its keys.
        self._is_sorted = True

    def change(self, changes: Mapping[TopicPartition, int | None]) -> None:
        """Sets the offsets of these entries. None removes the entry."""
        for key, offset in changes.items():
            if offset is None:
                self._lines.pop(key, None)
                continue
            self._is_sorted = self._is_sorted and key in self._lines
            self._lines[key] = b"%s %d %d\n" % (key[0].encode(), key[1], offset)

    def encode(self) -> bytes:
        """Returns the content of the file. It is sorted by topic and partition, so equal offsets give equal bytes."""
        if not self._is_sorted:
            self._lines = {key: self._lines[key] for key in sorted(self._lines)}
            self._is_sorted = True
        return b"".join((b"%d\n%d\n" % (VERSION, len(self._lines)), *self._lines.values()))


def format_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Returns the content of the file with these entries."""
    content = OffsetCheckpointContent()
    content.change(offsets)
    return content.encode()


def offset_checkpoint_parsing(content: bytes, offsets: dict[TopicPartition, int]) -> Generator[None, None, None]:
    """Parses the content of an offset checkpoint file into `offsets`, and yields after each entry. Raises
    MalformedCheckpoint; then the entries so far must not be used."""
    if not content:
        # Apache Kafka creates the file empty, and writes to it when there is something to write.
        return
    for number, fields in _parse(content, fields_per_line=3):
        key = (fields[0], _number(fields[1], number, PARTITION_MAX))
        if key in offsets:
            raise MalformedCheckpoint(f"line {number} names {fields[0]}-{fields[1]} for the second time")
        offsets[key] = _number(fields[2], number, OFFSET_MAX)
        yield


def format_epoch_checkpoint(entries: Sequence[tuple[int, int]]) -> bytes:
    """Returns the content of the file. `entries` are (leader epoch, start offset), ascending."""
    return _format(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def parse_epoch_checkpoint(content: bytes) -> list[tuple[int, int]]:
    """Parses the content of the file. Raises MalformedCheckpoint, including when the entries do not ascend."""
    entries = [
        (_number(epoch, line, EPOCH_MAX), _number(start, line, OFFSET_MAX))
        for line, (epoch, start) in _parse(content, fields_per_line=2)
    ]
    for before, after in pairwise(entries):
        if after[0] <= before[0] or after[1] < before[1]:
            raise MalformedCheckpoint(f"epoch {after[0]} at {after[1]} follows epoch {before[0]} at {before[1]}")
    return entries


def _format(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "".join(f"{line}\n" for line in (str(VERSION), str(len(body)), *body)).encode()


def _parse(content: bytes, *, fields_per_line: int) -> Iterator[tuple[int, list[str]]]:
    """Yields the entries as (line number, fields)."""
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise MalformedCheckpoint("the content is not UTF-8") from None
    if len(lines) < 2:
        raise MalformedCheckpoint(f"{len(lines)} lines, a checkpoint begins with its version and its number of entries")
    if _number(lines[0], 1, OFFSET_MAX) != VERSION:
        raise MalformedCheckpoint(f"version {lines[0]} is unknown, only {VERSION} is")
    expected = _number(lines[1], 2, OFFSET_MAX)
    if expected != len(lines) - 2:
        raise MalformedCheckpoint(f"{expected} entries are announced, {len(lines) - 2} are there")
    for number, line in enumerate(lines[2:], start=3):
        fields = line.split()
        if len(fields) != fields_per_line:
            raise MalformedCheckpoint(f"line {number} has {len(fields)} fields, not {fields_per_line}")
        yield number, fields


def _number(text: str, line: int, at_most: int) -> int:
    # int() also accepts underscores, signs and the digits of other scripts. A checkpoint has none of these.
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise MalformedCheckpoint(f"line {line}: '{text[:40]}' is not a number")
    number = int(text)
    if number > at_most:
        # The protocol cannot carry such a number. If this check accepted it, a request would fail later, in the middle of
        # its work.
        raise MalformedCheckpoint(f"line {line}: {number} is greater than {at_most}")
    return number
