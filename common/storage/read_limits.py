"""What a read of a log may return (core)."""

from typing import NamedTuple

from common.ids import Offset

NO_UPPER_OFFSET = Offset(2**63 - 1)


class ReadLimits(NamedTuple):
    """At most `max_bytes` of whole batches that end below `upper_offset`.

    With `min_one_batch` the first batch is returned even if it exceeds `max_bytes`. With `skips_empty` the read goes on
    where all that it finds is batches without records. Compaction leaves one at the end of a segment and one for each
    producer, and some clients give up after several responses with nothing else.
    """

    max_bytes: int
    upper_offset: int = NO_UPPER_OFFSET
    min_one_batch: bool = True
    skips_empty: bool = False
