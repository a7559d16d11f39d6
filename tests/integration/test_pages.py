"""Runs the commands of README.md and docs/operations.md exactly as the pages print them.

The pages use fixed ports and folders. So the commands run in a network of their own, with a folder of the test as /tmp.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.cluster import ROOT, SECONDS_MAX, until
from tests.integration.monitoring import need_program, not_testable
from tests.interop.waiting import until_equal

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

CLUSTER = "/tmp/cluster"
# Commands in the text and in tables, unlike the mere names of commands, say which cluster they are for.
COMMAND_IN_TEXT = re.compile(r"`([^`]*--bootstrap-server [^`]*)`")


def section(page: str, heading: str) -> str:
    """Returns the text of a section of a page."""
    parts = re.split(r"^## (.*)\n", (ROOT / page).read_text(), flags=re.MULTILINE)
    return parts[parts.index(heading) + 1]


class Commands:
    """The commands of a section, in the order of the page. Each must be taken once."""

    def __init__(self, text: str) -> None:
        self.rest: list[str] = []
        lines = iter(text.splitlines())
        for line in lines:
            if not line.startswith("    "):
                self.rest += COMMAND_IN_TEXT.findall(line)
                continue
            command = line.removeprefix("    ")
            if document := re.search(r"<<'(\w+)'", command):
                for more in lines:
                    command += f"\n{more.removeprefix('    ')}"
                    if more.strip() == document[1]:
                        break
            self.rest.append(command)

    def take(self, beginning: str) -> str:
        """Returns the next command, which must begin like this."""
        command = self.rest.pop(0)
        assert command.startswith(beginning), f"{command!r} is not the command that the test expects here: {beginning!r}"
        return command


class Terminal:
    """Runs commands as a user does who has activated the virtual environment."""

    def __init__(self, process_id: int, folder: Path) -> None:
        self._enter = ("nsenter", f"--target={process_id}", "--mount", "--net", "--pid", "--wd")
        self.tmp = folder

    def outside(self, path: str) -> str:
        """Returns where the test finds a path that the commands see below /tmp."""
        return str(self.tmp / Path(path).relative_to("/tmp"))

    def __call__(self, command: str) -> list[str]:
        """Returns the lines that the command prints. It must succeed."""
        done = subprocess.run(
            [*self._enter, "bash", "-c", f"set -o pipefail; {command}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
            env=_environment(),
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.splitlines()

    def watch(self, command: str, text: str, *, times: int) -> None:
        """Runs a command that prints until Ctrl-C. Interrupts it when this text has been printed so many times."""
        process = subprocess.Popen(
            [*self._enter, "bash", "-c", f"exec {command}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=_environment(),
        )
        assert process.stdout is not None
        try:
            found = sum(1 for _ in zip(range(times), (line for line in process.stdout if text in line), strict=False))
            os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
            process.wait()
        assert (found, errors) == (times, ""), command


def _environment() -> dict[str, str]:
    # The commands are those of this checkout, wherever the virtual environment was made.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@contextmanager
def terminal(folder: Path) -> Iterator[Terminal]:
    """Opens a terminal with a network of its own and with this folder as /tmp. At the end, every process that was started in
    it is killed."""
    need_program("unshare", "util-linux")
    # A dead disk of another test can only be mounted afresh if it is mounted nowhere else, so not here either.
    script = (
        "grep '^/dev/loop' /proc/self/mounts | cut -d ' ' -f 2 | xargs -r umount --lazy; "
        'for kept in "$@"; do mkdir -p "$0/$kept" && mount --bind "/tmp/$kept" "$0/$kept" || exit; done; '
        'mount --rbind "$0" /tmp && ip link set lo up && cd /tmp && echo ready && exec sleep infinity'
    )
    # If the checkout or the virtual environment is below /tmp, the commands still need it there.
    kept = [str(path.relative_to("/tmp")) for path in (ROOT, Path(sys.prefix)) if path.is_relative_to("/tmp")]
    process = subprocess.Popen(
        [
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            script,
            str(folder),
            *kept,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        if process.stdout.readline() != "ready\n":
            not_testable(f"no namespaces here: {process.stderr.read()}")
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        yield Terminal(int(child), folder)
    finally:
        process.kill()
        process.communicate()


def until_in(terminal: Terminal, disk: str) -> None:
    """Waits until this disk of broker 1, and no other, has the replica of t-0."""
    until(
        lambda: [str(path.parent) for path in terminal.tmp.glob("cluster/broker-1/disk-*/t-0")] == [terminal.outside(disk)],
        f"t-0 in {disk} only",
    )


def move_events(terminal: Terminal, target: str) -> list[str]:
    """Returns the events of broker 1 on moves to this disk."""
    log = Path(terminal.outside(f"{CLUSTER}/broker-1.log"))
    events = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]
    return [event["event"] for event in events if event["event"].startswith("move_") and event.get("target") == target]


def move_away(terminal: Terminal) -> None:
    """Moves the replica to a disk that no command of the page names, so that the next command has something to move."""
    aside = f"{CLUSTER}/broker-1/disk-1"
    terminal(f"diskraft disks move --bootstrap-server 127.0.0.1:9092 t-0 1:{aside}")
    until_in(terminal, aside)


def test_the_commands_that_show_directories_groups_and_records(tmp_path: Path) -> None:
    """Starts the cluster with the README's commands, and runs those of the two sections before the moves in their order."""
    need_program("kcat", "kcat")
    start = Commands(section("README.md", "Run it"))
    directories = Commands(section("docs/operations.md", "What is where"))
    groups = Commands(section("docs/operations.md", "Groups and records"))
    with terminal(tmp_path) as run:
        start.take("make")
        for beginning in ("diskraft local up", "kafka-topics", "kafka-topics", "kafka-log-dirs", "seq 1000 | kcat -P"):
            run(start.take(beginning))
        for _ in range(2):
            (line,) = run(directories.take("kafka-log-dirs"))[-1:]
            assert f"{CLUSTER}/broker-1/disk-1" in line
        (tmp_path / "show.py").write_text("\n".join(directories.rest))
        assert [line.split()[0] for line in run("python show.py")] == ["1", "2", "3"]

        run(groups.take("printf"))
        read = run(groups.take("kafka-console-consumer"))
        assert len(read) == 1002
        assert {"k1\tone", "k2\ttwo"} <= set(read)
        assert run(groups.take("kafka-consumer-groups"))[1].split() == ["g", "Empty"]
        described = [line.split() for line in run(groups.take("kafka-consumer-groups")) if line][1:]
        # kcat may have left a partition without a record.
        assert sum(int(row[3]) for row in described if row[:2] == ["g", "t"]) == 1002
        assert [line.split() for line in run(groups.take("kafka-consumer-groups")) if line][1:] == [
            ["g", "t", "0", "0"],
            ["g", "t", "1", "0"],
        ]
        assert run(groups.take("kafka-configs"))[-1] == "Completed updating config for group g."
        assert run(groups.take("kafka-producer-perf-test"))[-1].startswith("100000 records sent")
        assert ", 100000, " in run(groups.take("kafka-consumer-perf-test"))[1]
        assert groups.rest == []
        run("diskraft local down --dir /tmp/cluster --delete")


