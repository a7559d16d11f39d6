"""Puts a compacted segment into the place of the segments that it was made of, and completes that after a crash (shell).

The file names are Kafka's, and so is what a start makes of them:

    X.log.cleaned        being written; a start removes it, and a start of Kafka every .swap file of X or a later segment
    X.txnindex.swap      the aborted transactions that are left; without X.log.swap, a start removes it
    X.log.swap           complete and synced; a start removes the segments that it replaces, and renames it to X.log
    Y.log.deleted        replaced; removed after file.delete.delay.ms, or by a start

1. The rename to .swap is durable before anything of the old segments goes. Until then a crash leaves the old segments, from
   then on the new one.
2. The old names are durably gone before the rename to X.log. Otherwise a power cut could leave X.log next to an old segment
   with the same offsets, or the old index of X next to the new X.log.
3. A compacted segment keeps its last batch, empty if need be. So it ends where the next segment starts, also when only the
   file is left to tell: after a crash, a gap between two segments means lost records.
4. If one of the old segments has a transaction index, the new one gets one as well, even an empty one, before rule 1's
   rename; and its own rename is durable before X.log.swap loses its name. So a start that finds X.log.swap without
   X.txnindex.swap knows that X.txnindex belongs to it. A stale entry would be as bad as a missing one: if its marker is
   gone, readers would skip the producer's next transaction.
5. A swap is Kafka's if X.index or X.timeindex is part of it. Kafka renames X.log first and then the indexes, so X.log.swap
   is not ready while one of them still has the suffix .cleaned. Nothing of the old segments has gone by then.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from common.environment.interface import LogDir
from common.records.batch import BatchError
from common.storage.batch_scan import HeaderScan
from common.storage.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file,
    segment_file,
)
from common.storage.outstanding import Steps
from common.storage.segment import Segment, SegmentFile

_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
_SEGMENT_SUFFIXES = (LOG_SUFFIX, *_INDEX_SUFFIXES, TRANSACTION_INDEX_SUFFIX)


async def open_cleaned(log_dir: LogDir, folder: str, base_offset: int) -> Segment:
    """Creates the file of a segment that compaction is about to write. Raises LogDirError."""
    segment = Segment(log_dir, folder, base_offset)
    path = segment.cleaned_path(folder)
    # An attempt that failed may have left its file.
    await log_dir.remove(path)
    segment.file = SegmentFile(log_dir, await log_dir.open(path, create=True))
    return segment


def swap_steps(cleaned: Segment, replaced: Sequence[Segment]) -> Steps:
    """Renames the files. Afterwards the new segment is like any other that was rolled. The log removes the old files."""
    log_dir, folder = cleaned.log_dir, cleaned.folder
    swap = cleaned.path() + SWAP_SUFFIX
    transactions = cleaned.path(TRANSACTION_INDEX_SUFFIX)
    assert cleaned.transactions is not None
    cleaned.has_transaction_file = cleaned.aborted is not None or any(each.has_transaction_file for each in replaced)
    if cleaned.has_transaction_file:
        # With the suffix .cleaned, a broker of Kafka that takes over would remove X.log.swap.
        yield log_dir.replace_file(transactions + SWAP_SUFFIX, cleaned.transactions.to_bytes())
    yield log_dir.rename(cleaned.cleaned_path(folder), swap)
    yield log_dir.fsync_dir(folder)
    for segment in replaced:
        yield from segment.removal_steps()
    yield log_dir.fsync_dir(folder)
    if cleaned.has_transaction_file:
        yield log_dir.rename(transactions + SWAP_SUFFIX, transactions)
        yield log_dir.fsync_dir(folder)
    yield log_dir.rename(swap, cleaned.path())
    yield log_dir.fsync_dir(folder)
    yield from cleaned.index_file_steps()
    cleaned.undone -= 1
    cleaned.forget_indexes()


async def finish_swaps(log_dir: LogDir, folder: str, names: Iterable[str]) -> bool:
    """Completes the swaps that an earlier run began, and removes what it wrote for swaps that had not begun. Returns whether
    it changed anything. Raises LogDirError."""
    names = [*names]
    begun = _begun_swaps(names)
    await _remove_leftovers(log_dir, folder, names, begun)
    for base in begun.bases:
        await _remove_replaced(log_dir, folder, names, begun, base)
        if base in begun.with_transactions:
            await _take_name(log_dir, folder, segment_file(base, TRANSACTION_INDEX_SUFFIX))
        await _take_name(log_dir, folder, segment_file(base))
    for name in begun.swapped_indexes:
        await log_dir.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP_SUFFIX)}")
    return any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names)


@dataclass(frozen=True, slots=True)
class _BegunSwaps:
    """The swaps whose X.log.swap is ready, by the base offsets of the new segments."""

    bases: Sequence[int]
    with_transactions: Collection[int]
    """Those with X.txnindex.swap."""
    by_kafka: Collection[int]
    """The segments of which Kafka has written an index (rule 5), ready or not."""
    swapped_indexes: Sequence[str]

    def files(self) -> set[str]:
        """Returns the names of the new files."""
        return {
            *(segment_file(base) + SWAP_SUFFIX for base in self.bases),
            *(segment_file(base, TRANSACTION_INDEX_SUFFIX) + SWAP_SUFFIX for base in self.with_transactions),
            *self.swapped_indexes,
        }


def _begun_swaps(names: Collection[str]) -> _BegunSwaps:
    cleaned = _bases(names, CLEANED_SUFFIX, *_SEGMENT_SUFFIXES)
    by_kafka = {base for suffix in (CLEANED_SUFFIX, SWAP_SUFFIX) for base in _bases(names, suffix, *_INDEX_SUFFIXES)}
    # Rule 5. If Kafka splits a segment that has grown too large, it renames the files of the last new segment first. So a
    # .cleaned file of an earlier one shows as well that the old segment is still there.
    bases = [
        base for base in _bases(names, SWAP_SUFFIX, LOG_SUFFIX) if not (base in by_kafka and cleaned and base >= cleaned[0])
    ]
    with_transactions = {base for base in _bases(names, SWAP_SUFFIX, TRANSACTION_INDEX_SUFFIX) if base in bases}
    return _BegunSwaps(bases, with_transactions, by_kafka, [*_swapped_indexes(names, bases)])


async def _remove_leftovers(log_dir: LogDir, folder: str, names: Iterable[str], begun: _BegunSwaps) -> None:
    new_files = begun.files()
    # The .cleaned files go last: without them, the next start would complete the swap.
    for suffix in (SWAP_SUFFIX, CLEANED_SUFFIX):
        leftovers = [name for name in names if name.endswith(suffix) and name not in new_files]
        for name in leftovers:
            await log_dir.remove(f"{folder}/{name}")
        if leftovers:
            await log_dir.fsync_dir(folder)


async def _remove_replaced(log_dir: LogDir, folder: str, names: Iterable[str], begun: _BegunSwaps, base: int) -> None:
    """Removes the segments whose place the new segment takes (rule 2)."""
    bases = [parsed[0] for name in names if (parsed := parse_segment_file(name)) and parsed[1] == LOG_SUFFIX]
    end_offset = await _end_offset(log_dir, f"{folder}/{segment_file(base)}{SWAP_SUFFIX}", base)
    for replaced in [base, *(each for each in bases if base < each < end_offset)]:
        for suffix in (LOG_SUFFIX, *_INDEX_SUFFIXES):
            await log_dir.remove(f"{folder}/{segment_file(replaced, suffix)}")
        # Rule 4 holds for our segments. Kafka writes no transaction index for a segment without aborted transactions. If an
        # earlier start crashed here, the new index may already have its name. Removing it does no harm: a compacted segment
        # has no aborted records.
        if replaced != base or base in begun.with_transactions or base in begun.by_kafka:
            await log_dir.remove(f"{folder}/{segment_file(replaced, TRANSACTION_INDEX_SUFFIX)}")
    await log_dir.fsync_dir(folder)


async def _take_name(log_dir: LogDir, folder: str, name: str) -> None:
    await log_dir.rename(f"{folder}/{name}{SWAP_SUFFIX}", f"{folder}/{name}")
    await log_dir.fsync_dir(folder)


def _swapped_indexes(names: Collection[str], swaps: Collection[int]) -> Iterator[str]:
    """Returns the index files that Kafka has written for compacted segments. It renames them after the segment. They show
    that the segment was complete (`common/storage/recovery.py`)."""
    for suffix in _INDEX_SUFFIXES:
        for base in _bases(names, SWAP_SUFFIX, suffix):
            if base in swaps or (segment_file(base) in names and segment_file(base, suffix) not in names):
                yield segment_file(base, suffix) + SWAP_SUFFIX


def _bases(names: Iterable[str], ending: str, *suffixes: str) -> list[int]:
    """Returns the base offsets of the files with one of these suffixes and this ending, ascending."""
    parsed = (parse_segment_file(name.removesuffix(ending)) for name in names if name.endswith(ending))
    return sorted({each[0] for each in parsed if each is not None and each[1] in suffixes})


async def _end_offset(log_dir: LogDir, path: str, base_offset: int) -> int:
    stat = await log_dir.stat(path)
    file = await log_dir.open(path)
    scan = HeaderScan(log_dir, file, position=0, end=0 if stat is None else stat.size)
    end_offset = base_offset + 1
    try:
        while (found := await scan.next()) is not None:
            end_offset = found[0].next_offset
    except BatchError:
        # The file was synced before it got this name, so the disk has damaged it since. Only what its intact part replaces
        # may be removed.
        pass
    finally:
        log_dir.close_file(file)
    return end_offset
