"""Runs a node as `tools.node.server_start` does, and watches how long its event loop takes to come to a new callback.

    python -m tests.benchmarks.watched_node SOCKET REPORT OVERRIDE COMMAND …

A benchmark puts this in front of a node's command (`LocalNode.prefix`). While the watch is on, a thread of its own posts a
callback to the loop every PERIOD_SECONDS, and measures the CPU time that the loop's thread uses until the callback runs. The
time of day would also count other processes. What takes MIN_MILLISECONDS or more becomes a line of JSON in REPORT, with the
functions in which the loop's thread was seen meanwhile. A step may be longer than measured by one period. The watch is on
from the start; the datagrams `on` and `off` to SOCKET change that. OVERRIDE is a KEY=VALUE of the node's configuration.
"""

import asyncio
import json
import socket
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from unittest.mock import patch

import uvloop

from tools.node.server_start import main

PERIOD_SECONDS = 0.002
MIN_MILLISECONDS = 3.0
# How long the thread waits for its callback before it looks where the loop's thread is.
LOOK_SECONDS = 0.01
FRAMES_MAX = 6
NS_PER_MS = 1_000_000


class LoopWatch:
    """See the module docstring. Create it on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, commands: socket.socket, report: Path) -> None:
        self._loop = loop
        self._commands = commands
        self._report = report
        self._thread_id = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread_id)
        threading.Thread(target=self._run, name="loop-watch", daemon=True).start()

    def _run(self) -> None:
        is_on = True
        while True:
            self._commands.settimeout(PERIOD_SECONDS if is_on else None)
            try:
                is_on = self._commands.recv(16) == b"on"
            except TimeoutError:
                self._measure()

    def _measure(self) -> None:
        posted_ns, posted_at = time.clock_gettime_ns(self._clock), time.monotonic()
        ran_ns = 0
        has_run = threading.Event()

        def run() -> None:
            nonlocal ran_ns
            ran_ns = time.clock_gettime_ns(self._clock)
            has_run.set()

        self._loop.call_soon_threadsafe(run)
        seen: Counter[str] = Counter()
        while not has_run.wait(LOOK_SECONDS):
            seen[_where(sys._current_frames().get(self._thread_id))] += 1
        milliseconds = (ran_ns - posted_ns) / NS_PER_MS
        if milliseconds >= MIN_MILLISECONDS:
            line = {
                "milliseconds": round(milliseconds, 1),
                "elapsed_milliseconds": round((time.monotonic() - posted_at) * 1000, 1),
                "seen": seen.most_common(3),
            }
            with self._report.open("a") as report:
                report.write(json.dumps(line) + "\n")


def _where(frame: FrameType | None) -> str:
    """Returns the innermost functions of ours on this stack."""
    names: list[str] = []
    while frame is not None and len(names) < FRAMES_MAX:
        names.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(names)


def run() -> None:
    socket_path, report, override, *command = sys.argv[1:]
    commands = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    Path(socket_path).unlink(missing_ok=True)
    commands.bind(socket_path)
    new_event_loop = uvloop.new_event_loop

    def new_watched_loop() -> uvloop.Loop:
        loop = new_event_loop()
        LoopWatch(loop, commands, Path(report))
        return loop

    with patch("uvloop.new_event_loop", new_watched_loop):
        # The command is the interpreter, -m, the module, and the arguments of the module.
        main([*command[3:], "--override", override])


if __name__ == "__main__":
    run()
