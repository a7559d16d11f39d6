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
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

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
    cleaned = [base for name in names if (base := _base_offset(name, CLEANED_SUFFIX)) is not None]
    swaps = sorted(base for name in names if (base := _base_offset(name, SWAP_SUFFIX)) is not None)
    leftovers = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    # Kafka splits a segment that has grown too large into several, and renames the last one first. If one of them is not
    # renamed yet, the old segment is still there.
    leftovers += [segment_file(base) + SWAP_SUFFIX for base in swaps if cleaned and base > min(cleaned)]
    swaps = [base for base in swaps if segment_file(base) + SWAP_SUFFIX not in leftovers]
    new_files = {segment_file(base) + SWAP_SUFFIX for base in swaps} | {*_swapped_indexes(names, swaps)}
    leftovers += [name for name in names if name.endswith(SWAP_SUFFIX) and name not in new_files]
    new_indexes = {
        base: name
        for base in swaps
        for suffix in (CLEANED_SUFFIX, SWAP_SUFFIX)
        if (name := segment_file(base, TRANSACTION_INDEX_SUFFIX) + suffix) in names
    }
    for name in leftovers:
        if name not in new_indexes.values():
            await log_dir.remove(f"{folder}/{name}")
    bases = [parsed[0] for name in names if (parsed := parse_segment_file(name)) and parsed[1] == LOG_SUFFIX]
    for base in swaps:
        end_offset = await _end_offset(log_dir, f"{folder}/{segment_file(base)}{SWAP_SUFFIX}", base)
        for replaced in [base, *(each for each in bases if base < each < end_offset)]:
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                await log_dir.remove(f"{folder}/{segment_file(replaced, suffix)}")
            if replaced != base or base in new_indexes:
                await log_dir.remove(f"{folder}/{segment_file(replaced, TRANSACTION_INDEX_SUFFIX)}")
        await log_dir.fsync_dir(folder)
        if base in new_indexes:
            transactions = segment_file(base, TRANSACTION_INDEX_SUFFIX)
            await log_dir.rename(f"{folder}/{new_indexes[base]}", f"{folder}/{transactions}")
            await log_dir.fsync_dir(folder)
        await log_dir.rename(f"{folder}/{segment_file(base)}{SWAP_SUFFIX}", f"{folder}/{segment_file(base)}")
        await log_dir.fsync_dir(folder)
    for name in _swapped_indexes(names, swaps):
        await log_dir.rename(f"{folder}/{name}", f"{folder}/{name.removesuffix(SWAP_SUFFIX)}")
    return bool(swaps or leftovers or new_files)


def _swapped_indexes(names: Collection[str], swaps: Collection[int]) -> Iterator[str]:
    """Returns the index files that Kafka has written for compacted segments. It renames them after the segment. They show
    that the segment was complete (`common/storage/recovery.py`)."""
    for name in names:
        new_name = name.removesuffix(SWAP_SUFFIX)
        parsed = parse_segment_file(new_name)
        if new_name == name or parsed is None or parsed[1] not in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            continue
        if parsed[0] in swaps or (segment_file(parsed[0]) in names and new_name not in names):
            yield name


def _base_offset(name: str, suffix: str) -> int | None:
    parsed = parse_segment_file(name.removesuffix(suffix)) if name.endswith(suffix) else None
    return parsed[0] if parsed is not None and parsed[1] == LOG_SUFFIX else None


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
