"""A cluster of real daemons as the integration tests use it: made, watched, and taken away whatever happens.

`WatchedCluster` is the LocalCluster of `diskraft local` with what a test asks of it. At its end every process is gone, every
mount and loop device too, and the logs have been read: a line that is no event, a traceback, or a critical event that the
test did not announce fails it. Easy to get wrong: a frozen disk must be thawed before anything is taken away.
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
from tests.integration.loop_disks import loop_devices_under, mounts_under, unmount_lazily
from tests.integration.standstills import Standstills
from tools.kafka.admin_client import AdminClient
from tools.kafka.log_dirs import describe_broker
from tools.lab import faulty_image
from tools.lab.disk_lab import Disk, make_disk, remove_disk, thaw, why_no_loop_disks
from tools.lab.local_cluster import LocalCluster, LocalNode

T = TypeVar("T")

SECONDS_MAX = 60.0
POLL_SECONDS = 0.02
# What is told of a failed test must not hide why it failed.
TOLD_EVENTS = 15
TOLD_CHARACTERS = 80
ROOT = Path(__file__).resolve().parents[2]


def until(probe: Callable[[], T | None], what: str, *, seconds: float = SECONDS_MAX) -> T:
    """The first result of `probe` that is neither None nor False. What is asked of other processes has no event to await."""
    deadline = time.monotonic() + seconds
    while True:
        found = probe()
        if found is not None and found is not False:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)


def need_loop_disks(folder: Path, *, faulty: bool = False) -> None:
    """Skips the test where no loop-mounted disks can be made; fails it in CI, where nothing may go untested unnoticed."""
    reason = why_no_loop_disks(folder, faulty=faulty)
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must be able to make loop-mounted disks: {reason}")
    pytest.skip(f"no loop-mounted disks here, this was NOT tested: {reason}")


def run_tool(module: str, *arguments: str, seconds: float = SECONDS_MAX) -> "subprocess.CompletedProcess[str]":
    """One of the command line tools, or a daemon that ends by itself, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        cwd=ROOT,
        env=os.environ | {"LOG_FORMAT": "json"},
    )


