"""Sends well-formed and damaged requests. Brokers and controller must keep running, and answer or close the connection.

A daemon ends on any unexpected exception, so a single value that a handler does not expect would let any peer stop it.
"""

import random
from collections.abc import Sequence

import pytest

from common.environment.interface import Connection
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode_prefix
from common.protocol.errors import RemoteProtocolError
from common.protocol.framing import parse_request
from common.protocol.messages.produce import ProduceRequest
from common.protocol.registry import APIS
from common.time_units import NS_PER_S
from tests.frames import Frames
from tests.fuzz.hostile import BROKER_APIS, CONTROLLER_APIS, ClusterNames, requests, vocabulary_of
from tests.simulation.cluster import (
    BROKER_PORT,
    CLUSTER_ID,
    CONTROLLER_PORT,
    SimulatedClient,
    SimulatedCluster,
    run,
)
from tests.simulation.environment import SimulatedWorld

# A handler may wait as long as the timeout in the request allows, but no longer than this.
ANSWER_SECONDS_MAX = 90


class Peer:
    """One connection. Counts the answers, and notes when the connection is lost."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.answers = 0
        self.is_lost = False
        self._received = Frames()

    def data_received(self, view: memoryview) -> None:
        self.answers += len(self._received.receive(view))

    def connection_lost(self, reason: str | None) -> None:
        self.is_lost = True

    def writable(self) -> None:
        """Does nothing: the tests send too little to fill the connection."""


def names_of(cluster: SimulatedCluster) -> ClusterNames:
    """Returns the names and ids that the cluster knows at the moment."""
    state = cluster.state
    brokers = list(state.brokers.values())
    return ClusterNames(
        cluster_id=CLUSTER_ID,
        topics=[*state.topic_ids, "none"],
        topic_ids=[*state.topics, bytes(range(16))],
        directory_ids=[each for broker in brokers for each in broker.directories],
        incarnation_ids=[broker.incarnation_id for broker in brokers],
        broker_ids=list(state.brokers),
        broker_epochs=[broker.epoch for broker in brokers],
        metadata_offset=state.last_offset,
    )


async def ask(world: SimulatedWorld, host: str, port: int, request: bytes) -> None:
    """Sends the request on a new connection. If the request must be answered, waits for the response or the end of the
    connection."""
    peers: list[Peer] = []

    def accept(connection: Connection) -> Peer:
        peers.append(Peer(connection))
        return peers[-1]

    env = world.node("stranger")
    await env.connect(host, port, accept, deadline_ns=env.now_ns() + 5 * NS_PER_S)
    (peer,) = peers
    peer.connection.send([len(request).to_bytes(4, "big") + request])
    if is_answered(request):
        await world.until(lambda: peer.answers or peer.is_lost, within_seconds=ANSWER_SECONDS_MAX)
    peer.connection.close()


def is_answered(request: bytes) -> bool:
    """Whether the peer must answer the request or close the connection. Only Produce with acks=0 gets no answer."""
    try:
        header, body = parse_request(request)
        message, _ = decode_prefix(APIS[ApiKey(header.request_api_key)].request, body, header.request_api_version)
    except RemoteProtocolError:
        return True
    return not isinstance(message, ProduceRequest) or message.acks != 0


async def besiege(cluster: SimulatedCluster, host: str, port: int, apis: Sequence[ApiKey], *, count: int, seed: int) -> None:
    """Sends `count` requests to one daemon, one after the other. Reads the names from the cluster again before every 20th
    request."""
    rng = random.Random(seed)
    for number in range(count):
        if number % 20 == 0:
            generator = requests(vocabulary_of(names_of(cluster), rng), rng, apis)
        request = next(generator)
        try:
            await ask(cluster.world, host, port, request)
        except BaseException:
            print(f"request {number} of seed {seed} to {host}: {request[:1000]!r}")
            raise


@pytest.mark.slow
@pytest.mark.parametrize("target", ["controller", "broker"])
@pytest.mark.parametrize("seed", range(1, 3))
def test_hostile_requests_harm_no_daemon(target: str, seed: int) -> None:
    """No daemon ends, and no request causes an unexpected exception."""

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=3, replication_factor=2)
        await client.produce("t", 0, b"value")
        if target == "controller":
            await besiege(cluster, "controller", CONTROLLER_PORT, CONTROLLER_APIS, count=150, seed=seed)
            assert min(cluster.state.brokers) >= 0, "a stranger registered under a number that stands for no broker"
        else:
            await besiege(cluster, "broker-1", BROKER_PORT, BROKER_APIS, count=150, seed=seed)
        client.acknowledged.clear()

    world = run(scenario, seed=seed, brokers=2, disks=2)
    for event in ("daemon_failed", "callback_failed", "thread_failed"):
        assert world.events_named(event) == []
