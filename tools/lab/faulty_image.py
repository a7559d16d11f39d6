"""Serves one image file over FUSE, with blocks that fail, hang, slow down or run out on command (shell).

A real file system, mounted from this file through a loop device, then gets the errors of a broken disk and must turn them
into errors of its own. `python faulty_image.py IMAGE MOUNT_POINT CONTROL` serves the image as `MOUNT_POINT/disk` until the
mount point is unmounted; the control file selects the fault. A thread waiting for a hung block cannot be killed, so the
server itself ends a hang when its time is over. The control file is outside the mount, where a hung request cannot block it.
"""

import argparse
import errno
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any, Final

SERVED_NAME: Final = "disk"
# The interval at which a hung request rereads the control file. Each hung request waits in a thread of its own.
_LOOK_SECONDS: Final = 0.01


def set_mode(control: Path, mode: str, *, seconds: float = 0.0, delay_ms: float = 0.0) -> None:
    """Puts the image into `mode` for `seconds` (0: until the next call). Only the mode `slow` uses `delay_ms`."""
    until_ns = time.monotonic_ns() + int(seconds * 1e9) if seconds else 0
    text = json.dumps({"mode": mode, "until_ns": until_ns, "delay_ms": delay_ms})
    whole = control.with_name(control.name + ".new")
    whole.write_text(text)
    whole.replace(control)


class Faults:
    """The fault that the control file selects. The file is read again for every request."""

    def __init__(self, control: Path) -> None:
        self._control = control

    def mode(self) -> tuple[str, float]:
        """Returns the mode and the delay in milliseconds. An expired mode counts as `ok`, as does a missing control file."""
        try:
            content = json.loads(self._control.read_bytes())
        except FileNotFoundError:
            return "ok", 0.0
        if content["until_ns"] and time.monotonic_ns() > content["until_ns"]:
            return "ok", 0.0
        return content["mode"], content["delay_ms"]

    def pass_through(self, failing: tuple[str, ...]) -> str:
        """Waits until the request may reach the image and returns the mode. Raises OSError if the request is to fail."""
        while True:
            mode, delay_ms = self.mode()
            if mode in failing:
                raise OSError(errno.EIO, mode)
            if mode == "slow":
                time.sleep(delay_ms / 1000)
            if mode != "hang":
                return mode
            time.sleep(_LOOK_SECONDS)


class FaultyImage:
    """A file system with a single file. FUSE calls its methods from several threads at a time."""

    use_ns = True

    def __init__(self, image: Path, faults: Faults) -> None:
        self._fd = os.open(image, os.O_RDWR | os.O_CLOEXEC)
        self._faults = faults

    def getattr(self, path: str, _fh: object = None) -> dict[str, Any]:
        found = os.fstat(self._fd)
        times = {"st_atime": found.st_atime_ns, "st_mtime": found.st_mtime_ns, "st_ctime": found.st_ctime_ns}
        if path == "/":
            return times | {"st_mode": stat.S_IFDIR | 0o700, "st_nlink": 2}
        if path != f"/{SERVED_NAME}":
            raise OSError(errno.ENOENT, path)
        return times | {
            "st_mode": stat.S_IFREG | 0o600,
            "st_nlink": 1,
            "st_size": found.st_size,
            "st_blocks": found.st_blocks,
        }

    def readdir(self, _path: str, _fh: object) -> list[str]:
        return [".", "..", SERVED_NAME]

    def open(self, _path: str, info: Any) -> int:
        # Bypass the page cache: the kernel would serve cached pages without an error, and every read must reach us.
        info.direct_io = 1
        return 0

    def read(self, _path: str, size: int, offset: int, _info: object) -> bytes:
        self._faults.pass_through(("read-errors", "io-errors"))
        return os.pread(self._fd, size, offset)

    def write(self, _path: str, data: bytes, offset: int, _info: object) -> int:
        mode = self._faults.pass_through(("write-errors", "io-errors"))
        if mode == "out-of-blocks" and self._has_hole(offset, len(data)):
            raise OSError(errno.ENOSPC, "a block that was never written")
        return os.pwrite(self._fd, data, offset)

    def _has_hole(self, offset: int, size: int) -> bool:
        return os.lseek(self._fd, offset, os.SEEK_HOLE) < offset + size

    def fsync(self, _path: str, _datasync: int, _info: object) -> int:
        self._faults.pass_through(("write-errors", "io-errors"))
        os.fdatasync(self._fd)
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", type=Path)
    parser.add_argument("mount_point")
    parser.add_argument("control", type=Path)
    arguments = parser.parse_args()
    try:
        import mfusepy
    except (ImportError, OSError) as error:
        sys.exit(f"faulty disks need mfusepy and FUSE (pip install mfusepy; Debian: apt install fuse3): {error}")
    mfusepy.FUSE(
        FaultyImage(arguments.image, Faults(arguments.control)),
        arguments.mount_point,
        raw_fi=True,
        fsname="diskraft-faulty",
    )


if __name__ == "__main__":
    main()
