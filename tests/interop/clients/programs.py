"""Clients of other languages, each in a small program of its own that is told what to do by its arguments.

| command | standard input | lines of JSON that it prints |
|---|---|---|
| `compressions` | | `{"compressions": [name, …]}` |
| `create SERVERS TOPIC PARTITIONS` | | |
| `list SERVERS` | | `{"topics": [name, …]}` |
| `delete SERVERS TOPIC` | | |
| `produce SERVERS TOPIC COMPRESSION` | a line with partition and value for each record | `{"acked": value}` for each |
| `consume SERVERS TOPIC GROUP` | until it ends | `{"assigned": [partition, …]}`, `{"read": [partition, offset, value]}` |

The Java program takes more settings after the group, each as `key=value`.

What goes wrong is on stderr, and the exit status is 1. kcat has no such program around it: its own options and format do.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.interop.apache_kafka import NoJars, find_jars, find_java
from tests.interop.clients.interface import SECONDS_MAX, Client, NotHere, Record
from tests.interop.clients.python_clients import ALL_COMPRESSIONS
from tests.interop.group_members import Member
from tests.interop.our_tools import ROOT
from tests.interop.topics import create_topic, delete_topic

SOURCES = Path(__file__).parent
BUILD = ROOT / "build" / "clients"
BUILD_SECONDS_MAX = 300
POLL_SECONDS = 0.05


class Failed(Exception):
    """A program ended with a failure. The message is the end of what it wrote to stderr."""


class _Running:
    """A program with its output, which is handed on line by line."""

    def __init__(self, command: Sequence[str], on_line: Callable[[str], None], on_error_line: Callable[[str], None]) -> None:
        self.errors: list[str] = []
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        assert self.process.stdin is not None and self.process.stdout is not None and self.process.stderr is not None
        self.given, output, errors = self.process.stdin, self.process.stdout, self.process.stderr

        def note(line: str) -> None:
            self.errors.append(line)
            on_error_line(line)

        self._readers = [
            threading.Thread(target=_hand_on, args=(stream, take), daemon=True)
            for stream, take in ((output, on_line), (errors, note))
        ]
        for reader in self._readers:
            reader.start()

    def end(self, *, with_signal: int | None = None) -> None:
        """Ends the program's input and waits for the program. Raises Failed."""
        if with_signal is not None:
            self.process.send_signal(with_signal)
        # If the program has ended already, its status says how.
        with contextlib.suppress(BrokenPipeError):
            self.given.close()
        try:
            status = self.process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failed(f"did not end within {SECONDS_MAX:g} s: {self.last_errors()}") from None
        finally:
            for reader in self._readers:
                reader.join(SECONDS_MAX)
            for stream in (self.process.stdout, self.process.stderr):
                if stream is not None:
                    stream.close()
        if status != 0:
            raise Failed(f"status {status}: {self.last_errors()}")

    def last_errors(self) -> str:
        return "\n".join(self.errors[-25:])


def _hand_on(lines: Iterable[str], take: Callable[[str], None]) -> None:
    for line in lines:
        take(line.rstrip("\n"))


class _ProgramMember(Member):
    """A member in a process of its own."""

    def __init__(self, command: Sequence[str], bootstrap: str, topic: str, group: str, *, end_signal: int | None) -> None:
        super().__init__(bootstrap, topic, group)
        self._command = command
        self._end_signal = end_signal

    def consume(self, goes_on: Callable[[], bool]) -> None:
        running = _Running(self._command, self._take, self.take_error_line)
        try:
            while goes_on():
                if running.process.poll() is not None:
                    raise Failed(f"the member ended by itself: {running.last_errors()}")
                time.sleep(POLL_SECONDS)
        finally:
            running.end(with_signal=self._end_signal if running.process.poll() is None else None)

    def _take(self, line: str) -> None:
        said = json.loads(line)
        if "assigned" in said:
            self.assigned = frozenset(said["assigned"])
        else:
            partition, offset, value = said["read"]
            self.read.append((partition, offset, value.encode()))

    def take_error_line(self, line: str) -> None:
        """Looks for something to learn in a line of stderr."""


