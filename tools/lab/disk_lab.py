"""Loop-mounted disks that can be created, killed, revived and replaced on one machine (shell).

A disk is a folder on which the image file beside it is mounted (`disk-1` and `disk-1.img`). A *faulty* disk has FUSE
(`disk-1.fuse`) between the loop device and the image, so that its blocks can fail; `disk-1.faults` selects how. `kill_disk`
calls the file system's shutdown ioctl: once that returns, every operation fails with EIO, on open files too.
`disk_faults.py` has the other failures. A dead disk must be unmounted before it can be mounted again, and it cannot be
unmounted while a process has files open on it.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.errors import ToolError
from tools.lab import faulty_image

# EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN share this number. Flag 2 drops everything unsynced, like a power cut.
SHUTDOWN_IOCTL = 0x8004587D
SHUTDOWN_WITHOUT_FLUSH = 2

# How long a dead disk may stay mounted elsewhere when it is mounted again.
RELEASE_SECONDS = 10.0
RELEASE_POLL_SECONDS = 0.1

FILE_SYSTEMS = ("ext4", "xfs")
XFS_MAGIC = b"XFSB"
MIB = 1024 * 1024
PACKAGES = {
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "umount": "mount",
    "fsfreeze": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "nft": "nftables",
}
"""The Debian package of each tool whose package has another name."""


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk of the lab, identified by its mount point."""

    path: Path

    @property
    def image(self) -> Path:
        return self.path.with_name(self.path.name + ".img")

    @property
    def control(self) -> Path:
        """The control file for the blocks of a faulty disk; other disks have none."""
        return self.path.with_name(self.path.name + ".faults")

    @property
    def fuse(self) -> Path:
        """The folder where a faulty disk's image is served."""
        return self.path.with_name(self.path.name + ".fuse")

    @property
    def is_faulty(self) -> bool:
        return self.control.exists()

    @property
    def watchdog(self) -> Path:
        """The pid file of the process that will thaw the disk; exists while the disk is frozen."""
        return self.path.with_name(self.path.name + ".frozen")

    @property
    def source(self) -> Path:
        """The file under the loop device."""
        return self.fuse / faulty_image.SERVED_NAME if self.is_faulty else self.image

    @property
    def is_mounted(self) -> bool:
        # Do not stat the path: on a dead XFS even stat fails.
        return self.mounted_file_system is not None

    @property
    def mounted_file_system(self) -> str | None:
        """The type of the file system mounted at the path, None if nothing is mounted."""
        found = self.mounts
        # With several mounts on one path, the last one is visible.
        return found[-1][1] if found else None

    @property
    def mounts(self) -> list[tuple[str, str]]:
        """Returns the device and the file system type of each mount on the path, oldest first."""
        return mounts_at(self.path)

    @property
    def exists(self) -> bool:
        """True if the disk exists, mounted or not."""
        return self.is_mounted or self.image.exists()


def make_disk(path: Path, *, size_mib: int = 256, file_system: str = "ext4", faulty: bool = False) -> Disk:
    """Creates an image with a file system and mounts it at `path`. Raises ToolError, after removing what it created."""
    disk = Disk(path)
    if disk.exists:
        raise ToolError(f"{path} is already a disk; `diskraft disks remove {path}` removes it")
    if size_mib < 1:
        raise ToolError(f"a disk of {size_mib} MiB cannot be made; it takes at least 1 MiB")
    with explained(path):
        was_there = path.is_dir()
        if was_there and any(path.iterdir()):
            raise ToolError(f"{path} is not empty; a disk mounted there would hide its contents")
        path.mkdir(parents=True, exist_ok=True)
        try:
            if faulty:
                faulty_image.set_mode(disk.control, "ok")
            _write_image(disk, size_mib, file_system)
            mount_disk(disk)
        except (ToolError, OSError):
            _delete_image(disk)
            if not was_there:
                path.rmdir()
            raise
    return disk


