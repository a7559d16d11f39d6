"""Kills random daemons (kill -9), including the controller, under acks=all load: no acknowledged record is lost.

DISKRAFT_KILL_ROUNDS sets the number of rounds (15 by default; 100 take some minutes). DISKRAFT_KILL_SEED, set to the seed
that a run printed, repeats its random choices. What a killed process has written stays in the page cache, so every
acknowledged record must survive no matter which daemons die together. A log may end with an incomplete batch, but no record
may be wrong.
"""

import os
import random
import time
from pathlib import Path

import pytest

from tests.integration.cluster import WatchedCluster, watched_cluster
from tests.integration.traffic import Writer, assert_nothing_lost
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalNode

ROUNDS = int(os.environ.get("DISKRAFT_KILL_ROUNDS", "15"))
SEED = os.environ.get("DISKRAFT_KILL_SEED") or str(random.randrange(1_000_000))
TOPIC = "t"
PARTITIONS = 6

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 20 * ROUNDS)]


def test_rounds_of_kill_9(tmp_path: Path) -> None:
    """One or two daemons die at a random moment, sometimes in the middle of their start, and come back. Every few rounds all
    acknowledged records are read. In the end every replica is in sync again."""
    rng = random.Random(SEED)
    print(f"DISKRAFT_KILL_ROUNDS={ROUNDS} DISKRAFT_KILL_SEED={SEED}")
    overrides = {"broker.heartbeat.interval.ms": "300", "broker.session.timeout.ms": "3000"}
    with watched_cluster(tmp_path, loop=False, overrides=overrides) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS, configs={"min.insync.replicas": "2"})
        with Writer(cluster.bootstrap, TOPIC, partitions=PARTITIONS, rate=600, size=200) as writer:
            writer.wait_for_acks()
            for number in range(1, ROUNDS + 1):
                one_round(cluster, rng, number)
                writer.wait_for_acks()
                if number % 5 == 0:
                    promised = dict(writer.acknowledged)
                    assert_nothing_lost(cluster.bootstrap, TOPIC, promised, partitions=range(PARTITIONS))
            writer.stop()
        cluster.until_in_sync(TOPIC)
        assert_nothing_lost(cluster.bootstrap, TOPIC, writer.acknowledged, partitions=range(PARTITIONS))
        print(f"{len(writer.acknowledged)} records acknowledged over {ROUNDS} rounds, none lost; refused: {writer.errors}")


def one_round(cluster: WatchedCluster, rng: random.Random, number: int) -> None:
    """Kills daemons, waits a while, and starts them again. Sometimes kills one a second time while it is starting."""
    victims = rng.sample(list(cluster.nodes.values()), rng.choice((1, 1, 1, 2)))
    time.sleep(rng.uniform(0.0, 0.7))
    for victim in victims:
        victim.kill()
    # The daemons sometimes stay away for longer than the session timeout, so that the controller fences a killed broker.
    away = rng.choice((0.0, 0.3, rng.uniform(0.0, 5.0)))
    during_start = rng.random() < 0.3
    print(f"round {number}: {', '.join(each.files.name for each in victims)} for {away:.1f} s, {during_start=}")
    time.sleep(away)
    for victim in victims:
        victim.start()
    if during_start:
        time.sleep(rng.uniform(0.0, 1.0))
        victims[0].kill()
        victims[0].start()
    for victim in victims:
        wait_until_ready(victim)


def wait_until_ready(node: LocalNode) -> None:
    node.wait_for("controller_active" if node.files.role == "controller" else "broker_running")
