"""The ways a disk of the lab can die, hang, fill up or vanish, one function each (shell).

`HOWS` lists what `diskraft disks kill --how …` offers; tests call the functions. Only a faulty disk (`diskraft disks make
--faulty`) can have blocks that fail or hang. A thread hung in a frozen file system cannot be killed by a signal, so every
freeze or hang ends on its own, even if the process that caused it was killed.
"""

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.errors import ToolError
from tools.lab import faulty_image
from tools.lab.disk_lab import explained, kill_disk, mounted_disk, program, put_empty_image, run, thaw

SECONDS: Final = 30.0
"""How long a hang lasts unless the disk is healed earlier."""
FILLER: Final = ".filler"
SLOW_MS: Final = 50.0
# The time may be over before the disk is frozen, so a thaw that fails is repeated. The pid file goes with its process:
# `thaw` kills whatever has that pid.
THAW: Final = 'sleep "$2"; for _ in 1 2 3 4 5 6 7 8 9 10; do "$0" -u "$1" && break; sleep 0.5; done; rm -f "$3"'


def cut_power(path: Path) -> None:
    """Every operation fails with EIO; unsynced data is lost."""
    kill_disk(path)


def shut_down_flushing(path: Path) -> None:
    """Every operation fails with EIO; everything written before is on the disk."""
    kill_disk(path, flag=0)


def shut_down_flushing_journal(path: Path) -> None:
    """Every operation fails with EIO; the journal is on the disk, unsynced data is not."""
    kill_disk(path, flag=1)


def make_read_only(path: Path) -> None:
    """Makes ext4 detect an error and refuse every change with EROFS; reads still work. Raises ToolError."""
    disk = mounted_disk(path)
    device, kind = disk.mounts[-1]
    if kind != "ext4":
        raise ToolError(f"{path} is {kind}; only ext4 can be made to detect an error")
    with explained(path):
        run("mount", "-o", "remount,errors=remount-ro", str(path))
        Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("1")


def fill(path: Path) -> None:
    """Uses up all blocks (ENOSPC). Raises ToolError."""
    disk = mounted_disk(path)
    with explained(path), (disk.path / FILLER).open("ab") as filler:
        size = 1 << 40
        while size >= os.statvfs(path).f_bsize:
            try:
                os.posix_fallocate(filler.fileno(), filler.seek(0, os.SEEK_END), size)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EFBIG):
                    raise
                size //= 2


def use_up_inodes(path: Path) -> None:
    """Uses up all inodes, so that no file can be created (ENOSPC) even if there is space. Raises ToolError."""
    disk = mounted_disk(path)
    if disk.mounted_file_system != "ext4":
        raise ToolError(f"{path} is {disk.mounted_file_system}; only ext4 can run out of inodes")
    folder = disk.path / (FILLER + "s")
    with explained(path):
        folder.mkdir(exist_ok=True)
        with _ends_with_no_space():
            for number in range(1 << 32):
                (folder / str(number)).touch()


def make_room(path: Path) -> None:
    """Removes the files of `fill` and `use_up_inodes`. Raises ToolError."""
    disk = mounted_disk(path)
    folder = disk.path / (FILLER + "s")
    with explained(path):
        (disk.path / FILLER).unlink(missing_ok=True)
        if folder.is_dir():
            for name in os.listdir(folder):
                (folder / name).unlink()
            folder.rmdir()


