"""The ways in which a disk of the lab can die, hang, fill up or vanish, one function each (shell).

`HOWS` is what `diskraft disks kill --how …` offers; tests call the functions. Blocks can be made to fail only under a faulty
disk (`diskraft disks make --faulty`). Easy to get wrong: a thread that hangs in a frozen file system takes no signal, so
whatever freezes or hangs has an end that comes also when its caller was killed.
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
from tools.lab.disk_lab import explained, heal_disk, kill_disk, mounted_disk, program, put_empty_image, run, thaw

SECONDS: Final = 30.0
"""How long what hangs does so, unless somebody heals it first."""
FILLER: Final = ".filler"
SLOW_MS: Final = 50.0


def cut_power(path: Path) -> None:
    """Everything gives EIO; what was not synced is lost."""
    kill_disk(path)


def shut_down_flushing(path: Path) -> None:
    """Everything gives EIO; what had been written before is on the disk."""
    kill_disk(path, flag=0)


def shut_down_flushing_journal(path: Path) -> None:
    """Everything gives EIO; the journal is on the disk, the data that was not synced is not."""
    kill_disk(path, flag=1)


def make_read_only(path: Path) -> None:
    """ext4 finds an error in itself and refuses every change with EROFS. Reads go on. Raises ToolError."""
    disk = mounted_disk(path)
    device, kind = disk.mounts[-1]
    if kind != "ext4":
        raise ToolError(f"{path} is {kind}; only ext4 can be made to find an error in itself")
    with explained(path):
        run("mount", "-o", "remount,errors=remount-ro", str(path))
        Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("1")


def fill(path: Path) -> None:
    """Not one more block can be had (ENOSPC). Raises ToolError."""
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
    """Not one more file can be made (ENOSPC), however much room there is. Raises ToolError."""
    disk = mounted_disk(path)
    if disk.mounted_file_system != "ext4":
        raise ToolError(f"{path} is {disk.mounted_file_system}; only ext4 has a number of inodes that can be used up")
    folder = disk.path / (FILLER + "s")
    with explained(path):
        folder.mkdir(exist_ok=True)
        with _ends_with_no_space():
            for number in range(1 << 32):
                (folder / str(number)).touch()


def make_room(path: Path) -> None:
    """Takes away what `fill` and `use_up_inodes` have put there. Raises ToolError."""
    disk = mounted_disk(path)
    folder = disk.path / (FILLER + "s")
    with explained(path):
        (disk.path / FILLER).unlink(missing_ok=True)
        if folder.is_dir():
            for name in os.listdir(folder):
                (folder / name).unlink()
            folder.rmdir()


def freeze(path: Path, seconds: float = SECONDS) -> None:
    """Every change hangs where no signal reaches it, until `heal_disk` or for so many seconds. Raises ToolError."""
    disk = mounted_disk(path)
    if disk.watchdog.exists():
        thaw(disk)
    # In a session of its own: it must thaw the disk even when whoever froze it was killed.
    watchdog = subprocess.Popen(
        ["/bin/sh", "-c", 'sleep "$2"; exec "$0" -u "$1"', program("fsfreeze"), str(disk.path), str(seconds)],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    disk.watchdog.write_text(str(watchdog.pid))
    # It is nobody's child to wait for: `heal_disk` may be called by another process.
    watchdog.returncode = 0
    run("fsfreeze", "-f", str(disk.path))


def vanish(path: Path) -> None:
    """The mount is gone and an empty folder is in its place; files that are open go on. Raises ToolError."""
    mounted_disk(path)
    run("umount", "--lazy", str(path))


def swap(first: Path, second: Path) -> None:
    """Each of two disks appears at the other's path, until `heal_disk` of both. Raises ToolError."""
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
    """An empty disk is at the path from one moment to the next; files that are open stay on the old one."""
    disk = mounted_disk(path)
    kind = disk.mounted_file_system or "ext4"
    vanish(path)
    with explained(path):
        put_empty_image(disk, kind)


