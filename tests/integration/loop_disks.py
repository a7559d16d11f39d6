"""What tests and benchmarks do to loop-mounted disks beyond what the disk lab offers its users.

A frozen file system blocks writers in the kernel where no signal reaches them, so a freeze always has a watchdog in a
session of its own: it thaws the disk even when whoever froze it was killed.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FREEZE_SECONDS_MAX = 30


@contextmanager
def frozen(path: Path) -> Iterator[None]:
    """The file system hangs on writes inside the block, and never longer than the watchdog allows."""
    fsfreeze = shutil.which("fsfreeze", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if fsfreeze is None:
        raise FileNotFoundError("fsfreeze is missing (Debian: apt install util-linux)")
    # In a session of its own: it must thaw the disk even when the test is killed, since no signal wakes a frozen thread.
    watchdog = subprocess.Popen(
        ["sh", "-c", f'sleep {FREEZE_SECONDS_MAX}; exec "$0" -u "$1"', fsfreeze, str(path)], start_new_session=True
    )
    subprocess.run([fsfreeze, "-f", str(path)], check=True, timeout=60)
    try:
        yield
    finally:
        subprocess.run([fsfreeze, "-u", str(path)], check=False, timeout=60, stderr=subprocess.DEVNULL)
        os.killpg(watchdog.pid, signal.SIGKILL)
        watchdog.wait(60)


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
