"""The identifiers used throughout the system, each with its own type (core).

A uuid is 16 raw bytes in memory. For people and in files it is 22 characters of unpadded base64url, as Kafka's `Uuid` prints
it. `DirectoryId` identifies a log directory by its uuid; it is never a path.
"""

import base64
from typing import NamedTuple, NewType

Uuid = NewType("Uuid", bytes)
DirectoryId = NewType("DirectoryId", Uuid)
TopicId = NewType("TopicId", Uuid)
IncarnationId = NewType("IncarnationId", Uuid)

BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionEpoch = NewType("PartitionEpoch", int)
Offset = NewType("Offset", int)


class TopicIdPartition(NamedTuple):
    """Identifies a partition throughout the system: the topic's id and the partition's number."""

    topic_id: TopicId
    partition: int


ZERO_UUID = Uuid(bytes(16))

# The metadata topic's id, fixed by Kafka: Uuid(0, 1).
METADATA_TOPIC_ID = TopicId(Uuid(bytes(15) + b"\x01"))
METADATA_TOPIC_NAME = "__cluster_metadata"

NO_LEADER = BrokerId(-1)


def uuid_text(uuid: bytes) -> str:
    """Returns the 22 characters that Kafka prints for these 16 bytes."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """Parses the output of `uuid_text`, with or without padding, as Kafka does. Raises ValueError for any other text."""
    try:
        # The decoder also accepts the '+' and '/' of plain base64, which would give one uuid two spellings.
        if "+" in text or "/" in text:
            raise ValueError
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a base64url uuid") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} holds {len(raw)} bytes, a uuid has 16")
    return Uuid(raw)
