"""The two numberings of the reserved directory ids, and the translation between them (core).

KIP-858 gives UNASSIGNED, LOST and MIGRATING the numbers 0, 1 and 2; Apache Kafka shipped MIGRATING 0, UNASSIGNED 1 and
LOST 2. In memory the KIP-858 numbers are the only ones; the codec translates fields of the type *assigned directory id*,
and nothing else, to the numbering of the cluster. A plain uuid is never translated, even if it looks reserved.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from common.ids import Uuid


class Numbering(Enum):
    KIP858 = "kip-858"
    APACHE = "apache"


def _reserved(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


# UNASSIGNED 0 -> 1, LOST 1 -> 2, MIGRATING 2 -> 0.
TO_APACHE: Mapping[Uuid, Uuid] = MappingProxyType(
    {_reserved(0): _reserved(1), _reserved(1): _reserved(2), _reserved(2): _reserved(0)}
)
FROM_APACHE: Mapping[Uuid, Uuid] = MappingProxyType({there: here for here, there in TO_APACHE.items()})