def kill_disk(path: Path, *, flag: int = SHUTDOWN_WITHOUT_FLUSH) -> None:
    """Shuts down the file system. When this returns, the disk is dead. Raises ToolError."""
    disk = mounted_disk(path)
    with explained(path):
        descriptor = os.open(disk.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN_IOCTL, struct.pack("I", flag))
        finally:
            os.close(descriptor)


def heal_disk(path: Path) -> None:
    """Ends every injected fault: thaws a frozen disk, makes blocks work again, undoes a swap. It does not repair the damage
    that the file system suffered. Raises ToolError."""
    _end_faults(mounted_disk(path))


def _end_faults(disk: Disk) -> None:
    if disk.is_faulty:
        faulty_image.set_mode(disk.control, "ok")
    if disk.watchdog.exists():
        thaw(disk)
    while len(disk.mounts) > 1:
        _unmount(disk)


def revive_disk(path: Path) -> None:
    """Mounts a dead or vanished disk again, with the data that had been synced. Raises ToolError."""
    disk = _lab_disk(path)
    _end_faults(disk)
    if disk.is_mounted:
        _unmount(disk)
    mount_disk(disk)
    deadline = time.monotonic() + RELEASE_SECONDS
    while _is_dead(disk):
        # A container that starts holds copies of all mounts for a moment.
        if time.monotonic() > deadline:
            raise ToolError(f"{path} is still dead: it is also mounted elsewhere, in a container or another mount namespace")
        _unmount(disk)
        time.sleep(RELEASE_POLL_SECONDS)
        mount_disk(disk)


def _is_dead(disk: Disk) -> bool:
    """Whether mounting has brought the dead file system back. The kernel keeps it as long as anything has it mounted."""
    try:
        # A dead file system still answers from its cache, but makes no file.
        with tempfile.TemporaryFile(dir=disk.path):
            return False
    except OSError as error:
        return error.errno == errno.EIO


def replace_disk(path: Path) -> None:
    """Replaces this disk with an empty one of the same size. Raises ToolError."""
    disk = _lab_disk(path)
    _end_faults(disk)
    with explained(path):
        file_system = _file_system_of(disk.image)
        if disk.is_mounted:
            _unmount(disk)
        put_empty_image(disk, file_system)


def remove_disk(path: Path) -> None:
    """Unmounts and deletes the disk, its image and its mount point. Raises ToolError."""
    disk = Disk(path)
    if not disk.exists:
        raise ToolError(f"{path} is not a disk of the lab: it is not mounted, and {disk.image} is missing")
    with explained(path):
        if disk.is_mounted:
            heal_disk(path)
            _unmount(disk)
        _delete_image(disk)
        try:
            path.rmdir()
        except OSError as error:
            # Files that were written into the mount point while nothing was mounted are not the disk's.
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise


def why_no_loop_disks(folder: Path, *, faulty: bool = False) -> str | None:
    """Returns None if loop-mounted disks can be created here, else the reason. Finds out by creating one."""
    trial = folder / "trial-disk"
    try:
        make_disk(trial, size_mib=16, faulty=faulty)
        try:
            kill_disk(trial)
        finally:
            remove_disk(trial)
    except ToolError as error:
        return str(error).splitlines()[0]
    return None


def thaw(disk: Disk) -> None:
    """Thaws a frozen file system and ends its watchdog. Raises ToolError."""
    # A failure to thaw can be ignored: the watchdog may have thawed the disk already.
    with contextlib.suppress(ToolError):
        run("fsfreeze", "-u", str(disk.path))
    with contextlib.suppress(OSError, ValueError):
        os.killpg(int(disk.watchdog.read_text()), signal.SIGKILL)
    disk.watchdog.unlink(missing_ok=True)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns an OSError inside the block into a one-line ToolError."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror or error}") from error


def mounted_disk(path: Path) -> Disk:
    """Returns the disk at the path, which must be mounted. Raises ToolError."""
    disk = _lab_disk(path)
    if not disk.is_mounted:
        raise ToolError(f"{path} is not mounted; `diskraft disks revive {path}` mounts it")
    return disk


