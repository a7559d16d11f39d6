"""Parses offset checkpoint files, for the tests. Nodes do it in slices."""

from common.storage.text_checkpoint import TopicPartition, offset_checkpoint_parsing


def parse_offset_checkpoint(content: bytes) -> dict[TopicPartition, int]:
    """Returns the entries of the file. Raises MalformedCheckpoint."""
    offsets: dict[TopicPartition, int] = {}
    for _ in offset_checkpoint_parsing(content, offsets):
        pass
    return offsets
