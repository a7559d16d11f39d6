"""Programs of Apache Kafka's world that are not brokers: their jars, and their processes, which tests kill."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.cluster import until
from tests.interop.apache_kafka import NoJars, download, find_java, logging_option
from tests.interop.our_tools import ROOT


def need_jars(pom: Path, name: str) -> tuple[str, Path]:
    """Returns Java's path and the folder with what this POM asks for. Skips the test if either is missing."""
    try:
        return find_java(), download(pom, ROOT / "build" / name)
    except NoJars as error:
        pytest.skip(f"NOTHING WAS TESTED WITH {name.upper()}: {error}")


def source_command(pom: Path, source: Path, name: str, folder: Path, *options: str) -> list[str]:
    """Returns the command that runs a source file with what this POM asks for, without the program's arguments. Skips the
    test if something is missing."""
    java, jars = need_jars(pom, name)
    if shutil.which("javac") is None:
        pytest.skip(
            f"NOTHING WAS TESTED WITH {name.upper()}: javac is missing (Debian: apt install openjdk-17-jdk-headless)"
        )
    # A program that is killed leaves files there.
    temporary = f"-Djava.io.tmpdir={folder}"
    return [java, *options, temporary, logging_option(folder), "-cp", f"{jars}/*", str(source)]


class JavaProgram:
    """One process, which may be killed and started again. Its output is in `log`."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._position = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._position = output.tell()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def end(self, *, seconds: float) -> None:
        """Asks the program to end, and waits until it has. Fails if it had ended before."""
        self.check()
        assert self._process is not None
        self._process.terminate()
        self._process.wait(seconds)

    def check(self) -> str:
        """Returns what the program has printed since it was started. Fails if it has ended."""
        output = self._log.read_text(errors="replace")[self._position :]
        assert self._process is not None
        assert self._process.poll() is None, output[-3000:]
        return output

    def until_says(self, text: str, *, seconds: float) -> None:
        until(lambda: text in self.check(), f"{self._log.stem} says {text!r}", seconds=seconds)
