"""The producer ids that this broker may give out: the block in use, and the one after it (core).

Counterpart of Kafka's ProducerIdManager and ProducerIdsBlock. The controller gives each block to one broker only, and a
broker uses each id of a block at most once. Ids that are left when the broker ends are never used.
"""

# The next block is wanted once this part of the block in use is taken, so that producers do not have to wait for it.
_TAKEN_PERCENT_MAX = 90


class InvalidBlock(Exception):
    """The controller sent a block that cannot be right. The text says why."""


class ProducerIdBlocks:
    """Empty at first: no id can be taken before the first block."""

    def __init__(self) -> None:
        self._in_use = range(0)
        # How many ids of the block in use are taken.
        self._taken = 0
        self._next: range | None = None

    @property
    def wants_block(self) -> bool:
        """Whether the broker should ask for another block."""
        return self._next is None and self._taken * 100 >= len(self._in_use) * _TAKEN_PERCENT_MAX

    def take(self) -> int | None:
        """Takes the next id. Returns None if there is none until another block is added."""
        if self._taken == len(self._in_use) and self._next is not None:
            self._in_use, self._taken, self._next = self._next, 0, None
        if self._taken == len(self._in_use):
            return None
        self._taken += 1
        return self._in_use[self._taken - 1]

    def add(self, first: int, size: int) -> None:
        """Adds a block that the controller allocated. Raises InvalidBlock."""
        block = range(first, first + size)
        if first < 0 or size <= 0 or block[-1] >= 2**63:
            raise InvalidBlock(f"{size} ids from {first} are no block")
        if first < self._in_use.stop:
            raise InvalidBlock(f"the block from {first} begins below the end {self._in_use.stop} of the block in use")
        self._next = block
