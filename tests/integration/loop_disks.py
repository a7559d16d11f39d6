"""Helpers for loop-mounted disks that the disk lab does not offer: lazy unmounts, and finding leftover mounts."""

import subprocess
from pathlib import Path


def unmount_lazily(path: Path) -> None:
    """Unmounts a disk even while files on it are open. The kernel releases the loop device when the last of
    these files is closed."""
    subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=60)


def mounts_under(folder: Path) -> list[Path]:
    """Returns every mount point at or below the folder, newest first. A path may occur several times."""
    points = [Path(line.split()[1].replace("\\040", " ")) for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [point for point in reversed(points) if point == folder or folder in point.parents]


def loop_devices_under(folder: Path) -> list[str]:
    """Returns the backing files below the folder that are still held by a loop device."""
    found: list[str] = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = backing.read_text().strip()
        except OSError:
            # The device was released meanwhile.
            continue
        if file.startswith(f"{folder}/"):
            found.append(file)
    return found
