"""The transactions of one log that hold back the last stable offset (core, KIP-98).

Counterpart of `ongoingTxns` and `unreplicatedTxns` in Kafka's ProducerStateManager. A transaction is *open* from its first
batch to its marker. It is then *unreplicated* until the high watermark has passed the marker: until then the marker may be
truncated, so it must not take effect. A reader would see the transaction's end and then not; compaction would remove
records.

Nothing here grows with the number of producers or hosted partitions: each change and each question takes constant time on
average.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

# While a log is loaded, the high watermark is not known, and all its transactions count as unreplicated. With more than
# these, neighbours are counted together. The last stable offset then advances a little later.
UNREPLICATED_MAX: Final = 4096


class CompletedTransaction(NamedTuple):
    """A transaction with data in this log. `last_offset` is that of its marker. `last_stable_offset` is where the first
    transaction began that was open then, or the offset after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
    is_commit: bool


class Transactions:
    """See the module docstring."""

    __slots__ = ("_open", "_unreplicated", "first_unstable_offset")

    def __init__(self, first_offsets: Iterable[int] = ()) -> None:
        """`first_offsets` are those of the open transactions."""
        # The first offsets of the open transactions, ascending, because a transaction begins at the log end. An OrderedDict
        # finds its first key in constant time even after many deletions at its front; a dict does not.
        self._open: OrderedDict[int, None] = OrderedDict.fromkeys(sorted(first_offsets))
        # (last offset, first offset) of unreplicated transactions. Both ascend: a transaction is left out if a later marker
        # belongs to a transaction that began before it, because then it is never the one that holds back the offset.
        self._unreplicated: deque[tuple[int, int]] = deque()
        # Where the first transaction begins that is open or unreplicated; None if there is none. Kept, because each fetch
        # asks for it several times.
        self.first_unstable_offset: int | None = None
        self._look()

    def copy(self) -> "Transactions":
        """Returns a copy that shares nothing with this object."""
        copied = Transactions()
        copied._open = self._open.copy()
        copied._unreplicated = self._unreplicated.copy()
        copied.first_unstable_offset = self.first_unstable_offset
        return copied

    def _look(self) -> None:
        """Notes which transaction is the first one now."""
        first = next(iter(self._open), None)
        if self._unreplicated:
            first_unreplicated = self._unreplicated[0][1]
            first = first_unreplicated if first is None else min(first, first_unreplicated)
        self.first_unstable_offset = first

    def begin(self, first_offset: int) -> None:
        """Opens a transaction, at the log end."""
        assert not self._open or next(reversed(self._open)) < first_offset
        self._open[first_offset] = None
        self._look()

    def end(self, first_offset: int, last_offset: int) -> int:
        """Ends an open transaction whose marker is at `last_offset`, the log end. The transaction is unreplicated then.
        Returns the last stable offset as of the marker."""
        del self._open[first_offset]
        while self._unreplicated and self._unreplicated[-1][1] >= first_offset:
            self._unreplicated.pop()
        self._unreplicated.append((last_offset, first_offset))
        if len(self._unreplicated) > UNREPLICATED_MAX:
            entries = [*self._unreplicated]
            pairs = zip(entries[::2], [*entries[1::2], entries[-1]], strict=False)
            self._unreplicated = deque((later[0], earlier[1]) for earlier, later in pairs)
        self._look()
        return next(iter(self._open), last_offset + 1)

    def replicated_up_to(self, high_watermark: int) -> None:
        """Releases the transactions whose markers are below the high watermark."""
        if self._unreplicated and self._unreplicated[0][0] < high_watermark:
            while self._unreplicated and self._unreplicated[0][0] < high_watermark:
                self._unreplicated.popleft()
            self._look()
