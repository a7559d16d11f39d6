"""The offsets that open transactions have committed (KIP-98, KIP-447) (core).

Counterpart of the pendingTransactionalOffsets in Kafka's OffsetMetadataManager. They become the group's offsets when their
producer's transaction is committed, and are dropped when it is aborted.

The last record of a key in the log counts, provided that its transaction is committed; when its marker came does not matter.
So what is committed or deleted later than a pending offset, without a transaction or in one that ends first, replaces it.
Otherwise the state would depend on whether the log has been compacted.
"""

from collections.abc import Iterator, Set

from common.records.group_records import OffsetCommitKey, OffsetCommitValue

_Key = tuple[str, str, int]


class TransactionalOffsets:
    """The pending offsets by producer and by key."""

    def __init__(self) -> None:
        # For each producer id and key, the value and its place in the order of all records. Invariant: no dict is empty.
        self._by_producer: dict[int, dict[_Key, tuple[int, OffsetCommitValue]]] = {}
        # The producers with a pending offset of this key. Invariant: mirrors `_by_producer`; no set is empty.
        self._producers: dict[_Key, set[int]] = {}
        # How many pending offsets each group has. Invariant: mirrors `_by_producer`; no count is zero.
        self._counts: dict[str, int] = {}
        self._next_place = 0

    def __len__(self) -> int:
        return sum(self._counts.values())

    def has(self, group: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may yet change the offset."""
        return (group, topic, partition) in self._producers

    def has_group(self, group: str) -> bool:
        return group in self._counts

    def put(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """Adds the offset to the producer's open transaction."""
        place, self._next_place = self._next_place, self._next_place + 1
        flat = (key.group, key.topic, key.partition)
        offsets = self._by_producer.setdefault(producer_id, {})
        if flat not in offsets:
            self._counts[key.group] = self._counts.get(key.group, 0) + 1
            self._producers.setdefault(flat, set()).add(producer_id)
        offsets[flat] = (place, value)

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[OffsetCommitKey, OffsetCommitValue]]:
        """Ends the producer's transaction. Returns the offsets that it commits."""
        ended = dict(self._by_producer.get(producer_id, {}))
        for flat, (place, _) in ended.items():
            self._remove(producer_id, flat)
            if is_commit:
                self._replace(flat, before=place)
        if not is_commit:
            return []
        return [(_key(flat), value) for flat, (_, value) in ended.items()]

    def replaced(self, key: OffsetCommitKey) -> None:
        """Drops what is pending for this key: a record outside of any transaction has replaced it."""
        self._replace((key.group, key.topic, key.partition), before=self._next_place)

    def keys_of_group(self, group: str) -> list[OffsetCommitKey]:
        return [_key(flat) for flat in self._producers if flat[0] == group] if group in self._counts else []

    def keys_of_topics(self, names: Set[str]) -> Iterator[OffsetCommitKey]:
        return (_key(flat) for flat in self._producers if flat[1] in names)

    def _replace(self, flat: _Key, *, before: int) -> None:
        for producer_id in list(self._producers.get(flat, ())):
            if self._by_producer[producer_id][flat][0] < before:
                self._remove(producer_id, flat)

    def _remove(self, producer_id: int, flat: _Key) -> None:
        offsets, producers = self._by_producer[producer_id], self._producers[flat]
        del offsets[flat]
        producers.discard(producer_id)
        self._counts[flat[0]] -= 1
        if not offsets:
            del self._by_producer[producer_id]
        if not producers:
            del self._producers[flat]
        if not self._counts[flat[0]]:
            del self._counts[flat[0]]


def _key(flat: _Key) -> OffsetCommitKey:
    group, topic, partition = flat
    return OffsetCommitKey(group=group, topic=topic, partition=partition)
