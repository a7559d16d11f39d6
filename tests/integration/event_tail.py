"""Follows the events that one node appends to its log file, from the current end of the file on."""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from tools.lab.local_cluster import LocalNode

SECONDS_MAX = 120.0


def time_of(event: dict[str, Any]) -> float:
    """Returns when the event was written, in seconds of wall-clock time."""
    return datetime.fromisoformat(event["timestamp"]).timestamp()


class EventTail:
    """The events that a node writes after this object was created."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self._path = Path(node.files.log)
        self._position = self._path.stat().st_size
        self._seen: list[dict[str, Any]] = []

    def wait_for(self, name: str, *, seconds: float = SECONDS_MAX, **fields: object) -> float:
        """Waits for the first event of this name with these fields. Returns its wall-clock time in seconds."""
        return time_of(self.wait_for_event(name, seconds=seconds, **fields))

    def wait_for_event(self, name: str, *, seconds: float = SECONDS_MAX, **fields: object) -> dict[str, Any]:
        """Waits for the first event of this name with these fields, and returns it."""
        deadline = time.monotonic() + seconds
        checked = 0
        while True:
            for event in self._seen[checked:]:
                if event.get("event") == name and all(event.get(key) == value for key, value in fields.items()):
                    return event
            checked = len(self._seen)
            is_running = self._node.pid is not None
            self._read()
            if len(self._seen) > checked:
                continue
            assert is_running, f"{self._node.files.name} has ended: {self._node.last_line()}"
            assert time.monotonic() < deadline, f"{self._node.files.name} reported no {name} {fields} in {seconds:g} s"

    def has(self, name: str, **fields: object) -> bool:
        """Whether an event of this name with these fields has been written since this object was created."""
        self._read()
        return any(
            event.get("event") == name and all(event.get(key) == value for key, value in fields.items())
            for event in self._seen
        )

    def _read(self) -> None:
        with self._path.open("rb") as log:
            log.seek(self._position)
            complete = log.read().rpartition(b"\n")[0]
        if not complete:
            time.sleep(0.002)
            return
        self._position += len(complete) + 1
        self._seen += [json.loads(line) for line in complete.split(b"\n") if line.startswith(b"{")]
