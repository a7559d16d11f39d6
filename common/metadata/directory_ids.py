"""The reserved directory ids of KIP-858 and what sets them apart (core).

Answers to Kafka's DirectoryId. In memory these are always KIP-858's numbers; Apache Kafka gives other numbers to the same
three meanings, and the codec alone translates between the two (`common.protocol.numbering`).

Easy to get wrong: UNASSIGNED is all zeros, which is also what a plain uuid field holds when it was never set. Only the
fields of the type *assigned directory id* may be read with these meanings.
"""

from typing import Final

from common.ids import DirectoryId, Uuid

# The replica is placed on the broker, which has not said yet in which directory it put it.
UNASSIGNED: Final = DirectoryId(Uuid(bytes(16)))
# The replica's directory is gone for good and nobody knows, or needs to know, which one it was.
LOST: Final = DirectoryId(Uuid(bytes(15) + b"\x01"))
# The replica is older than directory assignment; its broker will say where it is.
MIGRATING: Final = DirectoryId(Uuid(bytes(15) + b"\x02"))

RESERVED_COUNT = 100
_RESERVED_PREFIX = bytes(15)


def is_reserved(directory_id: bytes) -> bool:
    """Whether this is one of the first hundred ids, which no directory may ever have."""
    return directory_id[15] < RESERVED_COUNT and directory_id.startswith(_RESERVED_PREFIX)
