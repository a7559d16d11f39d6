"""A cluster of real daemons for the integration tests.

`WatchedCluster` is the LocalCluster of `diskraft local` with helpers for tests. The context manager `watched_cluster`
creates one and reads its logs at the end. It fails the test if it finds a traceback, an unexpected critical event, or a line
that is not an event. It then removes every process, mount and loop device. It thaws frozen disks first, because they could
not be unmounted.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from common.protocol.messages.metadata import MetadataResponsePartition
from tests.blocking_admin import BlockingAdmin
from tests.integration.loop_disks import loop_devices_under, mounts_under, unmount_lazily
from tests.integration.standstills import Standstills
from tools.lab import faulty_image
from tools.lab.disk_lab import Disk, make_disk, remove_disk, thaw, why_no_loop_disks
from tools.lab.local_cluster import LocalCluster, LocalNode

T = TypeVar("T")

SECONDS_MAX = 60.0
POLL_SECONDS = 0.02
# Limits for the report of a failed test, so that it does not bury the failure itself.
TOLD_EVENTS = 15
TOLD_CHARACTERS = 80
ROOT = Path(__file__).resolve().parents[2]


def until(probe: Callable[[], T | None], what: str, *, seconds: float = SECONDS_MAX) -> T:
    """Polls `probe` until its result is neither None nor False, and returns this result. A test has to poll, because it
    cannot await a change in another process."""
    deadline = time.monotonic() + seconds
    while True:
        found = probe()
        if found is not None and found is not False:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)


def need_loop_disks(folder: Path, *, faulty: bool = False) -> None:
    """Skips the test if loop-mounted disks cannot be created here. In CI the test fails instead, so that the missing
    coverage is noticed."""
    reason = why_no_loop_disks(folder, faulty=faulty)
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must be able to make loop-mounted disks: {reason}")
    pytest.skip(f"no loop-mounted disks here, this was NOT tested: {reason}")


def run_tool(module: str, *arguments: str, seconds: float = SECONDS_MAX) -> "subprocess.CompletedProcess[str]":
    """Runs a command line tool, or a daemon that ends by itself, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        cwd=ROOT,
        env=os.environ | {"LOG_FORMAT": "json"},
    )


def lines_of(log: Path) -> list[str]:
    """Returns the lines of a daemon's log, without an event that is still being written."""
    text = log.read_text(errors="replace")
    lines = text.splitlines()
    if lines and lines[-1].startswith("{") and not text.endswith("\n"):
        lines.pop()
    return lines


