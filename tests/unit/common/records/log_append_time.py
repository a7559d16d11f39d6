"""Makes batches with log append time. Our brokers never write them, but Apache Kafka may."""

import struct

from crc32c import crc32c

from common.records.batch import TIMESTAMP_TYPE_BIT

_CRC, _ATTRIBUTES, _MAX_TIMESTAMP = 17, 21, 35


def set_log_append_time(batch: bytearray, timestamp_ms: int) -> None:
    """Switches a batch to log append time and updates its checksum."""
    batch[_ATTRIBUTES + 1] |= TIMESTAMP_TYPE_BIT
    struct.pack_into(">q", batch, _MAX_TIMESTAMP, timestamp_ms)
    struct.pack_into(">I", batch, _CRC, crc32c(batch[_ATTRIBUTES:]))
