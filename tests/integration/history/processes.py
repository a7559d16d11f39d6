"""The client processes of one history: starts them, kills and replaces them, and ends them (shell)."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tests.integration.cluster import ROOT, until
from tests.integration.history.recorder import SUFFIX

ROLES = {
    "producer-confluent": 4,
    "producer-kafka-python": 2,
    "member-confluent": 2,
    "member-kafka-python": 2,
    "reader": 1,
}
"""How many clients of each role there are."""
TRANSACTIONAL = {"producer-transactional": 2}
"""Those that come along where the brokers serve transactions."""
# A producer may have to send again what it could not send while faults lasted, and a member waits for a rebalance.
END_SECONDS = 120.0


class Clients:
    """The running clients. At the end of the `with` block none is left."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, folder: Path, transactions: bool) -> None:
        self.folder = folder
        self._roles = ROLES | (TRANSACTIONAL if transactions else {})
        self._options = [
            "--bootstrap",
            bootstrap,
            "--topic",
            topic,
            "--partitions",
            str(partitions),
            "--folder",
            str(folder),
        ]
        self.failures: list[str] = []
        """Clients that ended by themselves, or not with 0. librdkafka, for example, gives up a producer whose acknowledged
        records are gone."""
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._lives = 0

    def __enter__(self) -> "Clients":
        for role, count in self._roles.items():
            for _ in range(count):
                self._start(role)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def pick(self, rng: random.Random, what: str) -> str:
        """Returns the name of a running client whose role begins like this."""
        return rng.choice([name for name in sorted(self._running) if name.startswith(what)])

    def signal(self, name: str, number: int) -> None:
        self._running[name].send_signal(number)

    def replace(self, name: str) -> None:
        """Kills the client, and starts another one of its role. It has another name, because it begins anew."""
        process = self._running.pop(name)
        process.kill()
        process.wait()
        self._start(name.rpartition(".")[0])

    def end(self, what: str) -> None:
        """Tells the clients whose roles begin like this to end, and waits until they have."""
        ending = {name: process for name, process in self._running.items() if name.startswith(what)}
        for name, process in ending.items():
            # A client that has just been started would be killed by the signal until it handles it.
            until((self.folder / f"{name}{SUFFIX}").exists, f"{name} has started")
            process.send_signal(signal.SIGTERM)
        for name, process in ending.items():
            try:
                status = process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} did not end within {END_SECONDS:g} s; {self._told(name)}") from None
            del self._running[name]
            self._note_status(name, status)

    def replace_ended(self) -> None:
        """Notes every client that has ended by itself, and starts another one of its role."""
        for name, process in list(self._running.items()):
            if process.poll() is not None:
                self._note_status(name, process.returncode)
                self.replace(name)

    def _note_status(self, name: str, status: int) -> None:
        if status != 0:
            self.failures.append(f"{name} ended with {status}; {self._told(name)}")

    def _start(self, role: str) -> None:
        self._lives += 1
        name = f"{role}.{self._lives}"
        with (self.folder / f"{name}.output").open("wb") as output:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.history.clients", role, name, *self._options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env=os.environ,
            )

    def _told(self, name: str) -> str:
        lines = (self.folder / f"{name}.output").read_text(errors="replace").strip().splitlines()
        return f"its last lines: {lines[-3:]} (see {self.folder / name}{SUFFIX})"
