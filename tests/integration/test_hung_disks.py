"""Disks that hang (fsfreeze, or blocks that never complete): threads block in the kernel where no signal reaches them, and
other disks must not be affected."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.hanging_disks import frozen, hanging
from tests.integration.cluster import WatchedCluster, is_listening, remake_disk, until, watched_cluster
from tests.integration.endings import assert_gone_while_stuck, can_lock, connected
from tests.integration.traffic import Reader, Writer, assert_nothing_lost, write_some
from tests.interop.topics import create_topic
from tools.lab.disk_lab import heal_disk, kill_disk

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("loop_disks")]

TOPIC = "t"
PARTITIONS = 9
TIMEOUT_MS = 3000
OVERRIDES = {
    "diskraft.log.dir.operation.timeout.ms": str(TIMEOUT_MS),
    "broker.heartbeat.interval.ms": "500",
    # Long, because these tests are not about session timeouts and the machine may be busy.
    "broker.session.timeout.ms": "18000",
}


@pytest.mark.usefixtures("faulty_disks")
@pytest.mark.parametrize("hangs", [frozen, hanging])
def test_a_hung_last_disk_ends_the_process(tmp_path: Path, hangs: Callable[[Path], AbstractContextManager[None]]) -> None:
    """One of the broker's two disks is dead already when the other one hangs. The process halts although a thread hangs: its
    port is closed, its connections end, and the lock of its healthy metadata directory is free."""

    def with_blocks_that_can_hang(cluster: WatchedCluster) -> None:
        remake_disk(cluster.broker(1).files.data_dirs[1], size_mib=128, faulty=True)
        cluster.format(cluster.broker(1))

    with watched_cluster(tmp_path, disks=2, overrides=OVERRIDES, prepare=with_blocks_that_can_hang) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=4, configs={"min.insync.replicas": "2"})
        broker = cluster.broker(1)
        dead, hung = broker.files.data_dirs
        cluster.expect_end(broker, f"the last log directory {hung} failed: .*ETIMEDOUT")
        with Writer(cluster.bootstrap, TOPIC, partitions=4) as writer:
            writer.wait_for_acks()
            kill_disk(Path(dead))
            broker.wait_for("log_dir_offline", log_dir=dead)
            with connected(broker) as client, hangs(Path(hung)):
                assert_gone_while_stuck(broker, client, healthy=[broker.files.metadata_dir])
                writer.wait_for_acks()
                # The broker reported its loss in its last heartbeat, so it was fenced before its session could time out.
                assert fenced_reason(cluster) == "every log directory is lost"
            assert broker.wait_until_ended() == 1
            writer.stop()
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(4))


def test_a_broker_that_is_told_to_end_while_a_disk_hangs(tmp_path: Path) -> None:
    """On SIGTERM the broker shuts down its healthy directories and exits although a thread hangs. The hung thread keeps the
    process in the kernel, but its port is closed and its healthy directories are unlocked."""
    with watched_cluster(tmp_path, disks=2, overrides=OVERRIDES) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=4, configs={"min.insync.replicas": "2"})
        broker = cluster.broker(1)
        healthy, hung = broker.files.data_dirs
        with Writer(cluster.bootstrap, TOPIC, partitions=4) as writer:
            writer.wait_for_acks()
            with connected(broker) as client, frozen(Path(hung)):
                broker.wait_for("log_dir_offline", log_dir=hung)
                broker.signal(signal.SIGTERM)
                broker.wait_for("broker_stopped")
                until(lambda: not is_listening(broker.files.port), "the port is closed")
                assert client.recv(1) == b"", "an established connection sees its end"
                for path in (healthy, broker.files.metadata_dir):
                    until(lambda path=path: can_lock(path), f"the lock of {path} is free")  # type: ignore[misc]
                writer.wait_for_acks()
            assert broker.wait_until_ended() == 0
            broker.start()
            broker.wait_for("broker_running")
            cluster.until_in_sync(TOPIC)
            writer.stop()
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(4))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_producer_goes_on_with_the_other_disks_while_one_hangs(tmp_path: Path, replicas: int) -> None:
    """One producer writes to all disks. A disk freezes for less than the deadline of its operations. Answers leave a
    connection in order, so without the suspicion nothing would be acknowledged until the disk thaws: neither by its broker
    nor by another one whose followers are on this disk. Nothing is lost, and no leader changes."""
    deadline_ms = 60_000
    overrides = OVERRIDES | {"diskraft.log.dir.operation.timeout.ms": str(deadline_ms)}
    with watched_cluster(tmp_path, brokers=2, disks=2, overrides=overrides) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=replicas)
        broker = cluster.broker(1)
        hung = Path(broker.files.data_dirs[1])
        waiting = {int(folder.name.rpartition("-")[2]) for folder in hung.glob(f"{TOPIC}-*")}
        healthy = set(range(PARTITIONS)) - waiting
        assert waiting
        assert any(Path(broker.files.data_dirs[0]).glob(f"{TOPIC}-*"))
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS) as writer:
            writer.wait_for_acks()
            writer.forget_pauses()
            with frozen(hung):
                broker.wait_for("log_dir_suspected", log_dir=str(hung))
                for _ in range(20):
                    writer.wait_for_acks(healthy)
                pause = writer.longest_pause(healthy)
            broker.wait_for("log_dir_trusted", log_dir=str(hung))
            writer.wait_for_acks()
            writer.stop()
        print(f"longest pause of a healthy partition: {pause:.2f} s")
        assert pause < deadline_ms / 1000 / 10
        assert not any(event["event"] == "log_dir_offline" for event in broker.events())
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))


@pytest.mark.usefixtures("faulty_disks")
def test_a_consumer_goes_on_with_the_other_disks_while_one_hangs(tmp_path: Path) -> None:
    """One consumer reads from all disks, from the beginning. The reads of one disk never end, and nothing of it is in the
    page cache. The consumer gets the records of the other disk although the first answer had begun to wait for that one, and
    the rest once the disk goes on."""
    deadline_ms = 60_000
    overrides = OVERRIDES | {"diskraft.log.dir.operation.timeout.ms": str(deadline_ms)}

    def with_blocks_that_can_hang(cluster: WatchedCluster) -> None:
        remake_disk(cluster.broker(1).files.data_dirs[1], size_mib=256, faulty=True)
        cluster.format(cluster.broker(1))

    with watched_cluster(tmp_path, brokers=1, disks=2, overrides=overrides, prepare=with_blocks_that_can_hang) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, replication_factor=1)
        broker = cluster.broker(1)
        hung = Path(broker.files.data_dirs[1])
        waiting = {int(folder.name.rpartition("-")[2]) for folder in hung.glob(f"{TOPIC}-*")}
        assert 0 < len(waiting) < PARTITIONS
        promises = write_some(cluster.bootstrap, TOPIC, partitions=PARTITIONS, count=9000, size=1000)
        forget_pages(hung)
        with hanging(hung), Reader(cluster.bootstrap, TOPIC, partitions=PARTITIONS) as reader:
            began = time.monotonic()
            reader.wait_for({place: number for place, number in promises.items() if place[0] not in waiting})
            pause = time.monotonic() - began
            assert not reader.found.keys() >= promises.keys(), "no read has hung"
            heal_disk(hung)
            reader.wait_for(promises)
        print(f"the records of the healthy disk came after {pause:.2f} s")
        assert pause < deadline_ms / 1000 / 10
        assert not any(event["event"] == "log_dir_offline" for event in broker.events())


def forget_pages(log_dir: Path) -> None:
    """Drops what the page cache has of the segments in this directory."""
    for path in log_dir.glob("*/*.log"):
        with path.open("rb+") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def fenced_reason(cluster: WatchedCluster) -> str:
    """Returns why the controller fenced the broker that halted."""
    return str(cluster.controller.wait_for("broker_fenced")["reason"])
