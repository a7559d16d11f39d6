"""What the network and the kernel do to a node: cuts, resets, slow readers, SIGSTOP, SIGCONT and kill -9."""

import asyncio

import pytest

from common.environment.interface import ConnectFailed, Connection
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld

PORT = 9092


class Talk:
    """A receiver that keeps the bytes it gets and the time of the last ones."""

    def __init__(self, env: SimulatedEnvironment, connection: Connection) -> None:
        self.env = env
        self.connection = connection
        self.received = bytearray()
        self.lost: list[str | None] = []
        self.last_ns = 0

    def data_received(self, view: memoryview) -> None:
        self.received += view
        self.last_ns = self.env.now_ns()

    def connection_lost(self, reason: str | None) -> None:
        self.lost.append(reason)

    def writable(self) -> None:
        self.env.trace("writable")


class Server:
    """A daemon that accepts connections and records a tick every second."""

    def __init__(self) -> None:
        self.accepted: list[Talk] = []
        self.ticks: list[int] = []
        self.ended = False

    async def main(self, env: SimulatedEnvironment) -> None:
        env.listen("", PORT, lambda connection: self._accept(env, connection))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tick(env))
        finally:
            self.ended = True

    def _accept(self, env: SimulatedEnvironment, connection: Connection) -> Talk:
        self.accepted.append(Talk(env, connection))
        return self.accepted[-1]

    async def _tick(self, env: SimulatedEnvironment) -> None:
        while True:
            self.ticks.append(env.now_ns())
            await env.sleep_until(env.now_ns() + NS_PER_S)


async def connected(world: SimulatedWorld, server: str, client: str = "client") -> Talk:
    talks: list[Talk] = []
    env = world.node(client)

    def accept(connection: Connection) -> Talk:
        talks.append(Talk(env, connection))
        return talks[-1]

    await env.connect(server, PORT, accept, deadline_ns=world.now_ns() + NS_PER_S)
    return talks[0]


def test_a_paused_process_is_held_back_as_a_whole() -> None:
    """A paused process runs no timers and reads nothing, while its kernel accepts connections and bytes. After it is resumed
    it gets everything in order, and its clock has moved on."""

    async def scenario(world: SimulatedWorld) -> None:
        server = Server()
        world.start("a", server.main)
        first = await connected(world, "a")
        first.connection.send([b"before "])
        await world.sleep(2.5)
        world.pause("a")
        first.connection.send([b"during"])
        second = await connected(world, "a")
        second.connection.send([b"second"])
        third = await connected(world, "a")
        third.connection.abort()
        await world.sleep(10)
        assert len(server.ticks) == 3
        assert [bytes(talk.received) for talk in server.accepted] == [b"before "]
        world.resume("a")
        await world.sleep(0.01)
        assert [bytes(talk.received) for talk in server.accepted] == [b"before during", b"second"]
        assert len(server.ticks) == 4
        assert server.ticks[3] > server.ticks[2] + 9 * NS_PER_S

    for seed in range(4):
        SimulatedWorld(seed).run(scenario)


def test_the_window_of_a_paused_process_fills() -> None:
    """Bytes sent to a paused process fill its window and then queue at the sender, as with TCP."""

    async def scenario(world: SimulatedWorld) -> None:
        server = Server()
        world.start("a", server.main)
        client = await connected(world, "a")
        await world.until(lambda: server.accepted)
        world.pause("a")
        client.connection.send([bytes(1_000_000)])
        await world.sleep(10)
        assert client.connection.queued_bytes > 500_000
        assert not server.accepted[0].received
        world.resume("a")
        await world.until(lambda: len(server.accepted[0].received) == 1_000_000)
        assert client.connection.queued_bytes == 0

    SimulatedWorld(1).run(scenario)


def test_a_crash_ends_everything_at_once() -> None:
    """Nothing in the dead node runs any more, not even `finally`. Its peers lose their connections, and its port is free for
    the next life."""

    async def scenario(world: SimulatedWorld) -> None:
        server, next_life = Server(), Server()
        env = world.start("a", server.main)
        client = await connected(world, "a")
        await world.sleep(0.5)
        world.crash("a")
        await world.until(lambda: client.lost)
        assert client.lost in (["connection reset by peer"], [None])
        await world.sleep(10)
        assert len(server.ticks) == 1
        assert not server.ended
        assert env.is_dead
        world.start("a", next_life.main)
        await connected(world, "a")
        await world.until(lambda: next_life.accepted)

    SimulatedWorld(1).run(scenario)


def test_what_a_dead_process_had_sent_may_still_arrive() -> None:
    """When a process dies, its kernel either resets the connection or still sends what the process had queued. So a request
    can outlive its sender, and even wait until a cut is mended."""

    def arrived(seed: int) -> tuple[bytes, list[str | None]]:
        async def scenario(world: SimulatedWorld) -> tuple[bytes, list[str | None]]:
            server = Server()
            world.start("a", server.main)
            client = await connected(world, "a")
            world.network.cut("client", "a")
            client.connection.send([b"last words"])
            await world.sleep(1)
            world.crash("client")
            await world.sleep(5)
            (accepted,) = server.accepted
            assert not accepted.received
            assert not accepted.lost
            world.network.mend()
            await world.until(lambda: accepted.lost)
            return bytes(accepted.received), accepted.lost

        return SimulatedWorld(seed).run(scenario)

    found = [arrived(seed) for seed in range(10)]
    assert (b"last words", [None]) in found
    assert (b"", ["connection reset by peer"]) in found
    assert len(set(map(str, found))) == 2