class Program(Client):
    """A program that knows the commands above. Subclasses say how it is built and started."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command line, without the arguments above."""

    def compressions(self) -> list[str]:
        names: list[str] = self._ask("compressions")["compressions"]
        return [name for name in ALL_COMPRESSIONS if name in {each.lower() for each in names}]

    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._run("create", bootstrap, topic, str(partitions))

    def topics(self, bootstrap: str) -> set[str]:
        return set(self._ask("list", bootstrap)["topics"])

    def delete(self, bootstrap: str, topic: str) -> None:
        self._run("delete", bootstrap, topic)

    def produce(self, bootstrap: str, topic: str, compression: str, records: Iterable[Record]) -> set[str]:
        acked: set[str] = set()
        command = [*self.command(), "produce", bootstrap, topic, compression]
        running = _Running(command, lambda line: acked.add(json.loads(line)["acked"]), lambda _: None)
        with contextlib.suppress(BrokenPipeError):
            for partition, value in records:
                running.given.write(f"{partition} {value}\n")
        running.end()
        return acked

    @property
    def member(self) -> Callable[[str, str, str], Member]:
        def make(bootstrap: str, topic: str, group: str) -> Member:
            command = [*self.command(), "consume", bootstrap, topic, group]
            return _ProgramMember(command, bootstrap, topic, group, end_signal=None)

        return make

    def _run(self, *arguments: str) -> list[str]:
        lines: list[str] = []
        _Running([*self.command(), *arguments], lines.append, lambda _: None).end()
        return lines

    def _ask(self, *arguments: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._run(*arguments)[-1])
        return answer


def _find(program: str, package: str, *elsewhere: str) -> str:
    found = shutil.which(program) or next(filter(os.path.exists, elsewhere), None)
    if found is None:
        raise NotHere(f"{program} is missing ({package})")
    return found


def _build(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | (environment or {}),
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"{command[0]} took longer than {BUILD_SECONDS_MAX} s") from None
    if done.returncode != 0:
        raise NotHere(f"{' '.join(command)} failed: {(done.stdout + done.stderr).strip()[-500:]}")


def find_go() -> str:
    """Returns the path of Go's tool. Raises NotHere."""
    return _find("go", "see https://go.dev/doc/install", "/usr/local/go/bin/go")


def build_with_go(*arguments: str, **environment: str) -> None:
    """Runs Go's tool in the module of our programs. Raises NotHere."""
    _build([find_go(), *arguments], SOURCES / "go", {"GOTOOLCHAIN": "local", **environment})


class NodeClient(Program):
    """A client for Node.js. Both of them are in one package."""

    def __init__(self, name: str, script: str, *, waits_for_isr: bool = True) -> None:
        self.name = name
        self.waits_for_isr = waits_for_isr
        self._script = script

    def prepare(self) -> None:
        _find("node", "Debian: apt install nodejs")
        npm = _find("npm", "Debian: apt install npm")
        folder = BUILD / "javascript"
        shutil.copytree(SOURCES / "javascript", folder, dirs_exist_ok=True)
        lock = (folder / "package-lock.json").read_text()
        installed = folder / "installed-lock.json"
        if not installed.exists() or installed.read_text() != lock:
            _build([npm, "ci", "--no-audit", "--no-fund"], folder)
            installed.write_text(lock)

    def command(self) -> list[str]:
        return ["node", str(BUILD / "javascript" / self._script)]


class GoClient(Program):
    """A client for Go. All of them are in one module, which has a folder for each."""

    def __init__(self, name: str, folder: str) -> None:
        self.name = name
        self._folder = folder

    def prepare(self) -> None:
        (BUILD / "go").mkdir(parents=True, exist_ok=True)
        build_with_go("build", "-o", str(BUILD / "go"), f"./{self._folder}")

    def command(self) -> list[str]:
        return [str(BUILD / "go" / self._folder)]


