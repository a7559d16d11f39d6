"""Restarts the controller, and brokers after a kill that tore their logs, a clean shutdown, or an incomplete one."""

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cluster import WatchedCluster, continue_process, stop_process, until, watched_cluster
from tests.integration.traffic import Promises, Writer, assert_nothing_lost, write_some
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalNode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "t"
METADATA_FOLDER = "__cluster_metadata-0"
FAST = {"broker.heartbeat.interval.ms": "500"}


def active_segment(places: dict[tuple[int, int], str], broker_id: int, index: int) -> Path:
    """Returns the newest segment of a replica."""
    folder = Path(places[broker_id, index]) / f"{TOPIC}-{index}"
    return max(folder.glob("*.log"))


def append_garbage(segment: Path) -> None:
    with segment.open("ab") as file:
        file.write(os.urandom(3000))


def append_half_a_batch(segment: Path) -> None:
    """Appends a batch that is shorter than its length field says, like a write that was cut short."""
    data = segment.read_bytes()
    with segment.open("ab") as file:
        file.write(data[:80])


def flip_a_byte_near_the_end(segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[-5] ^= 0xFF
    segment.write_bytes(data)


def cut_the_end_off(segment: Path) -> None:
    os.truncate(segment, segment.stat().st_size - 7)


def zeros_at_the_end(segment: Path) -> None:
    """Appends zeros, like a file system that extended the file but did not write its data."""
    with segment.open("ab") as file:
        file.write(bytes(5000))


def test_torn_tails_are_cut_to_the_last_valid_batch_after_a_crash(tmp_path: Path) -> None:
    """A killed broker finds garbage, half a batch, a flipped byte, a missing end and zeros at the ends of its logs. It
    truncates each log to its last valid batch and logs that, then fetches the missing records from the leaders. After
    the other brokers stop, this broker must have every acknowledged record, and its newest segments equal broker 2's."""
    wounds = [append_garbage, append_half_a_batch, flip_a_byte_near_the_end, cut_the_end_off, zeros_at_the_end]
    partitions = len(wounds)
    with watched_cluster(tmp_path, disks=2, loop=False, overrides=FAST) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=partitions, configs={"min.insync.replicas": "2"})
        places = cluster.until_placed(TOPIC, 3 * partitions)
        promises = write_some(cluster.bootstrap, TOPIC, partitions=partitions, count=500, size=100)
        broker = cluster.broker(1)
        broker.kill()
        sound = {index: active_segment(places, 1, index).stat().st_size for index in range(partitions)}
        for index, wound in enumerate(wounds):
            wound(active_segment(places, 1, index))
        promises |= write_some(cluster.bootstrap, TOPIC, partitions=partitions, count=500, first=500, size=100)
        broker.start()
        broker.wait_for("broker_running")
        recovered = {event["folder"]: event for event in broker.events() if event["event"] == "log_recovered"}
        assert sorted(recovered) == [f"{TOPIC}-{index}" for index in range(partitions)]
        assert all(event["level"] == "warning" for event in recovered.values())
        cluster.until_in_sync(TOPIC)
        for other in (2, 3):
            assert cluster.broker(other).stop() == 0
        cluster.until_in_sync(TOPIC, size=1)
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=range(partitions))
        assert broker.stop() == 0
        for index in range(partitions):
            mine, theirs = active_segment(places, 1, index).read_bytes(), active_segment(places, 2, index).read_bytes()
            assert len(mine) > sound[index]
            assert mine == theirs


def test_a_controlled_shutdown_moves_the_leaders_before_the_process_ends(tmp_path: Path) -> None:
    """SIGTERM under load: the leaders move before the process exits with status 0, no client sees an error, and the clean
    shutdown markers exist. The next start need not recover any log, and the controller logs a clean restart."""
    with watched_cluster(tmp_path, loop=False, overrides=FAST) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=9, configs={"min.insync.replicas": "2"})
        broker = cluster.broker(1)
        markers = [Path(path) / ".kafka_cleanshutdown" for path in broker.files.data_dirs]
        assert not any(marker.exists() for marker in markers)
        with Writer(cluster.bootstrap, TOPIC, partitions=9) as writer:
            writer.wait_for_acks()
            led = {index for index, (leader, _) in cluster.leadership(TOPIC).items() if leader == 1}
            assert led
            writer.forget_pauses()
            assert broker.stop() == 0
            writer.wait_for_acks()
            pause = writer.longest_pause(range(9))
            parts = cluster.partitions(TOPIC)
            writer.stop()
        assert all(part.leader_id != 1 and 1 not in part.isr_nodes for part in parts.values())
        # Without a controlled shutdown the leaders would move only after the session timeout, 9 s.
        assert pause < 6, f"a partition stood still for {pause:.1f} s"
        assert writer.errors == {}
        assert all(marker.exists() for marker in markers)
        assert order_of(cluster, broker) == ["broker_controlled_shutdown", "broker_fenced", "broker_stopped"]
        broker.start()
        broker.wait_for("broker_running")
        assert not any(marker.exists() for marker in markers), "a marker must not survive the start"
        assert [event for event in broker.events() if event["event"] == "log_recovered"] == []
        registered = [event for event in cluster.all_events(cluster.controller) if event["event"] == "broker_registered"]
        assert registered[-1]["broker_id"] == 1
        assert registered[-1]["is_clean_restart"] is True
        cluster.until_in_sync(TOPIC)
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(9))