class WatchedCluster(LocalCluster):
    """A LocalCluster that a test kills pieces of."""

    expected_ends: dict[str, str]
    """Node -> pattern of the reason, for nodes that may halt."""
    standstills: Standstills
    """What the machine itself takes away, for tests that judge by time."""

    # --- asking --------------------------------------------------------------------------------------------------

    def admin(self) -> AdminClient:
        """A client of any broker that runs."""
        running = [node for node in self.brokers if node.pid is not None]
        return AdminClient(",".join(node.files.address for node in running))

    def partitions(self, topic: str) -> dict[int, MetadataResponsePartition]:
        """What the first running broker says of the topic, by partition."""
        with self.admin() as admin:
            (found,) = admin.metadata([topic]).topics
        return {part.partition_index: part for part in found.partitions}

    def leadership(self, topic: str) -> dict[int, tuple[int, int]]:
        """Leader and leader epoch of each partition."""
        return {index: (part.leader_id, part.leader_epoch) for index, part in self.partitions(topic).items()}

    def places(self, topic: str, *, only: int | None = None) -> dict[tuple[int, int], str]:
        """(Broker, partition) -> path of the directory that holds the replica; brokers that run, online directories."""
        with self.admin() as admin:
            return {
                (broker_id, part.partition_index): result.log_dir
                for broker_id, address in sorted(admin.brokers().items())
                if only in (None, broker_id)
                for result in describe_broker(admin, address)
                for found in result.topics
                if found.name == topic
                for part in found.partitions
            }

    def until_in_sync(
        self, topic: str, *, size: int = 3, partitions: Sequence[int] | None = None, seconds: float = SECONDS_MAX
    ) -> None:
        """Waits until each partition (or those) has a leader and an ISR of that size."""

        def looks() -> bool:
            found = self.partitions(topic)
            asked = [found[index] for index in (found if partitions is None else partitions)]
            return all(part.leader_id >= 0 and len(part.isr_nodes) == size for part in asked)

        until(looks, f"{topic} with {size} replicas in sync", seconds=seconds)

    def until_placed(self, topic: str, count: int) -> dict[tuple[int, int], str]:
        """Waits until so many replicas have their log in some directory."""

        def look() -> dict[tuple[int, int], str] | None:
            found = self.places(topic)
            return found if len(found) == count else None

        return until(look, f"{count} replicas of {topic} in directories")

    # --- changing ------------------------------------------------------------------------------------------------

    def set_properties(self, node: LocalNode, **properties: str) -> None:
        """Sets keys of one node's server.properties; '_' stands for '.'. The node must not run."""
        path = Path(node.files.config)
        changed = {key.replace("_", "."): value for key, value in properties.items()}
        kept = [line for line in path.read_text().splitlines() if line.partition("=")[0] not in changed]
        path.write_text("".join(f"{line}\n" for line in [*kept, *(f"{key}={value}" for key, value in changed.items())]))

    def format(self, node: LocalNode) -> "subprocess.CompletedProcess[str]":
        """What an operator does after a disk was replaced."""
        arguments = ["format", "--config", node.files.config, "--cluster-id", self.cluster_id, "--ignore-formatted"]
        done = run_tool("tools.kafka.storage", *arguments)
        assert done.returncode == 0, done.stderr
        return done

    def expect_end(self, node: LocalNode, reason: str) -> None:
        """From now on this node may halt for this reason (a regular expression)."""
        self.expected_ends[node.files.name] = reason

    # --- judging -------------------------------------------------------------------------------------------------

    def all_events(self, node: LocalNode) -> Iterator[dict[str, Any]]:
        """Every event of the node, also those before its last start."""
        for line in Path(node.files.log).read_text().splitlines():
            if line.startswith("{"):
                yield json.loads(line)

    def suspicious_lines(self) -> list[str]:
        """Lines of the daemons' logs that nobody should ever see, unless the test announced them."""
        found: list[str] = []
        for name, node in self.nodes.items():
            log = Path(node.files.log)
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
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
        """Prints the warnings and errors of every node, a line each, for the report of a failed test."""
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
    """When, what, and the fields, each no longer than what still says something."""
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
    """A running cluster. `prepare` changes it after it was formatted, before it starts."""
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
            # First of all: whatever goes wrong in telling, no process may stay.
            end_every_fault(home)
            cluster.kill()
            if not is_fine:
                cluster.tell()
    if is_fine and os.environ.get("DISKRAFT_KEEP") != "true":
        shutil.rmtree(home)


@contextmanager
def disks_taken_away(folder: Path) -> Iterator[None]:
    """Afterwards nothing is mounted below the folder, no loop device is held and no image is left."""
    try:
        yield
    finally:
        end_every_fault(folder)
        for mount in mounts_under(folder):
            unmount_lazily(mount)
        until(lambda: not loop_devices_under(folder), f"every loop device under {folder} released")
        for image in folder.rglob("*.img"):
            image.unlink()


def end_every_fault(folder: Path) -> None:
    """What hangs or is frozen in a cluster's folder goes on, or nothing could be unmounted."""
    # Not deeper: to list a disk that hangs would hang too.
    for control in folder.glob("*/*.faults"):
        faulty_image.set_mode(control, "ok")
    for watchdog in folder.glob("*/*.frozen"):
        thaw(Disk(watchdog.with_suffix("")))


def remake_disk(path: str, *, size_mib: int, file_system: str = "ext4", faulty: bool = False) -> None:
    """An empty disk of another kind in the place of this one. Nobody may be using it."""
    remove_disk(Path(path))
    make_disk(Path(path), size_mib=size_mib, file_system=file_system, faulty=faulty)


def directory_id(path: str) -> str:
    """The id in the directory's meta.properties, as logs and metrics show it."""
    for line in (Path(path) / "meta.properties").read_text().splitlines():
        if line.startswith("directory.id="):
            return line.partition("=")[2]
    raise AssertionError(f"{path}/meta.properties has no directory.id")


def is_listening(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody accepts connections there."""
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex((host, port)) == 0


def open_files_under(node: LocalNode, path: str) -> list[str]:
    """What the running node has open at or below the path, the descriptors of deleted files included."""
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
    """SIGSTOP: it answers nobody, and its connections stay."""
    node.signal(signal.SIGSTOP)


def continue_process(node: LocalNode) -> None:
    node.signal(signal.SIGCONT)
