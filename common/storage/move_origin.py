"""`moved-from` in the folder of a copy that is about to become the current log of its replica (shell).

It names the directory that the replica moves from, and goes once the move has ended. Apache Kafka ignores it. If the target
fails right after the copy has got the partition's name there, the move is undone, and the old log takes records that the
copy lacks. A start that finds only the copy knows by this file that it may be outdated.
"""

from common.environment.interface import LogDir
from common.ids import DirectoryId, uuid_from_text, uuid_text
from common.storage.names import MOVE_ORIGIN_FILE


async def store_move_origin(log_dir: LogDir, folder: str, directory_id: DirectoryId) -> None:
    """Durably notes which directory the log in `folder` comes from. Raises LogDirError."""
    await log_dir.replace_file(f"{folder}/{MOVE_ORIGIN_FILE}", uuid_text(directory_id).encode())


async def load_move_origin(log_dir: LogDir, folder: str) -> DirectoryId | None:
    """Returns the directory that the log in `folder` was moving from, None if there is no such file or it is damaged. Raises
    LogDirError."""
    content = await log_dir.read_file(f"{folder}/{MOVE_ORIGIN_FILE}")
    if content is None:
        return None
    try:
        return DirectoryId(uuid_from_text(content.decode("ascii", errors="replace")))
    except ValueError:
        return None


async def remove_move_origin(log_dir: LogDir, folder: str) -> None:
    """Removes the file if there is one. Raises LogDirError."""
    await log_dir.remove(f"{folder}/{MOVE_ORIGIN_FILE}")