def freeze(path: Path, seconds: float = SECONDS) -> None:
    """Makes every change hang uninterruptibly until `heal_disk` or for `seconds`. Raises ToolError."""
    disk = mounted_disk(path)
    if disk.watchdog.exists():
        thaw(disk)
    # Start the watchdog in its own session: it must thaw the disk even if the process that froze the disk is killed.
    watchdog = subprocess.Popen(
        ["/bin/sh", "-c", THAW, program("fsfreeze"), str(disk.path), str(seconds), str(disk.watchdog)],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    disk.watchdog.write_text(str(watchdog.pid))
    # Nothing in this process waits for the watchdog, because `heal_disk` may run in another process. When a Popen is
    # garbage-collected, it warns that its child was not waited for, unless its return code is set.
    watchdog.returncode = 0
    run("fsfreeze", "-f", str(disk.path))


def vanish(path: Path) -> None:
    """Unmounts the disk and leaves an empty folder; open files keep working. Raises ToolError."""
    mounted_disk(path)
    run("umount", "--lazy", str(path))


def swap(first: Path, second: Path) -> None:
    """Swaps the paths of two disks until `heal_disk` is called for both. Raises ToolError."""
    for path in (first, second):
        mounted_disk(path)
    aside = first.with_name(first.name + ".aside")
    with explained(aside):
        aside.mkdir(exist_ok=True)
    run("mount", "--bind", str(first), str(aside))
    run("mount", "--bind", str(second), str(first))
    run("mount", "--bind", str(aside), str(second))
    run("umount", "--lazy", str(aside))
    with explained(aside):
        aside.rmdir()


def put_fresh(path: Path) -> None:
    """Replaces the disk at the path with an empty one at once; open files stay on the old disk. Raises ToolError."""
    disk = mounted_disk(path)
    kind = disk.mounted_file_system or "ext4"
    vanish(path)
    with explained(path):
        put_empty_image(disk, kind)


def fail_reads(path: Path) -> None:
    """Reads of blocks fail (EIO); cached data can still be read, and every write succeeds. Raises ToolError."""
    _set_blocks(path, "read-errors")


def fail_writes(path: Path) -> None:
    """Writes of blocks fail (EIO), which shows on the next sync. Raises ToolError."""
    _set_blocks(path, "write-errors")


def fail_blocks(path: Path) -> None:
    """Reads and writes of blocks fail (EIO). Raises ToolError."""
    _set_blocks(path, "io-errors")


def hang_blocks(path: Path, seconds: float = SECONDS) -> None:
    """Block operations hang until `heal_disk` or for `seconds`. Raises ToolError."""
    _set_blocks(path, "hang", seconds=seconds)


def slow_blocks(path: Path, delay_ms: float = SLOW_MS) -> None:
    """Every block operation takes `delay_ms`. Raises ToolError."""
    _set_blocks(path, "slow", delay_ms=delay_ms)


def run_out_of_blocks(path: Path) -> None:
    """Emulates a thin volume without free blocks: writes succeed, but what the kernel writes back later is lost. One fsync
    reports the loss (ENOSPC); the next one succeeds. Raises ToolError."""
    _set_blocks(path, "out-of-blocks")


@dataclass(frozen=True, slots=True)
class How:
    """One choice of `--how`. `makes(path)` makes the disk fail, and `about` describes the failure. If `ends` is set, the
    failure ends by itself, and the call is `makes(path, seconds)`. Only swap takes two disks: `makes(first, second)`."""

    makes: Callable[..., None]
    about: str
    ends: bool = False


HOWS: Final = {
    "power-cut": How(cut_power, "EIO for everything; unsynced data is lost (default)"),
    "shutdown": How(shut_down_flushing, "EIO for everything; written data is kept"),
    "shutdown-journal": How(shut_down_flushing_journal, "EIO for everything; names are kept, unsynced data is not"),
    "read-only": How(make_read_only, "EROFS for every change, as after ext4 detects an error"),
    "full": How(fill, "ENOSPC: no free blocks"),
    "no-inodes": How(use_up_inodes, "ENOSPC: no free inodes"),
    "freeze": How(freeze, "every change hangs", ends=True),
    "vanish": How(vanish, "the mount is gone"),
    "fresh": How(put_fresh, "an empty disk is mounted instead"),
    "swap": How(swap, "two disks swap paths (takes both paths)"),
    "read-errors": How(fail_reads, "EIO when blocks are read (this and the rest: faulty disks only)"),
    "write-errors": How(fail_writes, "EIO when blocks are written back"),
    "io-errors": How(fail_blocks, "EIO for every block"),
    "hang": How(hang_blocks, "blocks hang", ends=True),
    "slow": How(slow_blocks, f"each block takes {SLOW_MS:g} ms"),
    "out-of-blocks": How(run_out_of_blocks, "written data is lost, and only one fsync reports it"),
}


def make_happen(how: str, paths: list[Path], *, seconds: float) -> None:
    """Carries out `diskraft disks kill --how`. Raises ToolError."""
    way = HOWS[how]
    if how == "swap":
        if len(paths) != 2:
            raise ToolError("swap takes the paths of two disks")
        way.makes(*paths)
        return
    for path in paths:
        if way.ends:
            way.makes(path, seconds)
        else:
            way.makes(path)


def _set_blocks(path: Path, mode: str, *, seconds: float = 0.0, delay_ms: float = 0.0) -> None:
    disk = mounted_disk(path)
    if not disk.is_faulty:
        raise ToolError(f"the blocks of {path} cannot be made to fail; use a disk from `diskraft disks make --faulty`")
    with explained(path):
        faulty_image.set_mode(disk.control, mode, seconds=seconds, delay_ms=delay_ms)


@contextlib.contextmanager
def _ends_with_no_space() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
