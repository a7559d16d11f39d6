"""The simulated network: order, pieces, backpressure, ends of connections, file regions, cuts."""

import errno

import pytest

from common.environment.interface import ConnectFailed, Connection, LogDirError
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld
from tests.simulation.network import WINDOW

TIMEOUT_NS = 10 * NS_PER_S


class Collecting:
    """A receiver that keeps what it gets."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.received = bytearray()
        self.pieces = 0
        self.views: list[memoryview] = []
        self.take = False
        self.lost: list[str | None] = []
        self.writables = 0

    def data_received(self, view: memoryview) -> None:
        if self.take:
            self.connection.take_buffer()
        self.views.append(view)
        self.received += view
        self.pieces += 1

    def connection_lost(self, reason: str | None) -> None:
        self.lost.append(reason)

    def writable(self) -> None:
        self.writables += 1


async def pair(world: SimulatedWorld) -> tuple[Collecting, Collecting]:
    """Connects node a to node b. Returns the receivers of both sides."""
    accepted: list[Collecting] = []

    def accept(connection: Connection) -> Collecting:
        accepted.append(Collecting(connection))
        return accepted[-1]

    listener = world.node("b").listen("", 0, accept)
    deadline_ns = world.now_ns() + NS_PER_S
    await world.node("a").connect("b", listener.port, accept, deadline_ns=deadline_ns)
    far, near = accepted
    return near, far


def test_bytes_arrive_in_order_and_in_pieces() -> None:
    # A lot of data, sent in many calls, arrives complete, in order, and in pieces of arbitrary size. Each side knows the
    # other's address.
    async def scenario(world: SimulatedWorld) -> int:
        near, far = await pair(world)
        assert near.connection.peer.startswith("b:")
        assert far.connection.peer.startswith("a:")
        sent = bytes(range(256)) * 4000
        for start in range(0, len(sent), 100_000):
            near.connection.send([sent[start : start + 50_000], memoryview(sent)[start + 50_000 : start + 100_000]])
        near.connection.close()
        near.connection.send([b"never"])
        await world.until(lambda: near.lost and far.lost)
        assert far.received == sent
        assert (near.lost, far.lost) == ([None], [None])
        return far.pieces

    assert SimulatedWorld(1).run(scenario) > 9


def test_a_receiver_that_pauses_makes_the_sender_queue() -> None:
    # Backpressure: the window fills and the sender's queue grows. After the receiver resumes, the sender is notified that
    # its queue is empty.
    async def scenario(world: SimulatedWorld) -> None:
        near, far = await pair(world)
        far.connection.pause_reading()
        near.connection.send([bytes(WINDOW + 1000)])
        await world.sleep(1)
        assert near.connection.queued_bytes == 1000
        assert (bytes(far.received), near.writables) == (b"", 0)
        far.connection.resume_reading()
        await world.until(lambda: len(far.received) == WINDOW + 1000)
        assert near.connection.queued_bytes == 0
        assert near.writables == 1

    SimulatedWorld(1).run(scenario)


def test_a_view_is_valid_during_the_call_unless_taken() -> None:
    # A view that the receiver keeps without take_buffer shows garbage after the call.
    async def scenario(world: SimulatedWorld) -> None:
        near, far = await pair(world)
        near.connection.send([b"once"])
        await world.until(lambda: far.received == b"once")
        assert all(set(bytes(view)) == {0xDD} for view in far.views)
        far.take, far.views = True, []
        near.connection.send([b"kept"])
        await world.until(lambda: far.received == b"oncekept")
        assert b"".join(far.views) == b"kept"

    SimulatedWorld(1).run(scenario)


def test_connecting_to_nobody_is_refused() -> None:
    # A connect is refused when nothing listens, times out when the link is cut, and is refused again after the listener
    # closed.
    async def scenario(world: SimulatedWorld) -> None:
        a, b = world.node("a"), world.node("b")
        with pytest.raises(ConnectFailed, match="b:9092: connection refused"):
            await a.connect("b", 9092, Collecting, deadline_ns=world.now_ns() + NS_PER_S)
        listener = b.listen("", 9092, Collecting)
        await a.connect("b", 9092, Collecting, deadline_ns=world.now_ns() + NS_PER_S)
        world.network.cut("b", "a")
        with pytest.raises(ConnectFailed, match="timed out"):
            await a.connect("b", 9092, Collecting, deadline_ns=world.now_ns() + NS_PER_S)
        world.network.mend()
        listener.close()
        with pytest.raises(ConnectFailed, match="refused"):
            await a.connect("b", 9092, Collecting, deadline_ns=world.now_ns() + NS_PER_S)

    SimulatedWorld(1).run(scenario)


def test_a_crash_resets_the_connections_of_the_node() -> None:
    # The surviving side is notified of the reset, the dead side is not.
    async def scenario(world: SimulatedWorld) -> None:
        near, far = await pair(world)
        world.crash("b")
        await world.until(lambda: near.lost)
        assert near.lost == ["connection reset by peer"]
        assert far.lost == []

    SimulatedWorld(1).run(scenario)


def test_abort_drops_what_is_queued() -> None:
    # Nothing more arrives after an abort, and the other side sees a reset.
    async def scenario(world: SimulatedWorld) -> None:
        near, far = await pair(world)
        near.connection.send([b"x" * 1000])
        near.connection.abort()
        await world.until(lambda: near.lost and far.lost)
        assert near.lost == [None]
        assert far.lost == ["connection reset by peer"]
        assert far.received == b""

    SimulatedWorld(1).run(scenario)


def test_a_cut_holds_back_and_mending_delivers() -> None:
    # A one-way cut holds back the bytes in its direction until it is mended.
    async def scenario(world: SimulatedWorld) -> None:
        near, far = await pair(world)
        world.network.cut("a", "b")
        near.connection.send([b"late"])
        near.connection.close()
        far.connection.send([b"not read, the near side has closed"])
        await world.sleep(10)
        assert far.received == b""
        assert far.lost == []
        world.network.mend()
        await world.until(lambda: far.lost)
        assert far.received == b"late"

    SimulatedWorld(1).run(scenario)


def test_file_regions_are_sent_from_the_disk() -> None:
    # A file region between other parts arrives in its place. A read error is reported to on_error and resets the connection.
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = world.node("a").log_dir("/a/1", operation_timeout_ns=TIMEOUT_NS)
        await log_dir.attach(create=True)
        file = await log_dir.open("log", create=True)
        await log_dir.append(file, 0, [bytes(range(200))])
        near, far = await pair(world)
        near.connection.send([b"head", log_dir.region(file, 100, 50), b"tail"])
        await world.until(lambda: len(far.received) == 58)
        assert far.received == b"head" + bytes(range(100, 150)) + b"tail"
        heard: list[LogDirError] = []
        log_dir.on_error = heard.append
        world.disk("/a/1").fail_with(errno.EIO)
        near.connection.send([b"head", log_dir.region(file, 100, 50), b"tail"])
        await world.until(lambda: far.lost)
        assert [error.errno_code for error in heard] == [errno.EIO]
        assert near.lost[0] is not None

    SimulatedWorld(1).run(scenario)


def test_two_cannot_listen_on_one_port() -> None:
    # A node cannot bind the same port twice. Another node can bind the same number, because each node has its own ports.
    async def scenario(world: SimulatedWorld) -> None:
        world.node("a").listen("", 9092, Collecting)
        with pytest.raises(Exception, match="address already in use"):
            world.node("a").listen("a", 9092, Collecting)
        world.node("b").listen("b", 9092, Collecting)

    SimulatedWorld(1).run(scenario)
