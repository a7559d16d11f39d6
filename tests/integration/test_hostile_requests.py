"""Sends requests with random values, and damaged requests, to the ports of real daemons.

The daemon answers each request, or closes the connection and logs one line. No daemon dies, the daemon's memory does not
grow, and other clients are still served.
"""

import asyncio
import itertools
import json
import random
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from common.ids import uuid_from_text
from common.protocol.api_keys import ApiKey
from tests.fuzz.hostile import BROKER_APIS, CONTROLLER_APIS, ClusterNames, requests, vocabulary_of
from tests.integration.cluster import WatchedCluster, directory_id, until, watched_cluster
from tests.interop.topics import create_topic
from tests.interop.waiting import until_equal
from tools.lab.local_cluster import LocalNode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REQUESTS = 400
AT_ONCE = 40
# Some requests ask the daemon to wait for a minute. The client gives up earlier, which the daemon must handle too.
PATIENCE_SECONDS = 5
MEMORY_GROWTH_MAX = 96 * 1024 * 1024
ANSWER_BYTES_MAX = 64 * 1024 * 1024


def names_of(cluster: WatchedCluster) -> ClusterNames:
    """Returns the names and ids that a well-informed attacker could know."""
    with cluster.admin() as admin:
        topics = admin.metadata(None).topics
    events = list(cluster.all_events(cluster.controller))
    registrations = [event for event in events if event["event"] == "broker_registered"]
    return ClusterNames(
        cluster_id=cluster.cluster_id,
        topics=[*(topic.name for topic in topics if topic.name), "none"],
        topic_ids=[*(topic.topic_id for topic in topics), bytes(range(16))],
        directory_ids=[uuid_from_text(directory_id(path)) for node in cluster.brokers for path in node.files.data_dirs],
        incarnation_ids=[bytes(range(1, 17))],
        broker_ids=[node.files.node_id for node in cluster.brokers],
        broker_epochs=[event["broker_epoch"] for event in registrations],
        metadata_offset=len(registrations) + 20,
    )


def client_hosts() -> Iterator[str]:
    """Yields a loopback address for each connection. The kernel picks the ports of one address from a new place every ten
    seconds, so on a busy machine two connections may have the same one, and the warnings about both would be counted
    together."""
    return (f"127.1.{number >> 8}.{number & 255}" for number in itertools.count(1))


async def ask(port: int, request: bytes, host: str) -> tuple[str, str]:
    """Sends a request from this address. Returns its outcome, and the client's address as the daemon logs it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    name = "{}:{}".format(*writer.get_extra_info("sockname")[:2])
    try:
        writer.write(len(request).to_bytes(4, "big") + request)
        async with asyncio.timeout(PATIENCE_SECONDS):
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert size < ANSWER_BYTES_MAX
            await reader.readexactly(size)
        return "answered", name
    except (asyncio.IncompleteReadError, ConnectionError):
        return "closed", name
    except TimeoutError:
        return "waited", name
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def besiege(port: int, stream: Iterator[bytes], hosts: Iterator[str]) -> dict[str, str]:
    """Sends each request on a connection of its own. Returns the outcomes by the client addresses of the connections."""
    outcomes: dict[str, str] = {}

    async def one_after_the_other() -> None:
        for request in stream:
            outcome, name = await ask(port, request, next(hosts))
            outcomes[name] = outcome

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(one_after_the_other())
    return outcomes


def known_brokers(cluster: WatchedCluster) -> set[int]:
    with cluster.admin() as admin:
        return set(admin.brokers())


def resident_bytes(node: LocalNode) -> int:
    return int(Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def warnings_by_peer(cluster: WatchedCluster, node: LocalNode) -> Counter[str]:
    """Counts, for each peer, the log lines about it that are more severe than info."""
    events: Iterator[dict[str, Any]] = cluster.all_events(node)
    return Counter(event["peer"] for event in events if "peer" in event and event["level"] not in ("debug", "info"))


@pytest.mark.parametrize(("role", "apis"), [("broker", BROKER_APIS), ("controller", CONTROLLER_APIS)])
def test_hostile_requests_are_answered_or_cost_their_own_connection(
    tmp_path: Path, role: str, apis: Sequence[ApiKey]
) -> None:
    """Sends hundreds of requests, forty at a time. `watched_cluster` checks that the logs have no traceback."""
    with watched_cluster(tmp_path, brokers=2, disks=2, loop=False) as cluster:
        with cluster.admin() as admin:
            create_topic(",".join(f"127.0.0.1:{node.files.port}" for node in cluster.brokers), "t", replication_factor=2)
            assert sorted(admin.brokers()) == [1, 2]
        node = cluster.controller if role == "controller" else cluster.broker(1)
        pids = {name: each.pid for name, each in cluster.nodes.items()}
        rng = random.Random(858)
        stream = requests(vocabulary_of(names_of(cluster), rng), rng, apis)
        # Warm up first, so that code compiled and cached at first use does not count as growth.
        hosts = client_hosts()
        asyncio.run(besiege(node.files.port, itertools.islice(stream, REQUESTS // 4), hosts))
        before = resident_bytes(node)
        outcomes = asyncio.run(besiege(node.files.port, itertools.islice(stream, REQUESTS), hosts))
        assert {name: each.pid for name, each in cluster.nodes.items()} == pids
        assert resident_bytes(node) - before < MEMORY_GROWTH_MAX
        counts = Counter(outcomes.values())
        assert counts["answered"] > REQUESTS // 2, counts
        closed = [name for name, outcome in outcomes.items() if outcome == "closed"]

        def not_warned_of_once() -> dict[str, int]:
            warnings = warnings_by_peer(cluster, node)
            return {name: warnings[name] for name in closed if warnings[name] != 1}

        # The daemon may close a connection before it logs why.
        until_equal(not_warned_of_once, {})
        # An attacker who knows a broker's epoch can send requests in its name, for example a heartbeat that fences it. The
        # broker's own next requests undo this.
        until(lambda: {1, 2} <= known_brokers(cluster), "both brokers known as before")
        print(json.dumps({"role": role, **counts, "grown_mb": (resident_bytes(node) - before) >> 20}))
