"""`partition.metadata` in each partition's folder: which topic id the log belongs to (shell).

Answers to Kafka's PartitionMetadataFile (KIP-516). A topic deleted and created again under its name has another id, and a
folder with the old id must never serve it. Easy to get wrong: a folder without the file, or with one that cannot be read,
is no error of the directory; it holds a stray log that nobody may serve or delete by itself.
"""

from collections.abc import Awaitable

from common.environment.interface import LogDir
from common.ids import ZERO_UUID, TopicId, uuid_from_text, uuid_text
from common.storage.names import PARTITION_METADATA_FILE

VERSION = 0


class MalformedPartitionMetadata(Exception):
    """The content names no topic id; the text says why."""


def format_partition_metadata(topic_id: TopicId) -> bytes:
    """The file's content."""
    return f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()


def parse_partition_metadata(content: bytes) -> TopicId:
    """Raises MalformedPartitionMetadata."""
    fields: dict[str, str] = {}
    for line in content.decode("utf-8", errors="replace").splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    if fields.get("version") != str(VERSION):
        raise MalformedPartitionMetadata(f"version '{fields.get('version', '')}' is unknown, only {VERSION} is")
    try:
        topic_id = TopicId(uuid_from_text(fields.get("topic_id", "")))
    except ValueError as error:
        raise MalformedPartitionMetadata(f"topic_id: {error}") from error
    if topic_id == ZERO_UUID:
        raise MalformedPartitionMetadata("topic_id is zero")
    return topic_id


async def load_partition_metadata(log_dir: LogDir, folder: str) -> TopicId | None:
    """The topic id of the log in `folder`; None when the file is missing. Raises MalformedPartitionMetadata."""
    name = f"{folder}/{PARTITION_METADATA_FILE}"
    content = await log_dir.read_file(name)
    if content is None:
        return None
    try:
        return parse_partition_metadata(content)
    except MalformedPartitionMetadata as error:
        raise MalformedPartitionMetadata(f"{log_dir.path}/{name}: {error}") from error


def store_partition_metadata(log_dir: LogDir, folder: str, topic_id: TopicId) -> Awaitable[None]:
    """Durable when it completes."""
    return log_dir.replace_file(f"{folder}/{PARTITION_METADATA_FILE}", format_partition_metadata(topic_id))
