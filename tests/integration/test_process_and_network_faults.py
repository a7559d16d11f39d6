"""Kills and stops processes and cuts links under load, with each node in a network namespace of its own."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.hanging_disks import frozen
from tests.integration.cluster import (
    WatchedCluster,
    continue_process,
    directory_id,
    is_listening,
    stop_process,
    until,
    watched_cluster,
)
from tests.integration.event_tail import EventTail
from tests.integration.faults.network import Network, network, spread_over
from tests.integration.traffic import IMPATIENT, Writer, assert_nothing_lost
from tests.interop.topics import create_topic
from tools.lab.disk_lab import kill_disk, revive_disk
from tools.lab.local_cluster import LocalNode

pytestmark = [
    pytest.mark.lab,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("loop_disks", "namespaces"),
]

TOPIC = "t"
PARTITIONS = 6
ASSIGNMENTS = {index: [1 + index % 2, 2 - index % 2, 3] for index in range(PARTITIONS)}
LEADER, FOLLOWER = 1, 3
SESSION_MS = 3000
LAG_MS = 2000
FAILURE_TIMEOUT_MS = 3000
OVERRIDES = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": str(LAG_MS),
    "diskraft.log.dir.operation.timeout.ms": "2000",
    "log.dir.failure.timeout.ms": str(FAILURE_TIMEOUT_MS),
    "leader.imbalance.check.interval.seconds": "1",
}
NAMES = ["broker-1", "broker-2", "broker-3", "controller"]


@dataclass(slots=True)
class Case:
    """The cluster, its network, and a writing client."""

    cluster: WatchedCluster
    ways: Network
    writer: Writer

    def of_controller(self) -> EventTail:
        return EventTail(self.cluster.controller)

    def until_whole(self) -> None:
        self.cluster.until_in_sync(TOPIC)
        self.writer.wait_for_acks()


@contextmanager
def case(folder: Path, *, disks: int = 1, loop: bool = False) -> Iterator[Case]:
    """Runs a cluster under load. In the end no acknowledged record may be lost, and every replica must be in sync."""
    with (
        network(NAMES) as ways,
        watched_cluster(
            folder,
            disks=disks,
            loop=loop,
            overrides=OVERRIDES,
            prepare=lambda cluster: spread_over(ways, cluster),
        ) as cluster,
    ):
        create_topic(
            cluster.bootstrap,
            TOPIC,
            partitions=PARTITIONS,
            configs={"min.insync.replicas": "2"},
            assignments=ASSIGNMENTS,
        )
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS, options=IMPATIENT) as writer:
            writer.wait_for_acks()
            made = Case(cluster, ways, writer)
            yield made
            ways.mend()
            made.until_whole()
            writer.stop()
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))
        assert writer.errors == {}


def seconds_until_fenced(made: Case, node_id: int, happen: Callable[[], None]) -> float:
    """Calls `happen`, which makes the broker unreachable, and returns how many seconds later the controller fenced it.
    Checks that this is at most a second after the session timeout (plus the machine's standstills), and that no other
    broker was fenced."""
    events = made.of_controller()
    struck, struck_monotonic = time.time(), time.monotonic()
    happen()
    fenced = events.wait_for("broker_fenced", broker_id=node_id) - struck
    assert fenced < SESSION_MS / 1000 + 1 + made.cluster.standstills.seconds_since(struck_monotonic)
    others = [broker.files.node_id for broker in made.cluster.brokers if broker.files.node_id != node_id]
    assert not any(events.has("broker_fenced", broker_id=other) for other in others)
    return fenced


@pytest.mark.parametrize("victim", [LEADER, FOLLOWER])
def test_a_killed_broker_is_fenced_when_its_session_is_over(tmp_path: Path, victim: int) -> None:
    """The broker is fenced soon after its session timeout, every partition acknowledges without it, and it comes back."""
    with case(tmp_path) as made:
        node = made.cluster.broker(victim)
        fenced = seconds_until_fenced(made, victim, node.kill)
        made.writer.wait_for_acks()
        print(f"SIGKILL of broker {victim}: fenced after {fenced:.2f} s")
        node.start()
        node.wait_for("broker_running")


@pytest.mark.parametrize("victim", [pytest.param(LEADER, marks=pytest.mark.brief), FOLLOWER])
def test_a_stopped_broker_that_goes_on_acknowledges_nothing_it_no_longer_leads(tmp_path: Path, victim: int) -> None:
    """After SIGSTOP the broker's connections stay open and the kernel accepts new ones, but the broker answers nothing. It
    is resumed when other brokers lead its partitions. It then acknowledges no write as the old leader, and rejoins by
    itself."""
    with case(tmp_path) as made:
        node = made.cluster.broker(victim)
        fenced = seconds_until_fenced(made, victim, lambda: stop_process(node))
        assert is_listening(node.files.port, node.files.host)
        made.writer.wait_for_acks()
        print(f"SIGSTOP of broker {victim}: fenced after {fenced:.2f} s")
        continue_process(node)
        made.until_whole()


@pytest.mark.parametrize(("direction", "victim"), [("to", LEADER), ("from", LEADER), ("both", LEADER), ("both", FOLLOWER)])
def test_a_broker_cut_off_from_its_controller_is_fenced_and_comes_back(tmp_path: Path, victim: int, direction: str) -> None:
    """The link to the controller is cut in one direction or both, while clients and brokers still reach each other. The
    broker is fenced and its partitions get other leaders. Once the link is mended, it is unfenced and in sync again."""
    with case(tmp_path) as made:
        name = f"broker-{victim}"

        def cut() -> None:
            if direction != "from":
                made.ways.cut(name, "controller")
            if direction != "to":
                made.ways.cut("controller", name)

        fenced = seconds_until_fenced(made, victim, cut)
        made.writer.wait_for_acks()
        print(f"broker {victim} cut {direction} the controller: fenced after {fenced:.2f} s")
        made.ways.mend()
        made.until_whole()


def test_a_leader_alone_with_its_clients_has_nothing_acknowledged(tmp_path: Path) -> None:
    """A leader cut off from the controller and the other brokers still receives writes and believes that it leads. It
    acknowledges none of these writes by itself, and no record that the new leaders acknowledge is lost."""
    with case(tmp_path) as made:
        name = f"broker-{LEADER}"
        others = [other for other in NAMES if other != name]
        fenced = seconds_until_fenced(made, LEADER, lambda: made.ways.cut_off(name, others))
        assert is_listening(made.cluster.broker(LEADER).files.port, made.cluster.broker(LEADER).files.host)
        made.writer.wait_for_acks()
        print(f"a leader cut off: fenced after {fenced:.2f} s")
        made.ways.mend()
        made.until_whole()


@pytest.mark.parametrize("direction", ["to", "from"])
def test_a_follower_that_does_not_hear_its_leader_leaves_the_isr_unfenced(tmp_path: Path, direction: str) -> None:
    """The link between a follower and one leader is cut one way. The follower leaves the ISR of that leader's partitions
    after the lag timeout, and writes continue. The follower is not fenced, and rejoins the ISR once the link is mended."""
    with case(tmp_path) as made:
        leader, follower = f"broker-{LEADER}", f"broker-{FOLLOWER}"
        events = made.of_controller()
        led = [index for index, brokers in ASSIGNMENTS.items() if brokers[0] == LEADER]
        struck = time.time()
        made.ways.cut(*((follower, leader) if direction == "to" else (leader, follower)))
        made.cluster.until_in_sync(TOPIC, partitions=led, size=2)
        print(f"follower cut {direction} its leader: out of the ISR after {time.time() - struck:.2f} s")
        made.writer.wait_for_acks()
        assert not events.has("broker_fenced")
        made.ways.mend()
        made.until_whole()


@pytest.mark.brief
def test_reset_connections_are_made_again_before_a_session_ends(tmp_path: Path) -> None:
    """For a short time, everything that one broker sends to another broker and to the controller is answered with a TCP
    reset. The broker reconnects before its session times out."""
    with case(tmp_path) as made:
        first = f"broker-{LEADER}"
        of_broker, of_controller = EventTail(made.cluster.broker(LEADER)), made.of_controller()
        for other in ("broker-2", "controller"):
            made.ways.reset(first, other)
        for felt in ("replica_fetch_failed", "controller_unavailable"):
            of_broker.wait_for(felt)
        made.ways.mend()
        made.until_whole()
        assert not of_controller.has("broker_fenced")


@pytest.mark.parametrize("how", ["dies", pytest.param("hangs", marks=pytest.mark.brief)])
def test_a_leader_that_cannot_report_its_failed_disk_ends_at_the_failure_timeout(tmp_path: Path, how: str) -> None:
    """A directory with leaders fails while the controller is unreachable. After log.dir.failure.timeout.ms the broker halts.
    Its port is closed and its connections end, even if a thread hangs in the disk."""
    with case(tmp_path, disks=2, loop=True) as made:
        broker = made.cluster.broker(LEADER)
        led = {index for index, brokers in ASSIGNMENTS.items() if brokers[0] == LEADER}
        places = made.cluster.until_placed(TOPIC, 3 * PARTITIONS)
        path = next(places[LEADER, index] for index in sorted(led))
        id_text = directory_id(path)
        made.cluster.expect_end(broker, f"{id_text}|{path}")
        events = EventTail(broker)
        made.ways.cut_off("broker-1", ["controller"])
        if how == "dies":
            kill_disk(Path(path))
            ended(made, events, broker, path)
        else:
            with frozen(Path(path)):
                ended(made, events, broker, path)
        assert broker.wait_until_ended() == 1
        made.ways.mend()
        if how == "dies":
            revive_disk(Path(path))
        broker.start()
        broker.wait_for("broker_running")


def ended(made: Case, events: EventTail, broker: LocalNode, path: str) -> None:
    """Checks that the directory went offline, and that the broker halted after log.dir.failure.timeout.ms."""
    began = time.monotonic()
    offline = events.wait_for("log_dir_offline", log_dir=path)
    halted = events.wait_for("node_halted") - offline
    stood_still = made.cluster.standstills.seconds_since(began)
    until(lambda: not is_listening(broker.files.port, broker.files.host), "the port is closed")
    made.writer.wait_for_acks()
    print(f"halted {halted:.2f} s after its directory")
    assert FAILURE_TIMEOUT_MS / 1000 - 0.5 < halted < FAILURE_TIMEOUT_MS / 1000 + 2 + stood_still