def fail_reads(path: Path) -> None:
    """Blocks cannot be read (EIO); what is cached can, and every write succeeds. Raises ToolError."""
    _set_blocks(path, "read-errors")


def fail_writes(path: Path) -> None:
    """Blocks cannot be written (EIO), which shows when something is synced. Raises ToolError."""
    _set_blocks(path, "write-errors")


def fail_blocks(path: Path) -> None:
    """Blocks can neither be read nor written (EIO). Raises ToolError."""
    _set_blocks(path, "io-errors")


def hang_blocks(path: Path, seconds: float = SECONDS) -> None:
    """Blocks neither succeed nor fail, until `heal_disk` or for so many seconds. Raises ToolError."""
    _set_blocks(path, "hang", seconds=seconds)


def slow_blocks(path: Path, delay_ms: float = SLOW_MS) -> None:
    """Every block takes so long. Raises ToolError."""
    _set_blocks(path, "slow", delay_ms=delay_ms)


def run_out_of_blocks(path: Path) -> None:
    """A thin volume that has no more blocks: the write succeeds, what the kernel writes back later is lost, and one fsync
    tells of it (ENOSPC); the next succeeds. Raises ToolError."""
    _set_blocks(path, "out-of-blocks")


@dataclass(frozen=True, slots=True)
class How:
    """A way to die, for people. `makes` is called with the path, and with seconds where it `ends` by itself."""

    makes: Callable[..., None]
    about: str
    ends: bool = False


HOWS: Final = {
    "power-cut": How(cut_power, "EIO for everything; what was not synced is lost (default)"),
    "shutdown": How(shut_down_flushing, "EIO for everything; what was written is kept"),
    "shutdown-journal": How(shut_down_flushing_journal, "EIO for everything; names are kept, unsynced data is not"),
    "read-only": How(make_read_only, "EROFS for every change, as ext4 does after an error of its own"),
    "full": How(fill, "ENOSPC: no block is left"),
    "no-inodes": How(use_up_inodes, "ENOSPC: no file can be made"),
    "freeze": How(freeze, "every change hangs", ends=True),
    "vanish": How(vanish, "the mount is gone"),
    "fresh": How(put_fresh, "an empty disk is mounted instead"),
    "swap": How(swap, "two disks change places (takes two paths)"),
    "read-errors": How(fail_reads, "EIO where blocks are read (faulty disks only, as all that follow)"),
    "write-errors": How(fail_writes, "EIO when blocks are written back"),
    "io-errors": How(fail_blocks, "EIO for every block"),
    "hang": How(hang_blocks, "blocks hang", ends=True),
    "slow": How(slow_blocks, f"each block takes {SLOW_MS:g} ms"),
    "out-of-blocks": How(run_out_of_blocks, "written data is lost, and only one fsync tells"),
}


def make_happen(how: str, paths: list[Path], *, seconds: float = SECONDS) -> None:
    """What `diskraft disks kill --how` does. Raises ToolError."""
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


@contextlib.contextmanager
def frozen(path: Path, seconds: float = SECONDS) -> Iterator[None]:
    """The file system hangs on changes inside the block, and never longer than so many seconds."""
    freeze(path, seconds)
    try:
        yield
    finally:
        heal_disk(path)


@contextlib.contextmanager
def hanging(path: Path, seconds: float = SECONDS) -> Iterator[None]:
    """The blocks of a faulty disk hang inside the block, and never longer than so many seconds."""
    hang_blocks(path, seconds)
    try:
        yield
    finally:
        heal_disk(path)


def _set_blocks(path: Path, mode: str, *, seconds: float = 0.0, delay_ms: float = 0.0) -> None:
    disk = mounted_disk(path)
    if not disk.is_faulty:
        raise ToolError(
            f"the blocks of {path} cannot be made to fail; `diskraft disks make --faulty` makes disks of that kind"
        )
    with explained(path):
        faulty_image.set_mode(disk.control, mode, seconds=seconds, delay_ms=delay_ms)


@contextlib.contextmanager
def _ends_with_no_space() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
