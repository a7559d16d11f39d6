"""Measures how long the machine itself stood still, so that tests with time limits do not blame the daemons for it.

If the host gives this virtual machine no CPU time, or the host's disk is busy, all processes stop at once. To notice this, a
thread keeps writing and syncing a block on a disk that no test breaks. If the thread is delayed, so are the daemons.
"""

import os
import threading
import time
from pathlib import Path
from types import TracebackType

INTERVAL_SECONDS = 0.05
# Each round truncates the file and writes this block. The file's size changes, so every sync waits for the file system's
# journal, like the syncs of a growing disk image.
BLOCK = bytes(4096)
# A gap between two rounds that is longer than this counts as a standstill. Time limits in tests must allow for shorter gaps.
USUAL_SECONDS = 0.25


class Standstills:
    """Measures the standstills of the machine while its `with` block runs."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "standstills"
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._last = time.monotonic()
        self._gaps: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._watch, name="standstills")

    def __enter__(self) -> "Standstills":
        self._last = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._path.unlink()

    def seconds_since(self, began: float) -> float:
        """Returns how many seconds were lost since `began`, a time of the monotonic clock."""
        with self._lock:
            gaps = [*self._gaps, (time.monotonic(), time.monotonic() - self._last)]
        # Do not count the part of a gap before `began`.
        since = (min(gap, ended - began) for ended, gap in gaps)
        return sum(gap - USUAL_SECONDS for gap in since if gap > USUAL_SECONDS)

    def _watch(self) -> None:
        file = os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            while not self._ended.wait(INTERVAL_SECONDS):
                os.ftruncate(file, 0)
                os.pwrite(file, BLOCK, 0)
                os.fsync(file)
                self._note_round()
        finally:
            os.close(file)

    def _note_round(self) -> None:
        now = time.monotonic()
        with self._lock:
            gap, self._last = now - self._last, now
            if gap > USUAL_SECONDS:
                self._gaps.append((now, gap))
