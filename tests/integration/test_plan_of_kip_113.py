"""The system tests of KIP-113's test plan, sentence by sentence, with real daemons, clients and disks.

All moves are ordered and verified with kafka-reassign-partitions. A directory whose permission the plan changes to 000 is
here a disk that dies, and, in a second run of the same test, a directory of an ordinary user's broker with mode 000.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.cluster import WatchedCluster, need_loop_disks, run_tool, until, watched_cluster
from tests.integration.traffic import Reader, Writer, assert_nothing_lost
from tests.interop.topics import create_topic
from tools.lab.disk_lab import kill_disk

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]

BROKERS = (1, 2, 3)


# --- the tool --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish:
    """The brokers of a partition, and the directory that it shall have on each of them."""

    topic: str
    partition: int
    places: dict[int, str]

    def as_json(self) -> dict[str, object]:
        replicas = {"replicas": list(self.places), "log_dirs": list(self.places.values())}
        return {"topic": self.topic, "partition": self.partition} | replicas


def reassign(cluster: WatchedCluster, wishes: list[Wish]) -> None:
    """Orders these moves and verifies them until all are complete."""
    path = cluster.folder / "reassignment.json"
    path.write_text(json.dumps({"version": 1, "partitions": [wish.as_json() for wish in wishes]}))
    arguments = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(path))
    done = run_tool("tools.kafka.reassign_partitions", *arguments, "--execute")
    assert done.returncode == 0, done.stderr
    complete = {f"Reassignment of partition {wish.topic}-{wish.partition} is completed." for wish in wishes} | {
        f"Reassignment of replica {wish.topic}-{wish.partition}-{broker_id} completed successfully."
        for wish in wishes
        for broker_id in wish.places
    }

    def verify() -> bool:
        done = run_tool("tools.kafka.reassign_partitions", *arguments, "--verify")
        assert done.returncode == 0, done.stderr
        return complete <= set(done.stdout.splitlines())

    until(verify, f"completed: {sorted(complete)}")


# --- "validate client/cluster state" ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clients:
    """The producer and the consumer of one topic."""

    writer: Writer
    reader: Reader

    def validate(self) -> None:
        """The producer goes on, without an error; the consumer gets all that was acknowledged, at its offset and once. After
        a change of the leader there may be records twice in the log, because the producer is not idempotent."""
        self.writer.wait_for_acks()
        self.reader.wait_for(self.writer.acknowledged_so_far())
        assert self.writer.errors == {}


def clients(stack: ExitStack, cluster: WatchedCluster, topic: str, *, partitions: int) -> Clients:
    """Starts a producer and a consumer, which run until the stack is left."""
    writer = stack.enter_context(Writer(cluster.bootstrap, topic, partitions=partitions))
    return Clients(writer, stack.enter_context(Reader(cluster.bootstrap, topic, partitions=partitions)))


def until_described(cluster: WatchedCluster, topic: str, expected: dict[int, tuple[int, list[int], set[int]]]) -> None:
    """Waits until the description of the topic shows these leaders, replicas and in-sync replicas."""

    def described() -> dict[int, tuple[int, list[int], set[int]]]:
        return {
            index: (part.leader_id, part.replica_nodes, set(part.isr_nodes))
            for index, part in cluster.partitions(topic).items()
        }

    until(lambda: described() == expected, f"{topic}: {expected}")


def assert_all_run(cluster: WatchedCluster) -> None:
    assert None not in [node.pid for node in cluster.nodes.values()]


# --- part 1 ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("loop_disks")
def test_replicas_move_between_disks_of_a_broker_and_across_brokers(tmp_path: Path) -> None:
    """Part 1 of the plan. Three partitions with one replica each move to the other directory of their broker, and then to
    the unused directory of the next broker, while clients write and read."""
    with watched_cluster(tmp_path, disks=2) as cluster, ExitStack() as stack:
        create_topic(cluster.bootstrap, "t", partitions=3, replication_factor=1, assignments={0: [1], 1: [2], 2: [3]})
        pair = clients(stack, cluster, "t", partitions=3)
        first = cluster.until_placed("t", 3)
        assert sorted(first) == [(1, 0), (2, 1), (3, 2)]

        def other(broker_id: int, path: str) -> str:
            (found,) = set(cluster.broker(broker_id).files.data_dirs) - {path}
            return found

        inside = {(broker_id, index): other(broker_id, path) for (broker_id, index), path in first.items()}
        reassign(cluster, [Wish("t", index, {broker_id: path}) for (broker_id, index), path in inside.items()])
        assert cluster.places("t") == inside
        assert_all_run(cluster)
        until_described(cluster, "t", {index: (index + 1, [index + 1], {index + 1}) for index in range(3)})
        pair.validate()
        # No leader has changed, so the producer had no reason to send a record again.
        assert pair.reader.repeated() == []

        across = {}
        for broker_id, index in inside:
            following = broker_id % 3 + 1
            across[following, index] = other(following, inside[following, following - 1])
        assert set(across.values()) == set(first.values())
        reassign(cluster, [Wish("t", index, {broker_id: path}) for (broker_id, index), path in across.items()])
        until(lambda: cluster.places("t") == across, f"every replica on the next broker: {across}")
        assert_all_run(cluster)
        expected = {index: (broker_id, [broker_id], {broker_id}) for broker_id, index in across}
        until_described(cluster, "t", expected)
        pair.validate()
        pair.writer.stop()
        assert_nothing_lost(cluster.bootstrap, "t", pair.writer.acknowledged, partitions=range(3))


# --- part 2 ----------------------------------------------------------------------------------------------------------


def as_ordinary_user(cluster: WatchedCluster) -> None:
    for node in cluster.brokers:
        # Root without these capabilities is bound by permissions like the owner of the files that it is.
        node.prefix = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--")


def forbid(path: Path) -> None:
    path.chmod(0o000)


@dataclass(frozen=True)
class Bad:
    """A way in which a directory turns bad."""

    is_disk: bool
    act: Callable[[Path], None]
    error: str
    """What the broker must name as the cause."""


DEAD_DISK = Bad(True, kill_disk, "EIO")
NO_PERMISSION = Bad(False, forbid, "EACCES")


@pytest.mark.parametrize("bad", [DEAD_DISK, NO_PERMISSION], ids=["a dead disk", "no permission"])
def test_bad_directories_do_not_affect_replicas_on_good_ones(tmp_path: Path, bad: Bad) -> None:
    """Part 2 of the plan. topic1 is in the first directory of every broker, topic2 in the second. The second directories
    turn bad one after the other: a follower's, the leader's, and that of the last broker. topic1 never notices, and topic2
    is served as long as a replica of it is left."""
    if bad.is_disk:
        need_loop_disks(tmp_path)
    prepare = None if bad.is_disk else as_ordinary_user
    with watched_cluster(tmp_path, disks=2, loop=bad.is_disk, prepare=prepare) as cluster, ExitStack() as stack:
        pairs: dict[str, Clients] = {}
        for number, topic in enumerate(("topic1", "topic2")):
            create_topic(cluster.bootstrap, topic, partitions=1, assignments={0: list(BROKERS)})
            cluster.until_placed(topic, 3)
            places = {broker_id: cluster.broker(broker_id).files.data_dirs[number] for broker_id in BROKERS}
            reassign(cluster, [Wish(topic, 0, places)])
            assert cluster.places(topic) == {(broker_id, 0): path for broker_id, path in places.items()}
            pairs[topic] = clients(stack, cluster, topic, partitions=1)
        led = cluster.leadership("topic1")
        assert led[0][0] == 1
        for pair in pairs.values():
            pair.validate()

        def turn_bad(broker_id: int) -> None:
            path = cluster.broker(broker_id).files.data_dirs[1]
            bad.act(Path(path))
            failed = cluster.broker(broker_id).wait_for("log_dir_failed", log_dir=path)
            assert bad.error in failed["cause"]
            cluster.broker(broker_id).wait_for("log_dir_offline", log_dir=path)

        def validate(topics: list[str], *, leader: int, isr: set[int]) -> None:
            """Validates the clients of these topics. topic2 is expected to have this leader and ISR."""
            assert_all_run(cluster)
            until_described(cluster, "topic2", {0: (leader, list(BROKERS), isr)})
            until_described(cluster, "topic1", {0: (1, list(BROKERS), set(BROKERS))})
            for topic in topics:
                pairs[topic].validate()

        # A follower of topic1.
        turn_bad(2)
        validate(["topic1", "topic2"], leader=1, isr={1, 3})
        # The leader of topic1, which leads topic2 as well.
        turn_bad(1)
        validate(["topic1", "topic2"], leader=3, isr={3})
        # All brokers. Nobody can serve topic2 any more, and its last replica stays in the ISR: it has everything.
        pairs["topic2"].writer.stop()
        assert pairs["topic2"].writer.errors == {}
        turn_bad(3)
        validate(["topic1"], leader=-1, isr={3})

        pairs["topic1"].writer.stop()
        assert cluster.leadership("topic1") == led, "the same leader in the same epoch all the time"
        assert pairs["topic1"].reader.repeated() == []
        assert_nothing_lost(cluster.bootstrap, "topic1", pairs["topic1"].writer.acknowledged, partitions=[0])
