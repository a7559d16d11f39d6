"""Writes a client's operations to its file while they happen, and reads the files of all clients (shell).

The line of an operation's begin is in the file before the operation begins, so a client that is killed leaves its open
operations behind. A line is one write without a buffer: what a killed process had written stays in the page cache.
"""

import os
import threading
import time
from pathlib import Path
from typing import Any

from tests.integration.history.operations import History, Operation, Outcome, begun_line, ended_line, parse

SUFFIX = ".history"


class Recorder:
    """The file of one client. Its methods may be called from any thread."""

    def __init__(self, folder: Path, client: str) -> None:
        self._file = os.open(folder / f"{client}{SUFFIX}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._next = 0

    def begin(self, kind: type[Operation], **fields: Any) -> int:
        """Notes that an operation begins now, and returns its number."""
        with self._lock:
            self._next += 1
            self._write(begun_line(self._next, kind, time.monotonic_ns(), fields))
            return self._next

    def end(self, number: int, outcome: Outcome = Outcome.OK, **fields: Any) -> None:
        """Notes that the operation has ended now."""
        with self._lock:
            self._write(ended_line(number, time.monotonic_ns(), outcome, fields))

    def _write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


def load(folder: Path) -> History:
    """Returns the operations of all clients whose files are in the folder."""
    history = History()
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with path.open(newline="\n") as lines:
            for operation in parse(path.name.removesuffix(SUFFIX), lines):
                history.add(operation)
    return history
