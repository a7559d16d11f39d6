"""kafka-reassign-partitions on real daemons: replicas move to given directories of the same and of another broker while a
client writes, moves are watched and cancelled, and what cannot be is refused."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.interop.our_tools import Done, run_diskraft, run_tool
from tests.interop.topics import create_topic
from tests.interop.waiting import until_equal
from tools.lab.local_cluster import LocalCluster

SECONDS_MAX = 60.0
POLL_SECONDS = 0.2
# A move of MOVED_BYTES at this rate would take minutes.
SLOW_BYTES_PER_SECOND = "10000"
MOVED_BYTES = 4_000_000

pytestmark = pytest.mark.timeout(5 * SECONDS_MAX)


class Tool:
    """Runs kafka-reassign-partitions with a file for partition 0 of a topic."""

    def __init__(self, bootstrap: str, topic: str, path: Path) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._path = path

    def __call__(self, action: str, *options: str) -> Done:
        server = ("--bootstrap-server", self._bootstrap)
        return run_tool("reassign_partitions", *server, action, "--reassignment-json-file", str(self._path), *options)

    def wish(self, replicas: list[int], log_dirs: list[str]) -> None:
        """Writes the file."""
        entry = {"topic": self._topic, "partition": 0, "replicas": replicas, "log_dirs": log_dirs}
        self._path.write_text(json.dumps({"version": 1, "partitions": [entry]}))

    def verify_until(self, line: str) -> Done:
        """Verifies until this line is printed, and returns the result."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            done = self("--verify")
            assert done.status == 0, done
            if line in done.lines:
                return done
            assert time.monotonic() < deadline, done
            time.sleep(POLL_SECONDS)


@pytest.fixture
def one_partition(bootstrap: str, new_topic_name: Callable[[], str]) -> str:
    """A topic of one partition on the brokers 1 and 2."""
    return create_topic(bootstrap, new_topic_name(), partitions=1, replication_factor=2, assignments={0: [1, 2]})


@pytest.fixture
def tool(bootstrap: str, one_partition: str, tmp_path: Path) -> Tool:
    return Tool(bootstrap, one_partition, tmp_path / "reassignment.json")


def place(cluster: LocalCluster, broker_id: int, topic: str) -> str:
    """Returns the directory with the broker's replica of partition 0, an empty text if there is none at this moment."""
    found = [path for path in cluster.broker(broker_id).files.data_dirs if (Path(path) / f"{topic}-0").is_dir()]
    return found[0] if found else ""


def elsewhere(cluster: LocalCluster, broker_id: int, topic: str) -> str:
    """Returns a directory of the broker without that replica."""
    current = place(cluster, broker_id, topic)
    return next(path for path in cluster.broker(broker_id).files.data_dirs if path != current)


