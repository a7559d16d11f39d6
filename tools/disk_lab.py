"""Loop-mounted disks that can be made, killed, revived and replaced on one machine (shell).

A disk is a folder that is the mount point of an image file beside it (`disk-1` and `disk-1.img`). Killing is the file
system's shutdown ioctl: from its return on, every operation on the disk gives EIO, also on files that are open. Easy to get
wrong: a dead disk must be unmounted before it is mounted again, and that needs every process to have let go of it.
"""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.errors import ToolError

# EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN share this number; flag 2 drops everything that was not synced, like a power cut.
SHUTDOWN_IOCTL = 0x8004587D
SHUTDOWN_WITHOUT_FLUSH = 2

FILE_SYSTEMS = ("ext4", "xfs")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk of the lab, by its mount point."""

    path: Path

    @property
    def image(self) -> Path:
        return self.path.with_name(self.path.name + ".img")

    @property
    def is_mounted(self) -> bool:
        # Asking the path itself would not do: on a dead XFS even stat fails.
        return self.mounted_file_system is not None

    @property
    def mounted_file_system(self) -> str | None:
        """The kind of the file system that is mounted there, None when nothing is."""
        # Only the last component may be the disk itself; what leads there can be resolved.
        mount_point = os.path.join(os.path.realpath(self.path.parent), self.path.name)
        found = None
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _device, point, kind, *_ = line.split(" ")
            # The last of several mounts at one place is the one that is seen.
            if _unescaped(point) == mount_point:
                found = kind
        return found

    @property
    def exists(self) -> bool:
        """Whether anything of a disk is here, mounted or not."""
        return self.is_mounted or self.image.exists()


def make_disk(path: Path, *, size_mib: int = 256, file_system: str = "ext4") -> Disk:
    """Makes an image, a file system on it, and mounts it at `path`. Raises ToolError; what was made is then gone again."""
    disk = Disk(path)
    if disk.exists:
        raise ToolError(f"{path} is a disk already; `diskraft disks remove {path}` removes it")
    with _explained(path):
        was_there = path.is_dir()
        if was_there and any(path.iterdir()):
            raise ToolError(f"{path} is not empty; a disk that is mounted there would hide what it holds")
        path.mkdir(parents=True, exist_ok=True)
        try:
            _write_image(disk, size_mib, file_system)
            _mount(disk)
        except (ToolError, OSError):
            disk.image.unlink(missing_ok=True)
            if not was_there:
                path.rmdir()
            raise
    return disk


def kill_disk(path: Path) -> None:
    """Shuts the file system down: when this returns, the disk is dead. Raises ToolError."""
    disk = _mounted(path)
    with _explained(path):
        descriptor = os.open(disk.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN_IOCTL, struct.pack("I", SHUTDOWN_WITHOUT_FLUSH))
        finally:
            os.close(descriptor)


def revive_disk(path: Path) -> None:
    """Mounts a dead disk again, with what had been synced on it. Raises ToolError."""
    disk = _mounted(path)
    _unmount(disk)
    _mount(disk)


def replace_disk(path: Path) -> None:
    """Puts an empty disk of the same size in the place of this one. Raises ToolError."""
    disk = _mounted(path)
    file_system = disk.mounted_file_system or "ext4"
    with _explained(path):
        size_mib = disk.image.stat().st_size // MIB
        _unmount(disk)
        disk.image.unlink()
        _write_image(disk, size_mib, file_system)
        _mount(disk)


def remove_disk(path: Path) -> None:
    """Unmounts and deletes the disk, its image and its mount point. Raises ToolError."""
    disk = Disk(path)
    if not disk.exists:
        raise ToolError(f"{path} is not a disk of the lab: it is not mounted, and {disk.image} is missing")
    with _explained(path):
        if disk.is_mounted:
            _unmount(disk)
        disk.image.unlink(missing_ok=True)
        if path.is_dir():
            path.rmdir()


def why_no_loop_disks(folder: Path) -> str | None:
    """None when loop-mounted disks can be made here, else the reason; found by making one."""
    trial = folder / "trial-disk"
    try:
        make_disk(trial, size_mib=16)
        try:
            kill_disk(trial)
        finally:
            remove_disk(trial)
    except ToolError as error:
        return str(error).splitlines()[0]
    return None


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What the operating system refuses inside becomes one line for a person."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror or error}") from error


def _mounted(path: Path) -> Disk:
    disk = Disk(path)
    if not disk.image.exists():
        raise ToolError(f"{path} is not a disk of the lab: {disk.image} is missing; `diskraft disks make {path}` makes one")
    if not disk.is_mounted:
        raise ToolError(f"{path} is not mounted; `mount -o loop {disk.image} {path}` mounts it")
    return disk


def _write_image(disk: Disk, size_mib: int, file_system: str) -> None:
    if file_system not in FILE_SYSTEMS:
        raise ToolError(f"file system {file_system} is not known; it is one of {', '.join(FILE_SYSTEMS)}")
    with disk.image.open("wb") as image:
        image.truncate(size_mib * MIB)
    if file_system == "ext4":
        # No lazy initialisation: a background thread of the kernel would write to the disk while tests measure it.
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(disk.image))
    else:
        _run("mkfs.xfs", "-q", "-f", str(disk.image))


def _mount(disk: Disk) -> None:
    _run("mount", "-o", "loop", str(disk.image), str(disk.path))


def _unmount(disk: Disk) -> None:
    try:
        _run("umount", str(disk.path))
    except ToolError as error:
        raise ToolError(f"{error}; stop the broker that uses it, or wait until it has closed its files") from error


def _unescaped(text: str) -> str:
    """Blanks and the like stand in /proc as a backslash and three octal digits."""
    first, *others = text.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] for part in others)


def _run(*command: str) -> None:
    program = shutil.which(command[0], path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if program is None:
        raise ToolError(f"{command[0]} is missing (Debian: apt install e2fsprogs xfsprogs mount)")
    done = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise ToolError(f"{' '.join(command)} failed: {reason[0] if reason else f'exit status {done.returncode}'}")
