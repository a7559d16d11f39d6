"""The two numberings of the reserved directory ids, and the translation between them (core).

In KIP-858, UNASSIGNED is 0, LOST is 1 and MIGRATING is 2. In Apache Kafka as released, MIGRATING is 0, UNASSIGNED is 1 and
LOST is 2. In memory we only use the KIP-858 numbers. The codec translates fields of the type *assigned directory id* to the
cluster's numbering. It never translates a plain uuid, even one that looks reserved.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType

from common.ids import Uuid


class Numbering(Enum):
    KIP858 = "kip-858"
    APACHE = "apache"


# Returns the numbering of the cluster as this node knows it now: that of the metadata log read so far.
NumberingSource = Callable[[], Numbering]


def kip858_numbering() -> Numbering:
    """The source for connections whose messages hold no assigned directory ids."""
    return Numbering.KIP858


def _reserved(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


# From KIP-858's number to Apache Kafka's: UNASSIGNED 0 -> 1, LOST 1 -> 2, MIGRATING 2 -> 0.
TO_APACHE: Mapping[Uuid, Uuid] = MappingProxyType(
    {_reserved(0): _reserved(1), _reserved(1): _reserved(2), _reserved(2): _reserved(0)}
)
FROM_APACHE: Mapping[Uuid, Uuid] = MappingProxyType({there: here for here, there in TO_APACHE.items()})