def order_of(cluster: WatchedCluster, broker: LocalNode) -> list[str]:
    """Returns the names of the events that belong to the shutdown, from both logs, in the order of their timestamps."""
    names = ("broker_controlled_shutdown", "broker_fenced", "broker_stopped")
    events: list[dict[str, Any]] = [
        event for node in (cluster.controller, broker) for event in cluster.all_events(node) if event["event"] in names
    ]
    return [event["event"] for event in sorted(events, key=lambda event: str(event["timestamp"]))]


def test_everybody_shuts_down_in_order(tmp_path: Path) -> None:
    """Stops and starts the whole cluster: all exit statuses are 0, no log needs recovery, and no record is lost."""
    with watched_cluster(tmp_path, loop=False, overrides=FAST) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=6, configs={"min.insync.replicas": "2"})
        promises = write_some(cluster.bootstrap, TOPIC, partitions=6, count=300)
        for node in [*cluster.brokers, cluster.controller]:
            assert node.stop() == 0
        cluster.start()
        cluster.until_in_sync(TOPIC)
        promises |= write_some(cluster.bootstrap, TOPIC, partitions=6, count=300, first=300)
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=range(6))
        for node in cluster.nodes.values():
            assert [event for event in node.events() if event["event"].endswith("_recovered")] == []


def test_a_second_signal_ends_a_shutdown_that_hangs(tmp_path: Path) -> None:
    """The controller is paused (SIGSTOP), so it cannot move the broker's leaderships away, and the broker's shutdown waits.
    A later SIGTERM ends the broker at once, with status 1 and one line on stderr. No acknowledged record is lost."""
    with watched_cluster(tmp_path, loop=False, overrides=FAST) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=6, configs={"min.insync.replicas": "2"})
        promises = write_some(cluster.bootstrap, TOPIC, partitions=6, count=300)
        broker = cluster.broker(1)
        cluster.expect_end(broker, "^SIGTERM came again")
        stop_process(cluster.controller)
        try:
            broker.signal(signal.SIGTERM)
            broker.wait_for("broker_state_changed", state="PENDING_CONTROLLED_SHUTDOWN")

            def has_ended() -> bool:
                # Within a moment of the first one, a signal counts as the same request.
                broker.signal(signal.SIGTERM)
                return broker.pid is None

            until(has_ended, "the broker ends")
            assert broker.wait_until_ended() == 1
        finally:
            continue_process(cluster.controller)
        assert "SIGTERM came again before the controlled shutdown had ended" in broker.last_line()
        broker.start()
        broker.wait_for("broker_running")
        cluster.until_in_sync(TOPIC)
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=range(6))


@pytest.mark.parametrize(
    ("key", "timeout_ms"), [("diskraft.controlled.shutdown.timeout.ms", 1500), ("broker.session.timeout.ms", 3000)]
)
def test_a_shutdown_without_a_controller_ends_in_order(tmp_path: Path, key: str, timeout_ms: int) -> None:
    """The broker waits no longer than its timeout and the session allow, logs why, and ends cleanly: no log needs recovery
    at the next start."""
    with watched_cluster(tmp_path, brokers=1, disks=1, loop=False, overrides=FAST | {key: str(timeout_ms)}) as cluster:
        broker = cluster.broker(1)
        cluster.controller.kill()
        asked = time.monotonic()
        broker.signal(signal.SIGTERM)
        assert broker.wait_until_ended() == 0
        assert time.monotonic() - asked < timeout_ms / 1000 + 4
        failed, last = [
            each for each in broker.events() if each["event"] in ("controlled_shutdown_failed", "broker_stopped")
        ]
        assert key in failed["reason"]
        assert last["event"] == "broker_stopped"
        assert (Path(broker.files.data_dirs[0]) / ".kafka_cleanshutdown").exists()


# --- the controller ----------------------------------------------------------------------------------------------------