def test_the_commands_that_move_data(tmp_path: Path) -> None:
    """Starts the cluster with the README's commands, follows its link to the section on moves, and runs every command there.
    Each command must do what the section says."""
    need_program("kcat", "kcat")
    readme, text = section("README.md", "Run it"), section("docs/operations.md", "Move data between disks")
    assert "(docs/operations.md#move-data-between-disks)" in readme
    start, moves = Commands(readme), Commands(text)
    with terminal(tmp_path) as run:
        # The virtual environment of the tests stands for the one of this command.
        assert start.take("make") == "make .venv/.demo && . .venv/bin/activate"
        run(start.take("diskraft local up"))
        run(start.take("kafka-topics"))
        assert "PartitionCount: 6" in run(start.take("kafka-topics"))[0]
        assert f'"{CLUSTER}/broker-3/disk-3"' in run(start.take("kafka-log-dirs"))[-1]
        run(start.take("seq 1000 | kcat -P"))
        assert run(start.take("kcat -C")) == ["1000"]
        assert sum("running" in line for line in run(start.take("diskraft local status"))) == 4

        target = f"{CLUSTER}/broker-1/disk-2"
        move_away(run)
        listing = moves.take("diskraft disks list")
        assert sum(f"{CLUSTER}/broker-" in line for line in run(listing)) == 9
        run(moves.take("diskraft disks move"))
        run.watch(moves.take("diskraft disks list"), target, times=2)
        until_in(run, target)
        steps = re.findall(r"^\d\. `(\w+)`:", text, re.MULTILINE)
        until(lambda: move_events(run, target) == steps, f"{steps} in the broker's log")

        move_away(run)
        run(moves.take("cat > moves.json"))
        started = f"Successfully started moving log directory to {target} for replica t-0 with broker 1 "
        assert run(moves.take("kafka-reassign-partitions"))[-1] == started
        until_in(run, target)
        verify = moves.take("kafka-reassign-partitions")
        # The replica is there before the broker has told the controller so.
        until_equal(
            lambda: run(verify)[:3],
            [
                "Status of partition reassignment:",
                "Reassignment of partition t-0 is completed.",
                "Reassignment of replica t-0-1 completed successfully.",
            ],
        )

        move_away(run)
        (tmp_path / "move.py").write_text(f"{moves.take('from kafka')}\n{moves.take('KafkaAdminClient')}\n")
        run("python -W ignore::DeprecationWarning move.py")
        until_in(run, target)

        assert run(moves.take("kafka-configs")) == ["Completed updating config for broker 1."]
        assert run(moves.take("kafka-features")) == ["metadata.version was upgraded to 30."]
        assert run(moves.take("kafka-configs")) == ["Completed updating config for broker 1."]
        until(lambda: sum("online, cordoned" in line for line in run(listing)) == 1, "the cordon is shown")
        assert run(moves.take("kafka-configs")) == ["Completed updating config for broker 1."]
        assert moves.rest == []
        assert run(start.take("diskraft local down")) == ["stopped and deleted"]
        assert not (tmp_path / "cluster").exists()
