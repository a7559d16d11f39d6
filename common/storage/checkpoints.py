"""Reads and writes the offset checkpoint files of a log directory (shell).

Counterpart of Kafka's OffsetCheckpointFile: recovery-point-offset-checkpoint, replication-offset-checkpoint (high
watermarks), log-start-offset-checkpoint and cleaner-offset-checkpoint (first dirty offsets), with one line per partition.
One file holds all partitions of the directory, so storing always writes all of them. What a store costs the event loop grows
only with the entries that change (`OffsetCheckpointFile`). A missing file means that nothing is known; it is not an error.
"""

from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial

from common.environment.interface import LogDir
from common.slices import ELEMENTS_PER_SLICE, result_in_slices
from common.storage.text_checkpoint import (
    MalformedCheckpoint,
    OffsetCheckpointContent,
    TopicPartition,
    format_offset_checkpoint,
    offset_checkpoint_parsing,
)


async def load_offset_checkpoint(log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
    """Returns the offsets, empty if the file is missing. Raises LogDirError or MalformedCheckpoint, which names the file."""
    content = await log_dir.read_file(name)
    if content is None:
        return {}
    offsets: dict[TopicPartition, int] = {}
    try:
        await result_in_slices(offset_checkpoint_parsing(content, offsets), items=ELEMENTS_PER_SLICE)
    except MalformedCheckpoint as error:
        raise MalformedCheckpoint(f"{log_dir.path}/{name}: {error}") from error
    return offsets


def store_offset_checkpoint(log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, int]) -> Awaitable[None]:
    """Replaces the whole file. The new content is durable when the returned awaitable completes."""
    return log_dir.replace_file(name, format_offset_checkpoint(offsets))


class OffsetCheckpointFile:
    """One file of a directory, which is stored again and again. Set the entries that change, then `store` them.

    The event loop keeps the offsets. The directory's thread keeps the lines of the file, and takes over the changes of each
    store when it writes. So the loop copies and formats nothing that stayed the same.
    """

    def __init__(self, log_dir: LogDir, name: str) -> None:
        self._log_dir = log_dir
        self._name = name
        # What the file holds once everything that was set is stored.
        self._offsets: dict[TopicPartition, int] = {}
        # What was set since the newest store began.
        self._changed: dict[TopicPartition, int | None] = {}
        # Stores are numbered from 1: the newest that has begun, and the newest that has succeeded.
        self._begun = self._succeeded = 0
        # The changes of each store that are not known to be in the file, by the number of the store, ascending. Every store
        # hands all of them to the thread: an earlier store may have failed before the thread took over its changes, and
        # taking them over twice does no harm. Invariant: the dictionaries do not change, because the thread reads them.
        self._unsettled: deque[tuple[int, Mapping[TopicPartition, int | None]]] = deque()
        # Owned by the thread that writes.
        self._content = OffsetCheckpointContent()

    def loaded(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Takes over what the file was found to hold. Call it before anything is set; `offsets` must not change any more."""
        assert not self._begun and not self._changed
        self._offsets = {**offsets}
        self._unsettled.append((0, offsets))

    @property
    def is_stored(self) -> bool:
        """Whether the file durably holds all that was set, and nothing else. False while a store is in flight, and after a
        failed one until another one succeeds."""
        return not self._changed and self._succeeded == self._begun

    def may_exceed(self, key: TopicPartition, offset: int) -> bool:
        """Whether the file may hold a higher offset than this one for the entry: it is set to one, or it was changed and the
        change is not known to be stored."""
        return self._offsets.get(key, -1) > offset or key in self._changed or any(key in each for _, each in self._unsettled)

    def set(self, key: TopicPartition, offset: int | None) -> None:
        """Sets an entry, to be stored by the next `store`. None removes it."""
        if self._offsets.get(key) == offset:
            return
        self._changed[key] = offset
        if offset is None:
            del self._offsets[key]
        else:
            self._offsets[key] = offset

    async def store(self) -> None:
        """Durably stores what was set before the call. Raises LogDirError; the changes then come with the next store."""
        self._begun += 1
        number = self._begun
        self._unsettled.append((number, self._changed))
        self._changed = {}
        changes = [each for _, each in self._unsettled]
        await self._log_dir.replace_file(self._name, partial(_encode, self._content, changes))
        self._succeeded = max(self._succeeded, number)
        while self._unsettled and self._unsettled[0][0] <= number:
            self._unsettled.popleft()


def _encode(content: OffsetCheckpointContent, changes: Sequence[Mapping[TopicPartition, int | None]]) -> bytes:
    """Runs on the thread that writes, in the order of the stores."""
    for each in changes:
        content.change(each)
    return content.encode()
