"""Which partition of `__consumer_offsets` a group belongs to, and which of `__transaction_state` a transactional id (core).

Counterpart of partitionFor in Kafka's GroupCoordinatorService and TransactionStateManager. Every broker, and every tool that
reads the topics, computes the same partition from the id, so the hash is that of Java's String.
"""

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
_INT_MIN = -(2**31)


def group_partition(group_id: str, partitions: int) -> int:
    """Returns the index of the id's partition among `partitions`, of which there is at least one."""
    hashed = java_string_hash(group_id)
    # Java has no positive counterpart of the smallest integer, and Kafka takes 0 in its place.
    return (0 if hashed == _INT_MIN else abs(hashed)) % partitions


def java_string_hash(text: str) -> int:
    """Returns Java's String.hashCode, which is computed over UTF-16 units with overflow."""
    hashed = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(encoded), 2):
        hashed = (31 * hashed + (encoded[position] << 8) + encoded[position + 1]) & 0xFFFFFFFF
    return hashed - 2**32 if hashed >= 2**31 else hashed
