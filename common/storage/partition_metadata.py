"""`partition.metadata` in each partition's folder, which holds the topic id of the log (shell).

Counterpart of Kafka's PartitionMetadataFile (KIP-516). A topic that is deleted and created again under the same name gets a
new id, and a folder with the old id must never serve the new topic. A missing or malformed file is not an error of the
directory. Its folder holds a stray log, which the broker neither serves nor deletes on its own.
"""

from common.environment.interface import LogDir
from common.ids import ZERO_UUID, TopicId, uuid_from_text, uuid_text
from common.storage.names import PARTITION_METADATA_FILE

VERSION = 0


class MalformedPartitionMetadata(Exception):
    """The content has no valid topic id; the text says why."""


def format_partition_metadata(topic_id: TopicId) -> bytes:
    """Returns the content of the file."""
    return f"version: {VERSION}\ntopic_id: {uuid_text(topic_id)}".encode()


def parse_partition_metadata(content: bytes) -> TopicId:
    """Parses the content of the file. Raises MalformedPartitionMetadata."""
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
    """Returns the topic id of the log in `folder`, None if the file is missing.

    Raises MalformedPartitionMetadata and LogDirError.
    """
    name = f"{folder}/{PARTITION_METADATA_FILE}"
    content = await log_dir.read_file(name)
    if content is None:
        return None
    try:
        return parse_partition_metadata(content)
    except MalformedPartitionMetadata as error:
        raise MalformedPartitionMetadata(f"{log_dir.path}/{name}: {error}") from error