class WatchedCluster(LocalCluster):
    """A LocalCluster with helpers for tests that kill its nodes and disks."""

    expected_ends: dict[str, str]
    """Name of a node that may halt -> regular expression for the reason that it must log."""
    standstills: Standstills
    """How long the machine itself stood still, for tests with time limits."""

    # --- asking --------------------------------------------------------------------------------------------------

    def admin(self) -> BlockingAdmin:
        """Returns an admin client that knows the running brokers."""
        running = [node for node in self.brokers if node.pid is not None]
        return BlockingAdmin(",".join(node.files.address for node in running))

    def partitions(self, topic: str) -> dict[int, MetadataResponsePartition]:
        """Returns the description of each of the topic's partitions from a Metadata response."""
        with self.admin() as admin:
            (found,) = admin.metadata([topic]).topics
        return {part.partition_index: part for part in found.partitions}

    def leadership(self, topic: str) -> dict[int, tuple[int, int]]:
        """Returns the leader and the leader epoch of each partition."""
        return {index: (part.leader_id, part.leader_epoch) for index, part in self.partitions(topic).items()}

    def places(self, topic: str, *, only: int | None = None) -> dict[tuple[int, int], str]:
        """Returns the directory path of each replica by (broker, partition). Covers running brokers and online directories
        only."""
        with self.admin() as admin:
            return {
                (broker_id, part.partition_index): result.log_dir
                for broker_id in sorted(admin.brokers())
                if only in (None, broker_id)
                for result in admin.log_dirs(broker_id)
                for found in result.topics
                if found.name == topic
                for part in found.partitions
            }

    def until_in_sync(
        self, topic: str, *, size: int = 3, partitions: Sequence[int] | None = None, seconds: float = SECONDS_MAX
    ) -> None:
        """Waits until each partition (or each of `partitions`) has a leader and an ISR of this size."""

        def looks() -> bool:
            found = self.partitions(topic)
            asked = [found[index] for index in (found if partitions is None else partitions)]
            return all(part.leader_id >= 0 and len(part.isr_nodes) == size for part in asked)

        until(looks, f"{topic} with {size} replicas in sync", seconds=seconds)

    def until_placed(self, topic: str, count: int) -> dict[tuple[int, int], str]:
        """Waits until `count` replicas have a log in some directory. Returns the directory path of each by (broker,
        partition)."""

        def look() -> dict[tuple[int, int], str] | None:
            found = self.places(topic)
            return found if len(found) == count else None

        return until(look, f"{count} replicas of {topic} in directories")

    # --- changing ------------------------------------------------------------------------------------------------

    def set_properties(self, node: LocalNode, **properties: str) -> None:
        """Sets keys in a node's server.properties. In argument names '_' stands for '.'. The node must not be running."""
        path = Path(node.files.config)
        changed = {key.replace("_", "."): value for key, value in properties.items()}
        kept = [line for line in path.read_text().splitlines() if line.partition("=")[0] not in changed]
        path.write_text("".join(f"{line}\n" for line in [*kept, *(f"{key}={value}" for key, value in changed.items())]))

    def format(self, node: LocalNode) -> "subprocess.CompletedProcess[str]":
        """Formats the node's unformatted directories, as an operator does after replacing a disk."""
        arguments = ["format", "--config", node.files.config, "--cluster-id", self.cluster_id, "--ignore-formatted"]
        done = run_tool("tools.kafka.storage", *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def expect_end(self, node: LocalNode, reason: str) -> None:
        """Allows this node to halt for this reason (a regular expression)."""
        self.expected_ends[node.files.name] = reason

    # --- judging -------------------------------------------------------------------------------------------------

    def all_events(self, node: LocalNode) -> Iterator[dict[str, Any]]:
        """Yields every event of the node, including those before its last start."""
        for line in lines_of(Path(node.files.log)):
            if line.startswith("{"):
                yield json.loads(line)

    def suspicious_lines(self) -> list[str]:
        """Returns the lines of the daemons' logs that should never appear, except those that the test expects."""
        found: list[str] = []
        for name, node in self.nodes.items():
            log = Path(node.files.log)
            lines = lines_of(log) if log.exists() else []
            found.extend(f"{name}: {line}" for line in lines if self._is_suspicious(name, line))
        return found

    def _is_suspicious(self, name: str, line: str) -> bool:
        if not line.startswith("{"):
            expected = self.expected_ends.get(name)
            return expected is None or re.search(expected, line) is None
        event = json.loads(line)
        if "exception" in event or "exc_info" in event:
            return True
        if event["level"] != "critical":
            return False
        expected = self.expected_ends.get(name)
        return expected is None or re.search(expected, str(event.get("reason"))) is None

    def tell(self) -> None:
        """Prints the important events of every node, one per line, for the report of a failed test."""
        for name, node in self.nodes.items():
            if Path(node.files.log).exists():
                events = [
                    event
                    for event in self.all_events(node)
                    if event["level"] not in ("info", "debug")
                    or event["event"].startswith(("log_dir", "broker_", "leaders"))
                ]
                print(f"--- {name} ({node.files.log}), the last of {len(events)} events worth a look")
                print("\n".join(_brief(event) for event in events[-TOLD_EVENTS:]))


def _brief(event: dict[str, Any]) -> str:
    """Formats an event in one line: its time, its name, and its fields, each cut to a useful length."""
    known = ("node", "event", "level", "timestamp")
    fields = (f"{key}={str(value)[-TOLD_CHARACTERS:]}" for key, value in event.items() if key not in known)
    return " ".join((event["timestamp"].partition("T")[2], event["event"], *fields))


@contextmanager
def watched_cluster(
    folder: Path,
    *,
    brokers: int = 3,
    disks: int = 3,
    loop: bool = True,
    disk_mib: int = 128,
    overrides: dict[str, str] | None = None,
    prepare: Callable[[WatchedCluster], None] | None = None,
) -> Iterator[WatchedCluster]:
    """Runs a cluster, then checks its logs and removes its processes and disks. `prepare` is called after formatting and
    before the start."""
    home = folder / "cluster"
    is_fine = False
    folder.mkdir(parents=True, exist_ok=True)
    with Standstills(folder) as standstills, disks_taken_away(home):
        cluster = WatchedCluster.create(
            home, brokers=brokers, disks=disks, loop=loop, disk_mib=disk_mib, overrides=overrides
        )
        assert isinstance(cluster, WatchedCluster)
        cluster.expected_ends = {}
        cluster.standstills = standstills
        try:
            if prepare is not None:
                prepare(cluster)
            cluster.start()
            yield cluster
            suspicious = cluster.suspicious_lines()
            assert suspicious == []
            is_fine = True
        finally:
            # Do this first: no process may survive, even if printing the report fails.
            with uninterrupted():
                end_every_fault(home)
                cluster.kill()
            if not is_fine:
                cluster.tell()
    if is_fine and os.environ.get("DISKRAFT_KEEP") != "true":
        shutil.rmtree(home)


@contextmanager
def disks_taken_away(folder: Path) -> Iterator[None]:
    """On exit, removes every mount, loop device and disk image below the folder."""
    try:
        yield
    finally:
        with uninterrupted():
            end_every_fault(folder)
            for mount in mounts_under(folder):
                unmount_lazily(mount)
            until(lambda: not loop_devices_under(folder), f"every loop device under {folder} released")
            for image in folder.rglob("*.img"):
                image.unlink()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds SIGINT and SIGTERM back until the end of the block. pytest-xdist, for one, interrupts its workers some seconds
    after the main process has ended, wherever they are."""
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda each, _: came.append(each)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


def end_every_fault(folder: Path) -> None:
    """Ends all hangs and freezes in a cluster's folder, so that its disks can be unmounted."""
    # The control files lie beside the mount points. Do not search below them: listing a hung disk would hang too.
    for control in folder.glob("*/*.faults"):
        faulty_image.set_mode(control, "ok")
    for watchdog in folder.glob("*/*.frozen"):
        thaw(Disk(watchdog.with_suffix("")))


def remake_disk(path: str, *, size_mib: int, file_system: str = "ext4", faulty: bool = False) -> None:
    """Replaces a disk by an empty one with this size and file system. No process may be using the disk."""
    remove_disk(Path(path))
    make_disk(Path(path), size_mib=size_mib, file_system=file_system, faulty=faulty)


def directory_id(path: str) -> str:
    """Returns the directory.id in meta.properties, as logs and metrics show it."""
    for line in (Path(path) / "meta.properties").read_text().splitlines():
        if line.startswith("directory.id="):
            return line.partition("=")[2]
    raise AssertionError(f"{path}/meta.properties has no directory.id")


def is_listening(port: int, host: str = "127.0.0.1") -> bool:
    """Whether the port accepts connections."""
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex((host, port)) == 0


def open_files_under(node: LocalNode, path: str) -> list[str]:
    """Returns the files that a running node has open at or below the path, including deleted ones."""
    found: list[str] = []
    for link in Path(f"/proc/{node.pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except FileNotFoundError:
            continue
        if target == path or target.startswith(f"{path}/"):
            found.append(target)
    return found


def stop_process(node: LocalNode) -> None:
    """Sends SIGSTOP. The node stops answering, but its connections stay open."""
    node.signal(signal.SIGSTOP)


def continue_process(node: LocalNode) -> None:
    node.signal(signal.SIGCONT)
