"""The reserved directory ids of KIP-858 (core).

Counterpart of Kafka's DirectoryId. In memory we always use the numbers of KIP-858. Apache Kafka uses different numbers for
the same three meanings, and only the codec translates between the two (`common.protocol.numbering`).

UNASSIGNED is all zeros, which is also the default of a plain uuid field. So these meanings apply only to fields of the type
*assigned directory id*.
"""

from typing import Final

from common.ids import DirectoryId, Uuid

# The replica is placed on the broker, but the broker has not yet reported which directory it chose.
UNASSIGNED: Final = DirectoryId(Uuid(bytes(16)))
# The replica's directory is permanently gone, and it does not matter which one it was.
LOST: Final = DirectoryId(Uuid(bytes(15) + b"\x01"))
# The replica was created before directory assignment existed. Its broker will report the directory.
MIGRATING: Final = DirectoryId(Uuid(bytes(15) + b"\x02"))

RESERVED_COUNT = 100
_RESERVED_PREFIX = bytes(15)


def is_reserved(directory_id: bytes) -> bool:
    """Whether this is one of the first hundred ids, which are reserved and never identify a real directory."""
    return directory_id[15] < RESERVED_COUNT and directory_id.startswith(_RESERVED_PREFIX)
