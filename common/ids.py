"""The identifiers that travel through the whole system, as types of their own (core).

A uuid is its 16 raw bytes everywhere inside the process and 22 characters of unpadded base64url for people and in
files, as Kafka's `Uuid` prints it. `DirectoryId` names a log directory and is never a path; `log_dir` is always a path.
"""

import base64
from typing import NewType

Uuid = NewType("Uuid", bytes)
DirectoryId = NewType("DirectoryId", Uuid)
TopicId = NewType("TopicId", Uuid)
IncarnationId = NewType("IncarnationId", Uuid)

BrokerId = NewType("BrokerId", int)
BrokerEpoch = NewType("BrokerEpoch", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionEpoch = NewType("PartitionEpoch", int)
Offset = NewType("Offset", int)

ZERO_UUID = Uuid(bytes(16))

# Kafka gives the metadata topic this fixed id, Uuid(0, 1).
METADATA_TOPIC_ID = TopicId(Uuid(bytes(15) + b"\x01"))
METADATA_TOPIC_NAME = "__cluster_metadata"

NO_LEADER = BrokerId(-1)


def uuid_text(uuid: bytes) -> str:
    """The 22 characters that Kafka prints for these 16 bytes."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The inverse of `uuid_text`; padding is allowed, as in Kafka. Raises ValueError for anything else."""
    try:
        # The decoder takes the characters of plain base64 as well, and two texts for one uuid must not be.
        if "+" in text or "/" in text:
            raise ValueError
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a base64url uuid") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} holds {len(raw)} bytes, a uuid has 16")
    return Uuid(raw)