def test_a_paused_process_can_be_killed() -> None:
    """SIGKILL needs no SIGCONT: nothing that was held back runs, and resuming the dead process does nothing."""

    async def scenario(world: SimulatedWorld) -> None:
        server = Server()
        world.start("a", server.main)
        await world.sleep(0.5)
        env = world.node("a")
        world.pause("a")
        client = await connected(world, "a")
        await world.sleep(5)
        world.crash("a")
        world.resume("a")
        await world.sleep(5)
        assert env.is_dead
        assert len(client.lost) == 1
        assert (len(server.ticks), server.accepted, server.ended) == (1, [], False)

    SimulatedWorld(1).run(scenario)


def test_cuts_end_one_by_one() -> None:
    """Mending the link of two nodes leaves the other cuts alone. Bytes that were held back arrive in order."""

    async def scenario(world: SimulatedWorld) -> None:
        servers = {name: Server() for name in "ab"}
        for name, server in servers.items():
            world.start(name, server.main)
        clients = {name: await connected(world, name) for name in "ab"}
        for name in "ab":
            world.network.cut("client", name)
            clients[name].connection.send([b"one ", b"two"])
        servers["a"].accepted[0].connection.send([b"the other way is open"])
        await world.until(lambda: clients["a"].received == b"the other way is open")
        await world.sleep(5)
        world.network.mend("client", "a")
        await world.sleep(5)
        assert bytes(servers["a"].accepted[0].received) == b"one two"
        assert not servers["b"].accepted[0].received
        world.network.mend("b")
        await world.until(lambda: servers["b"].accepted[0].received == b"one two")

    SimulatedWorld(1).run(scenario)


def test_a_reset_ends_the_connections_of_two_nodes() -> None:
    """Both sides are notified and can connect again. Other connections stay open."""

    async def scenario(world: SimulatedWorld) -> None:
        server = Server()
        world.start("a", server.main)
        client, other = await connected(world, "a"), await connected(world, "a", "other")
        client.connection.send([bytes(100_000)])
        world.network.reset("a", "client")
        await world.sleep(1)
        assert client.lost == ["connection reset by peer"]
        assert [talk.lost for talk in server.accepted] == [["connection reset by peer"], []]
        assert not server.accepted[0].received
        assert not other.lost
        await connected(world, "a")

    SimulatedWorld(1).run(scenario)


def test_a_slow_reader_takes_its_time() -> None:
    """A reader of 100 kB a second has half of a megabyte after five seconds, and the rest as soon as it is fast again."""

    async def scenario(world: SimulatedWorld) -> None:
        server = Server()
        world.start("a", server.main)
        client = await connected(world, "a")
        world.network.slow_reader("a", 100_000)
        client.connection.send([bytes(1_000_000)])
        await world.sleep(5)
        talk = server.accepted[0]
        assert 450_000 < len(talk.received) < 550_000
        assert client.connection.queued_bytes > 300_000
        world.network.slow_reader("a", None)
        await world.until(lambda: len(talk.received) == 1_000_000, within_seconds=0.2)

    SimulatedWorld(1).run(scenario)


def test_latency_can_be_set() -> None:
    """Connecting and sending take as long as the latency that was set."""

    async def scenario(world: SimulatedWorld) -> None:
        server = Server()
        world.start("a", server.main)
        world.network.set_latency(NS_PER_S // 2, NS_PER_S)
        start_ns = world.now_ns()
        client = await connected(world, "a")
        assert world.now_ns() - start_ns >= NS_PER_S // 2
        sent_ns = world.now_ns()
        client.connection.send([b"x"])
        await world.until(lambda: server.accepted[0].received)
        assert NS_PER_S // 2 <= server.accepted[0].last_ns - sent_ns <= NS_PER_S

    SimulatedWorld(1).run(scenario)


def test_nobody_is_told_of_a_power_cut() -> None:
    """After a machine's power cut, its peers' connections stay open and silent, and new connects time out. When the machine
    is back, it answers the old connections with a reset."""

    async def scenario(world: SimulatedWorld) -> None:
        server, next_life = Server(), Server()
        world.start("a", server.main)
        client = await connected(world, "a")
        world.power_cut("a")
        client.connection.send([bytes(1_000_000)])
        await world.sleep(60)
        assert not client.lost
        assert client.connection.queued_bytes > 500_000
        began_ns = world.now_ns()
        with pytest.raises(ConnectFailed, match="timed out"):
            await connected(world, "a")
        assert world.now_ns() - began_ns == NS_PER_S
        world.start("a", next_life.main)
        await world.until(lambda: client.lost, within_seconds=0.1)
        assert client.lost == ["connection reset by peer"]
        await connected(world, "a")
        await world.until(lambda: next_life.accepted)

    SimulatedWorld(1).run(scenario)