def test_a_restarted_controller_knows_everything_it_knew(tmp_path: Path) -> None:
    """A small metadata.log.max.record.bytes.between.snapshots forces snapshots, and the old log is deleted. After kill -9 of
    the controller, clients see the same metadata as before, and topics can be created, deleted and written. A broker whose
    metadata log was wiped fetches the snapshot and has the same metadata too."""
    overrides = FAST | {
        "metadata.log.max.record.bytes.between.snapshots": "3000",
        "metadata.log.segment.bytes": "8192",
        "metadata.max.retention.bytes": "10000",
        "metadata.max.idle.interval.ms": "100",
    }
    with watched_cluster(tmp_path, disks=2, loop=False, overrides=overrides) as cluster:
        for number in range(8):
            create_topic(cluster.bootstrap, f"{TOPIC}-{number}", partitions=4, configs={"min.insync.replicas": "2"})
        promises = write_some(cluster.bootstrap, f"{TOPIC}-3", partitions=4, count=200)
        cluster.controller.wait_for("metadata_snapshot_written")
        before = everything(cluster)
        cluster.controller.kill()
        # Producing does not need the controller.
        promises |= write_some(cluster.bootstrap, f"{TOPIC}-3", partitions=4, count=200, first=200)
        cluster.controller.start()
        cluster.controller.wait_for("controller_active")
        loaded = cluster.controller.wait_for("metadata_log_loaded")
        assert loaded["snapshot_offset"] > 0
        create_topic(cluster.bootstrap, "after", partitions=2)
        after = everything(cluster)
        assert {name: found for name, found in after.items() if name != "after"} == before
        until(lambda: log_was_cut(cluster.controller), "the old metadata log is let go")
        wipe_metadata_and_restart(cluster, promises)


def everything(cluster: WatchedCluster) -> dict[str, tuple[object, ...]]:
    """Waits until every topic is in sync. Returns the id and the partitions of each."""
    with cluster.admin() as admin:
        topics = admin.metadata().topics
    for topic in topics:
        cluster.until_in_sync(str(topic.name))
    with cluster.admin() as admin:
        return {
            str(topic.name): (
                topic.topic_id,
                *sorted((part.partition_index, part.leader_id, tuple(part.replica_nodes)) for part in topic.partitions),
            )
            for topic in admin.metadata().topics
        }


def log_was_cut(node: LocalNode) -> bool:
    """Whether the first segment of the node's metadata log has been deleted."""
    folder = Path(node.files.metadata_dir) / "__cluster_metadata-0"
    return not (folder / f"{0:020}.log").exists()


def wipe_metadata_and_restart(cluster: WatchedCluster, promises: Promises) -> None:
    """Wipes one broker's metadata log, but not its data, and restarts it."""
    broker = cluster.broker(2)
    known = everything(cluster)
    assert broker.stop() == 0
    folder = Path(broker.files.metadata_dir) / "__cluster_metadata-0"
    for entry in folder.iterdir():
        entry.unlink()
    folder.rmdir()
    broker.start()
    fetched = broker.wait_for("metadata_snapshot_fetched")
    assert fetched["end_offset"] > 0
    broker.wait_for("broker_running")
    cluster.until_in_sync(f"{TOPIC}-3")
    for other in (1, 3):
        assert cluster.broker(other).stop() == 0
    with cluster.admin() as admin:
        topics = {topic.name: topic.topic_id for topic in admin.metadata().topics}
    assert topics == {name: found[0] for name, found in known.items()}
    assert_nothing_lost(cluster.bootstrap, f"{TOPIC}-3", promises, partitions=range(4))


def test_a_lost_controller_comes_back_with_the_metadata_of_a_broker(tmp_path: Path) -> None:
    """The controller's directory is lost. A new one with the copy of a broker's metadata log, as docs/operations.md says,
    brings back the topics and all records."""
    with watched_cluster(tmp_path, disks=2, loop=False, overrides=FAST) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=4, configs={"min.insync.replicas": "2"})
        promises = write_some(cluster.bootstrap, TOPIC, partitions=4, count=100, size=100)
        cluster.stop()
        controller = cluster.controller
        metadata = Path(controller.files.metadata_dir)
        shutil.rmtree(metadata)
        metadata.mkdir()
        assert cluster.format(controller).returncode == 0
        copies = [Path(broker.files.metadata_dir) / METADATA_FOLDER for broker in cluster.brokers]
        longest = max(copies, key=lambda copy: max(copy.glob("*.log")).stat().st_size)
        shutil.copytree(longest, metadata / METADATA_FOLDER)
        cluster.start()
        cluster.until_in_sync(TOPIC)
        promises |= write_some(cluster.bootstrap, TOPIC, partitions=4, count=100, first=100, size=100)
        assert_nothing_lost(cluster.bootstrap, TOPIC, promises, partitions=range(4))
