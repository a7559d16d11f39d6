"""How many moves go into each directory, and what they still have to copy (shell).

Thousands of moves may be under way at once, and looking at the logs of all of them takes tens of milliseconds. So what each
has to copy is remembered. A move is measured when it begins and after each chunk. The logs of those that wait for a turn
grow meanwhile, so the metrics measure some again each time, beginning with those that were measured longest ago.
"""

from collections import Counter
from itertools import islice

from broker.hosting.partition import Partition
from common.ids import DirectoryId

_MEASURED_AT_ONCE = 500


class MoveTotals:
    """See the module docstring. Each partition moves into one directory at most."""

    def __init__(self) -> None:
        # The target of each moving partition, and what it had to copy when it was last measured. Those that were measured
        # longest ago come first.
        self._measured: dict[Partition, tuple[DirectoryId, int]] = {}
        # The sums of the above by directory.
        self._counts: Counter[DirectoryId] = Counter()
        self._bytes_to_go: Counter[DirectoryId] = Counter()

    def add(self, partition: Partition, directory_id: DirectoryId) -> None:
        """A move has begun."""
        self._measured[partition] = directory_id, (bytes_to_go := _bytes_to_go(partition))
        self._counts[directory_id] += 1
        self._bytes_to_go[directory_id] += bytes_to_go

    def remove(self, partition: Partition) -> None:
        """The move has ended."""
        directory_id, bytes_to_go = self._measured.pop(partition)
        self._counts[directory_id] -= 1
        self._bytes_to_go[directory_id] -= bytes_to_go

    def measure(self, partition: Partition) -> None:
        """The copy or the current log may have another size. Does nothing if the move has ended."""
        if partition in self._measured:
            directory_id, _ = self._measured[partition]
            self.remove(partition)
            self.add(partition, directory_id)

    def measure_some(self) -> None:
        """Measures those again that were measured longest ago."""
        for partition in [*islice(self._measured, _MEASURED_AT_ONCE)]:
            self.measure(partition)

    def count_into(self, directory_id: DirectoryId) -> int:
        """Returns the number of moves into this directory."""
        return self._counts[directory_id]

    def bytes_into(self, directory_id: DirectoryId) -> int:
        """Returns how many bytes the moves into this directory still have to copy, judging by the sizes of the logs."""
        return self._bytes_to_go[directory_id]


def _bytes_to_go(partition: Partition) -> int:
    return max(partition.log.size_bytes - (0 if partition.future is None else partition.future.log.size_bytes), 0)