@contextmanager
def writing(bootstrap: str, topic: str) -> Iterator[set[int]]:
    """Writes numbered records until the block ends. Yields the numbers that were acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    acknowledged: set[int] = set()
    failed: list[Any] = []
    is_over = threading.Event()

    def report(number: int) -> Callable[[Any, Any], None]:
        return lambda error, _message: failed.append(error) if error else acknowledged.add(number)

    def write() -> None:
        number = 0
        while not is_over.is_set():
            producer.produce(topic, str(number), partition=0, on_delivery=report(number))
            number += 1
            producer.poll(0.002)
        producer.flush(SECONDS_MAX)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        writer.join()
    assert failed == []


def read_all(bootstrap: str, topic: str) -> set[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS_MAX)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: set[int] = set()
    while True:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None and message.error() is None
        found.add(int(message.value() or b""))
        if message.offset() == end - 1:
            consumer.close()
            return found


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for _ in range(MOVED_BYTES // 1000):
        producer.produce(topic, b"x" * 1000, partition=0)
    assert producer.flush(SECONDS_MAX) == 0


def test_a_replica_moves_to_a_directory_of_another_broker_while_a_client_writes(
    cluster: LocalCluster, bootstrap: str, one_partition: str, tool: Tool
) -> None:
    """As KIP-113 wants it: the replica of broker 1, which leads, moves to the last directory of broker 3. The other replica
    moves to another directory of its own broker at the same time. Every acknowledged record is there afterwards."""
    name = one_partition
    wanted, aside = cluster.broker(3).files.data_dirs[-1], elsewhere(cluster, 2, name)
    before = [place(cluster, 1, name), place(cluster, 2, name)]
    tool.wish([3, 2], [wanted, aside])
    with writing(bootstrap, name) as acknowledged:
        done = tool("--execute")
        assert (done.status, done.errors) == (0, []), done
        current = {"topic": name, "partition": 0, "replicas": [1, 2], "log_dirs": before}
        assert json.loads(done.lines[2]) == {"version": 1, "partitions": [current]}
        assert done.lines[5] == f"Successfully started partition reassignment for {name}-0"
        started = "Successfully started moving log directory to"
        assert sorted(done.lines[6:]) == sorted(
            [
                f"{started} {wanted} for replica {name}-0 with broker 3 ",
                f"{started} {aside} for replica {name}-0 with broker 2 ",
            ]
        )
        tool.verify_until(f"Reassignment of partition {name}-0 is completed.")
        tool.verify_until(f"Reassignment of replica {name}-0-2 completed successfully.")
        done = tool.verify_until(f"Reassignment of replica {name}-0-3 completed successfully.")
    assert done.lines[-2:] == [
        "Clearing broker-level throttles on brokers 1,2,3",
        f"Clearing topic-level throttles on topic {name}",
    ]
    assert (place(cluster, 3, name), place(cluster, 2, name)) == (wanted, aside)
    assert acknowledged
    assert acknowledged <= read_all(bootstrap, name)


def test_a_move_inside_a_broker_is_throttled_watched_and_cancelled(
    cluster: LocalCluster, bootstrap: str, one_partition: str, tool: Tool
) -> None:
    """The throttle keeps it from finishing. A cancellation leaves the replica where it was and removes the throttle; the
    same move without a throttle then ends at once."""
    name = one_partition
    fill(bootstrap, name)
    current, target = place(cluster, 1, name), elsewhere(cluster, 1, name)
    other = next(path for path in cluster.broker(1).files.data_dirs if path not in (current, target))
    configs = ("--bootstrap-server", bootstrap, "--describe", "--entity-type", "brokers", "--entity-name", "1")
    tool.wish([1, 2], [target, "any"])
    done = tool("--execute", "--replica-alter-log-dirs-throttle", SLOW_BYTES_PER_SECOND)
    assert done.status == 0, done
    assert f"The replica-alter-dir throttle limit was set to {SLOW_BYTES_PER_SECOND} B/s" in done.lines
    done = tool("--verify")
    assert done.lines == [
        "Status of partition reassignment:",
        f"Reassignment of partition {name}-0 is completed.",
        f"Reassignment of replica {name}-0-1 is still in progress.",
    ]
    until_equal(lambda: SLOW_BYTES_PER_SECOND in "".join(run_tool("configs", *configs).lines), True)
    tool.wish([1, 2], [other, "any"])
    elsewhere_line = f"Partition {name}-0 on broker 1 is being moved to log dir {target} instead of {other}."
    assert tool("--verify").lines[2:] == [elsewhere_line]

    tool.wish([1, 2], [target, "any"])
    done = tool("--cancel")
    assert (done.status, done.lines) == (
        0,
        [
            "None of the specified partition reassignments are active.",
            f"Successfully started moving log directory to {current} for replica {name}-0 with broker 1 ",
            "Clearing broker-level throttles on brokers 1,2,3",
            f"Clearing topic-level throttles on topic {name}",
        ],
    )
    assert place(cluster, 1, name) == current
    tool.verify_until(f"Partition {name}-0 on broker 1 is not being moved from log dir {current} to {target}.")
    until_equal(lambda: SLOW_BYTES_PER_SECOND in "".join(run_tool("configs", *configs).lines), False)

    assert tool("--execute").status == 0
    tool.verify_until(f"Reassignment of replica {name}-0-1 completed successfully.")
    assert place(cluster, 1, name) == target


def test_what_cannot_be_is_refused_and_changes_nothing(
    cluster: LocalCluster, bootstrap: str, one_partition: str, tool: Tool
) -> None:
    """A path of another broker, one outside every broker, and an unknown broker, beside a move that could begin."""
    name = one_partition
    before = [place(cluster, broker_id, name) for broker_id in (1, 2)]
    good = elsewhere(cluster, 1, name)
    foreign = cluster.broker(3).files.data_dirs[0]
    failed = f"Error: Failed to alter dir for {name}-0-2:"
    wishes: list[tuple[list[int], str, str]] = [
        ([1, 2], foreign, f"{failed} {foreign} is not a log directory of broker 2"),
        ([1, 2], "/etc", f"{failed} /etc is not a log directory of broker 2"),
        ([1, 9], "any", "Error: Unknown broker id 9"),
    ]
    for replicas, path, message in wishes:
        tool.wish(replicas, [good, path])
        assert tool("--execute") == Done(1, [], [message])
    listed = run_tool("reassign_partitions", "--bootstrap-server", bootstrap, "--list")
    assert not any(name in line for line in listed.lines)
    tool.wish([1, 2], before)
    assert tool("--verify", "--preserve-throttles").lines[2:] == [
        f"Reassignment of replica {name}-0-{broker_id} completed successfully." for broker_id in (1, 2)
    ]


def disks(bootstrap: str) -> dict[tuple[int, str], dict[str, Any]]:
    """Returns what `diskraft disks list` says of each directory."""
    done = run_diskraft("disks", "list", "--bootstrap-server", bootstrap, "--format", "json")
    assert (done.status, done.errors, len(done.lines)) == (0, [], 1), done
    return {
        (broker["broker"], disk["path"]): disk for broker in json.loads(done.lines[0])["brokers"] for disk in broker["disks"]
    }


def test_diskraft_disks_lists_and_moves(cluster: LocalCluster, bootstrap: str, one_partition: str) -> None:
    """A replica moves to another disk of its broker, and one of another broker in place of that. The list has every
    directory of the cluster, with its id and what it holds."""
    name = one_partition
    target = elsewhere(cluster, 1, name)
    before = disks(bootstrap)
    assert sorted(before) == sorted((node.files.node_id, path) for node in cluster.brokers for path in node.files.data_dirs)
    assert {disk["state"] for disk in before.values()} == {"online"}
    assert len({disk["directory_id"] for disk in before.values()} - {None}) == len(before)
    move = ("disks", "move", "--bootstrap-server", bootstrap, f"{name}-0")
    started = f"Successfully started moving log directory to {target} for replica {name}-0 with broker 1 "
    assert run_diskraft(*move, f"1:{target}") == Done(0, [started], [])
    # The cluster is shared, so a replica of another topic may come to this disk meanwhile.
    _until(lambda: disks(bootstrap)[1, target]["leaders"] > before[1, target]["leaders"])
    _until(lambda: place(cluster, 1, name) == target)
    aside = cluster.broker(3).files.data_dirs[0]
    refused = run_diskraft(*move, f"3:{aside}")
    message = f"{name}-0 is on brokers 1,2; --from says which of them moves to broker 3"
    assert refused == Done(1, [], [message])
    done = run_diskraft(*move, f"3:{aside}", "--from", "2")
    assert (done.status, done.lines[0]) == (0, f"Successfully started partition reassignment for {name}-0")
    _until(lambda: disks(bootstrap)[3, aside]["partitions"] > before[3, aside]["partitions"])
    _until(lambda: place(cluster, 3, name) == aside)
    listed = ("reassign_partitions", "--bootstrap-server", bootstrap, "--list")
    until_equal(lambda: any(name in line for line in run_tool(*listed).lines), False)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)