class JavaClient(Program):
    name = "java"

    def prepare(self) -> None:
        javac = _find("javac", "Debian: apt install openjdk-17-jdk-headless")
        try:
            self._jars, self._java = find_jars(), find_java()
        except NoJars as error:
            raise NotHere(str(error)) from error
        (BUILD / "java").mkdir(parents=True, exist_ok=True)
        # The runtime may be older than the compiler.
        command = [javac, "--release", "17", "-cp", f"{self._jars}/*", "-d", str(BUILD / "java"), "Client.java"]
        _build(command, SOURCES / "java")

    def member_with(self, *settings: str) -> Callable[[str, str, str], Member]:
        """Returns what makes a member with these settings, each of the form key=value."""

        def make(bootstrap: str, topic: str, group: str) -> Member:
            command = [*self.command(), "consume", bootstrap, topic, group, *settings]
            return _ProgramMember(command, bootstrap, topic, group, end_signal=None)

        return make

    def command(self) -> list[str]:
        # A small heap and one compiler: the machine has other things to do.
        return [self._java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{BUILD / 'java'}:{self._jars}/*", "Client"]


class _KcatMember(_ProgramMember):
    def take_error_line(self, line: str) -> None:
        found = re.search(r"rebalanced .*: (assigned|revoked): (.*)", line)
        if found is not None:
            listed = re.findall(r"\[(\d+)\]", found[2]) if found[1] == "assigned" else []
            self.assigned = frozenset(map(int, listed))


class Kcat(Client):
    """kcat creates a topic only by writing to it, and cannot delete one, so our own admin client does both."""

    name = "kcat"

    def prepare(self) -> None:
        self._kcat = _find("kcat", "Debian: apt install kcat")

    def compressions(self) -> list[str]:
        return ALL_COMPRESSIONS

    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        create_topic(bootstrap, topic, partitions=partitions)

    def topics(self, bootstrap: str) -> set[str]:
        lines: list[str] = []
        _Running([self._kcat, "-L", "-J", "-b", bootstrap], lines.append, lambda _: None).end()
        return {each["topic"] for each in json.loads("".join(lines))["topics"]}

    def delete(self, bootstrap: str, topic: str) -> None:
        delete_topic(bootstrap, topic)

    def produce(self, bootstrap: str, topic: str, compression: str, records: Iterable[Record]) -> set[str]:
        """kcat chooses the partitions. It ends with status 0 only if every record was acknowledged."""
        command = [self._kcat, "-P", "-b", bootstrap, "-t", topic, "-z", compression]
        running = _Running(command, lambda _: None, lambda _: None)
        given = set()
        for _, value in records:
            running.given.write(f"{value}\n")
            given.add(value)
        running.end()
        return given

    @property
    def member(self) -> Callable[[str, str, str], Member]:
        def make(bootstrap: str, topic: str, group: str) -> Member:
            shown = r'{"read": [%p, %o, "%s"]}\n'
            command = [
                self._kcat,
                "-b",
                bootstrap,
                "-u",
                "-X",
                "auto.offset.reset=earliest",
                "-f",
                shown,
                "-G",
                group,
                topic,
            ]
            return _KcatMember(command, bootstrap, topic, group, end_signal=signal.SIGINT)

        return make


PROGRAMS: list[Client] = [
    Kcat(),
    JavaClient(),
    NodeClient("kafkajs", "kafkajs_client.mjs"),
    NodeClient("@platformatic/kafka", "platformatic_client.mjs", waits_for_isr=False),
    GoClient("franz-go", "franz"),
    GoClient("sarama", "sarama"),
    GoClient("segmentio/kafka-go", "segmentio"),
]
