"""What tests do to loop-mounted disks beyond what the disk lab offers its users, and how they see what is left of them."""

import subprocess
from pathlib import Path


def unmount_lazily(path: Path) -> None:
    """Also while files on it are open; the loop device goes with the last of them."""
    subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=60)


def mounts_under(folder: Path) -> list[Path]:
    """Every mount point at or below the folder, the newest first; one path may be there several times."""
    points = [Path(line.split()[1].replace("\\040", " ")) for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [point for point in reversed(points) if point == folder or folder in point.parents]


def loop_devices_under(folder: Path) -> list[str]:
    """Backing files below the folder that some loop device still holds."""
    found: list[str] = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = backing.read_text().strip()
        except OSError:
            # Released while we looked.
            continue
        if file.startswith(f"{folder}/"):
            found.append(file)
    return found