def _lab_disk(path: Path) -> Disk:
    disk = Disk(path)
    if not disk.image.exists():
        raise ToolError(
            f"{path} is not a disk of the lab: {disk.image} is missing; `diskraft disks make {path}` creates one"
        )
    return disk


def _file_system_of(image: Path) -> str:
    """Returns the kind of a disk that may be unmounted or dead."""
    with image.open("rb") as content:
        return "xfs" if content.read(len(XFS_MAGIC)) == XFS_MAGIC else "ext4"


def _write_image(disk: Disk, size_mib: int, file_system: str) -> None:
    if file_system not in FILE_SYSTEMS:
        raise ToolError(f"unknown file system {file_system}; choose one of {', '.join(FILE_SYSTEMS)}")
    with disk.image.open("wb") as image:
        image.truncate(size_mib * MIB)
    if disk.is_faulty:
        _serve_image(disk)
    if file_system == "ext4":
        # Disable lazy initialisation, in which a kernel thread would write to the disk while tests measure it.
        run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(disk.source))
    else:
        run("mkfs.xfs", "-q", "-f", str(disk.source))


def put_empty_image(disk: Disk, file_system: str) -> None:
    """Mounts an empty file system, as large as the old one, at the path. Open files stay on the old image. Raises
    ToolError."""
    size_mib = disk.image.stat().st_size // MIB
    if disk.is_faulty:
        _unserve_image(disk)
    disk.image.unlink()
    _write_image(disk, size_mib, file_system)
    mount_disk(disk)


def mount_disk(disk: Disk) -> None:
    """Mounts the disk at its path. Raises ToolError."""
    if disk.is_faulty:
        _serve_image(disk)
    run("mount", "-o", "loop", str(disk.source), str(disk.path))


def _serve_image(disk: Disk) -> None:
    """Starts the FUSE server if it is not running. The server moves to the background when it is ready, and ends when its
    folder is unmounted."""
    if not mounts_at(disk.fuse):
        disk.fuse.mkdir(exist_ok=True)
        # Without -P, the script's folder would precede the standard library in the import path.
        paths = [str(path.absolute()) for path in (disk.image, disk.fuse, disk.control)]
        run(sys.executable, "-P", faulty_image.__file__, *paths)


def _unserve_image(disk: Disk) -> None:
    # Unmount lazily: while the disk's old file system is in use, its loop device keeps a file on this mount open, and a
    # plain umount would fail with EBUSY.
    if mounts_at(disk.fuse):
        run("umount", "--lazy", str(disk.fuse))


def _delete_image(disk: Disk) -> None:
    _unserve_image(disk)
    if disk.fuse.is_dir():
        disk.fuse.rmdir()
    disk.control.unlink(missing_ok=True)
    disk.image.unlink(missing_ok=True)


def mounts_at(path: Path) -> list[tuple[str, str]]:
    """Returns the device and the file system type of each mount on the path, oldest first."""
    # Resolve only the parent: the last path component may be a dead disk, on which even stat can fail.
    mount_point = os.path.join(os.path.realpath(path.parent), path.name)
    rows = [line.split(" ") for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [(device, kind) for device, point, kind, *_ in rows if _unescaped(point) == mount_point]


def _unmount(disk: Disk) -> None:
    try:
        run("umount", str(disk.path))
    except ToolError as error:
        raise ToolError(f"{error}; stop the broker that uses it, or wait until it has closed its files") from error


def _unescaped(text: str) -> str:
    """Decodes the octal escapes that /proc/self/mounts uses for blanks and the like."""
    first, *others = text.split("\\")
    return first + "".join(chr(int(part[:3], 8)) + part[3:] for part in others)


def run(*command: str) -> None:
    """Runs a system tool. Raises ToolError."""
    done = subprocess.run([program(command[0]), *command[1:]], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise ToolError(f"{' '.join(command)} failed: {reason[0] if reason else f'exit status {done.returncode}'}")


def program(name: str) -> str:
    """Returns the path of a system tool. Raises ToolError."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        raise ToolError(f"{name} is missing (Debian: apt install {PACKAGES.get(name, name)})")
    return found
