"""The memory of a broker under many connections, slow readers and many groups, and that it serves everybody else meanwhile.

Each bound follows from the limits of the server and is far below what the clients ask for. The memory is what the kernel
counts for the process (VmRSS).
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.net.server_limits import ServerLimits
from tests.benchmarks.measuring import cpu_seconds, resident_bytes
from tests.crowd import join_groups, opened, stop_reading
from tests.integration.cluster import SECONDS_MAX, WatchedCluster, until, watched_cluster
from tests.integration.traffic import read_all, write_some
from tests.interop.topics import create_topic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "t"
MB = 1_000_000
CONNECTIONS = 2_000
# What a connection may take: its objects, and what has arrived of a request.
CONNECTION_BYTES_MAX = 16 * 1024
GROUPS, MEMBERS = 200, 3
# What a member may take in its group, besides its connection.
MEMBER_BYTES_MAX = 32 * 1024
SLOW_READERS = 200
FETCH_BYTES = 100 * 1024 * 1024
RECORDS, RECORD_BYTES = 100_000, 1_000
# The interpreter's own rise and fall, and the requests of the clients that are served meanwhile.
SLACK_BYTES = 20 * MB


@contextmanager
def one_broker(folder: Path) -> Iterator[tuple[WatchedCluster, str, int]]:
    """Runs one broker that allows this many connections. Yields its address and its process id too."""
    overrides = {
        "max.connections": str(2 * CONNECTIONS),
        "max.connections.per.ip": str(2 * CONNECTIONS),
        "offsets.topic.replication.factor": "1",
        # Long, because the machine may be busy.
        "broker.session.timeout.ms": "18000",
    }
    with watched_cluster(folder, brokers=1, disks=2, loop=False, overrides=overrides) as cluster:
        create_topic(cluster.bootstrap, TOPIC, partitions=2, replication_factor=1)
        broker = cluster.broker(1)
        # One round of traffic, so that everything that is loaded when it is first needed is there.
        write_some(cluster.bootstrap, TOPIC, partitions=2, count=100)
        assert broker.pid is not None
        yield cluster, broker.files.address, broker.pid


def assert_served(cluster: WatchedCluster) -> None:
    """Writes to the second partition and reads it."""
    promises = write_some(cluster.bootstrap, TOPIC, partitions=2, count=20)
    read = read_all(cluster.bootstrap, TOPIC, partitions=[1])
    assert {key for key in promises if key[0] == 1} <= set(read)


def assert_never_fenced(cluster: WatchedCluster) -> None:
    """The broker's heartbeats have always been in time."""
    assert [event for event in cluster.all_events(cluster.controller) if event["event"] == "broker_fenced"] == []


def test_two_thousand_connections(tmp_path: Path) -> None:
    """Connections that have sent a request and are idle take a few kilobytes each, and other clients do not notice them."""
    with one_broker(tmp_path) as (cluster, address, pid):
        at_rest = resident_bytes(pid)
        with opened(address, CONNECTIONS):
            assert_served(cluster)
            grown = resident_bytes(pid) - at_rest
            assert grown < CONNECTIONS * CONNECTION_BYTES_MAX + SLACK_BYTES, f"{grown / MB:.0f} MB"
            # An idle connection costs no time.
            before = cpu_seconds(pid)
            time.sleep(2)
            assert cpu_seconds(pid) - before < 0.5
        assert_never_fenced(cluster)


def test_two_hundred_groups(tmp_path: Path) -> None:
    """Groups of three members. Every member gets its assignment, and its heartbeats are answered while others are served."""
    with one_broker(tmp_path) as (cluster, address, pid):
        at_rest = resident_bytes(pid)
        with opened(address, GROUPS * MEMBERS) as connections:
            groups = join_groups(connections, members=MEMBERS)
            assert_served(cluster)
            grown = resident_bytes(pid) - at_rest
            bound = GROUPS * MEMBERS * (CONNECTION_BYTES_MAX + MEMBER_BYTES_MAX) + SLACK_BYTES
            assert grown < bound, f"{grown / MB:.0f} MB"
            for group in groups:
                group.heartbeat()
        assert_never_fenced(cluster)


def test_slow_readers(tmp_path: Path) -> None:
    """Clients ask for 100 MB, as often as a connection may, and never read. They would be owed more than a terabyte. The
    broker holds at most what the limits allow, works no more than when idle, serves other clients and members of groups, and
    drops the slow readers when they have taken nothing for half a minute."""
    limits = ServerLimits()
    with one_broker(tmp_path) as (cluster, address, pid):
        write_some(cluster.bootstrap, TOPIC, partitions=1, count=RECORDS, size=RECORD_BYTES)
        with opened(address, 30) as members:
            groups = join_groups(members, members=MEMBERS)
            before_bytes = resident_bytes(pid)
            with opened(address, SLOW_READERS) as readers:
                stop_reading(readers, TOPIC, fetches=limits.in_flight_per_connection_max, size=FETCH_BYTES)
                assert_served(cluster)
                for group in groups:
                    group.heartbeat()
                grown = resident_bytes(pid) - before_bytes
                # Each connection may have one chunk that was read from the disk for it, besides its own needs.
                bound = SLOW_READERS * (limits.queued_response_bytes_max + CONNECTION_BYTES_MAX) + SLACK_BYTES
                assert grown < bound, f"{grown / MB:.0f} MB"
                before = cpu_seconds(pid)
                time.sleep(2)
                assert cpu_seconds(pid) - before < 0.5
                until(
                    lambda: all(reader.is_closed_by_the_broker() for reader in readers),
                    "the slow readers are dropped",
                    seconds=limits.stalled_ns / 1e9 + SECONDS_MAX,
                )
            for group in groups:
                group.heartbeat()
        dropped = [event for event in cluster.all_events(cluster.broker(1)) if event["event"] == "connection_dropped"]
        assert len(dropped) == SLOW_READERS
        assert_never_fenced(cluster)
