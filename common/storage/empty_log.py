"""Removes the folder of a log that holds no records (shell).

A creation that was interrupted leaves such a folder, with any part of its files. The broker and the metadata log remove it
and begin again.
"""

from collections.abc import Callable

from common.environment.interface import LogDir
from common.storage.names import LOG_SUFFIX, PARTITION_METADATA_FILE


async def remove_empty_log(log_dir: LogDir, folder: str) -> bool:
    """Removes a folder that holds nothing but an empty log, complete or half-created. No record is lost that way. If the
    folder holds anything else or does not exist, does nothing and returns False. Raises LogDirError."""
    if await log_dir.stat(folder) is None:
        return False
    for entry in await log_dir.list(folder):
        stat = await log_dir.stat(f"{folder}/{entry.name}")
        is_empty_segment = entry.name.endswith(LOG_SUFFIX) and stat is not None and not stat.is_directory and not stat.size
        if not is_empty_segment and not entry.name.startswith(PARTITION_METADATA_FILE):
            return False
    await remove_folder(log_dir, folder)
    return True


async def remove_folder(log_dir: LogDir, folder: str, *, is_due: Callable[[], bool] = lambda: True) -> bool:
    """Removes a folder with the files in it. Returns False, and removes nothing, if that `is_due` no more once the files are
    known: a slow disk may take its time to list them. Raises LogDirError."""
    if await log_dir.stat(folder) is None:
        return True
    entries = await log_dir.list(folder)
    if not is_due():
        return False
    # Remove the files one by one: one operation that removes a terabyte would exceed its deadline and hold up all appends.
    for entry in entries:
        await log_dir.remove(f"{folder}/{entry.name}")
    await log_dir.remove(folder)
    return True
