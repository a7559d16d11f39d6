"""In-memory connections between the nodes of one world: ordered bytes that arrive late and in pieces of any size.

Shell of the tests. A connection is two pipes. Sent bytes wait in a queue; at most one window of bytes is in flight at a
time. Bytes in flight arrive after a latency and in pieces that are drawn from the seed. When the receiver pauses, the window
stays full and the sender's queue grows, as with TCP. The view passed to `data_received` is overwritten when the call
returns, unless the receiver took the buffer.
"""

import asyncio
import random
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import Protocol, TypeVarTuple, Unpack

from common.environment.interface import ConnectFailed, Connection, Listener, ListenFailed, LogDirError, Receiver
from common.parts import Part
from common.time_units import NS_PER_S
from tests.simulation.disk import MICROSECOND
from tests.simulation.log_dir import SimulatedRegion
from tests.simulation.loop import SimulatedLoop
from tests.simulation.process import NO_PROCESS

_Arguments = TypeVarTuple("_Arguments")

WINDOW = 128 * 1024
EVERYWHERE = ("", "0.0.0.0", "::")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
FIRST_FREE_PORT = 40_000
# An unanswered SYN is sent again after 1 s, 2 s, 4 s and so on, as Linux does.
FIRST_SYN_RETRY_NS = NS_PER_S
LATENCY_NS = (20 * MICROSECOND, 400 * MICROSECOND)
# Measured: a response arrived 3.3 s after a cut had ended.
RETRANSMISSION_MAX_NS = 3_300_000_000
SLOW_READS_A_SECOND = 20
RESET = "connection reset by peer"


class Peer(Protocol):
    """The part of a node that the network uses."""

    name: str

    @property
    def is_dead(self) -> bool: ...

    @property
    def is_paused(self) -> bool: ...

    @property
    def context(self) -> Context: ...

    def enter(self, function: Callable[[Unpack[_Arguments]], object], *arguments: *_Arguments) -> object: ...

    def trace(self, *facts: object) -> None: ...


class SimulatedListener(Listener):
    def __init__(
        self, network: "SimulatedNetwork", node: Peer, host: str, port: int, accept: Callable[[Connection], Receiver]
    ) -> None:
        self.host = host
        self.port = port
        self.node = node
        self.accept = accept
        self._network = network

    def close(self) -> None:
        self._network.forget_listener(self)

    def answers(self, host: str, port: int) -> bool:
        if port != self.port:
            return False
        if self.host in EVERYWHERE:
            return host == self.node.name or host in LOOPBACK
        return host == self.host or (host in LOOPBACK and self.host in LOOPBACK)


class SimulatedConnection(Connection):
    """One end of a connection. The bytes it sends travel in `outgoing`; `other` is the far end."""

    other: "SimulatedConnection"

    def __init__(self, network: "SimulatedNetwork", node: Peer, *, peer: str, local_host: str) -> None:
        self.peer = peer
        self.local_host = local_host
        self.node = node
        self.network = network
        self.receiver: Receiver | None = None
        self.outgoing = _Pipe(self)
        self.is_open = True
        self.is_closing = False
        self.reading_is_paused = False
        self.is_in_the_backlog = False
        self.buffer_was_taken = False

    @property
    def queued_bytes(self) -> int:
        return self.outgoing.queued_bytes

    def send(self, parts: Sequence[Part]) -> None:
        if self.is_open and not self.is_closing and not self.node.is_dead:
            self.outgoing.queue(parts)

    @property
    def receives(self) -> bool:
        """Whether arriving bytes are delivered to the receiver. Otherwise they stay in the kernel's buffer."""
        return self.is_open and not self.reading_is_paused and not self.node.is_paused and not self.is_in_the_backlog

    def take_buffer(self) -> None:
        self.buffer_was_taken = True

    def pause_reading(self) -> None:
        self.reading_is_paused = True

    def resume_reading(self) -> None:
        if self.reading_is_paused:
            self.reading_is_paused = False
            self.other.outgoing.schedule_delivery()

    def close(self) -> None:
        if self.is_open and not self.is_closing:
            self.is_closing = True
            self.outgoing.finish()

    def abort(self) -> None:
        self.break_off(None, RESET)

    def break_off(self, own_reason: str | None, peer_reason: str | None) -> None:
        """Ends the connection for both sides: for this side at once, for the other side after a latency. Bytes in flight are
        lost."""
        if self.is_open:
            self.outgoing.drop()
            self.other.outgoing.drop()
            self.lose(own_reason)
            self.network.when_reachable(self.node, self.other.node, lambda: self.other.lose(peer_reason))

    def leave_to_the_kernel(self) -> None:
        """Closes the connection for a dead process: its kernel still delivers the bytes it has, however late, and then
        ends the connection."""
        if self.is_open:
            self.other.outgoing.drop()
            self.outgoing.leave_to_the_kernel()

    def lose(self, reason: str | None) -> None:
        """Ends the connection for this side. The receiver is notified in a separate callback, never while one of its own
        calls is running."""
        if self.is_open:
            self.is_open = False
            self.outgoing.drop()
            self.network.forget_connection(self)
            self.network.loop.call_soon(self._tell_lost, reason, context=self.node.context.copy())

    def _tell_lost(self, reason: str | None) -> None:
        if self.receiver is not None and not self.node.is_dead:
            self.node.trace("lost", self.peer, reason)
            self.receiver.connection_lost(reason)

    def deliver(self, content: bytearray) -> None:
        """Delivers bytes. Overwrites them after the call, so that a receiver that keeps a view of them is caught."""
        if not self.is_open or self.is_closing or self.node.is_dead or self.receiver is None:
            return
        self.node.trace("received", self.peer, len(content), zlib.crc32(content))
        self.buffer_was_taken = False
        self.node.enter(self.receiver.data_received, memoryview(content))
        if not self.buffer_was_taken:
            content[:] = b"\xdd" * len(content)


class _Pipe:
    """The bytes of one direction: queued at the sender, then in flight, then delivered piece by piece."""

    def __init__(self, sender: SimulatedConnection) -> None:
        self._sender = sender
        self._queue: deque[bytes | SimulatedRegion] = deque()
        self._on_the_way = bytearray()
        self._had_left_over = False
        self._is_loading = False
        self._is_finishing = False
        self._flush_is_scheduled = False
        self._delivery: asyncio.Handle | None = None
        self._last_size = 0
        self.queued_bytes = 0

    def queue(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if len(part) == 0:
                continue
            if isinstance(part, (bytes, bytearray, memoryview)):
                self._queue.append(bytes(part))
            elif isinstance(part, SimulatedRegion):
                self._queue.append(part)
            else:
                raise TypeError(f"{type(part).__name__} is no part of this environment")
            self.queued_bytes += len(part)
        # Flush at the end of this event loop step, later than the real connection, which sends at once. Until then all bytes
        # count as queued, and `writable` follows only if the window does not take them all.
        if self._queue and not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self._sender.network.loop.call_soon(self._flush, context=self._sender.node.context.copy())

    def finish(self) -> None:
        """Ends the connection once everything that is queued has left. Nothing more will be queued."""
        self._is_finishing = True
        if not self._queue:
            self._end_after_the_last_byte()

    def leave_to_the_kernel(self) -> None:
        """Drops the queue, which belongs to a dead process. Bytes in flight still arrive."""
        self._queue.clear()
        self.queued_bytes = 0
        self.finish()

    def _flush(self) -> None:
        self._flush_is_scheduled = False
        if self._sender.is_open and not self._sender.node.is_dead:
            self._advance()
            self._had_left_over = self._had_left_over or bool(self._queue)

    def drop(self) -> None:
        self._queue.clear()
        self._on_the_way.clear()
        self.queued_bytes = 0
        if self._delivery is not None:
            self._delivery.cancel()
            self._delivery = None

    def _advance(self) -> None:
        """Moves bytes from the queue into the window as far as they fit. The sender's process does this, so nothing moves
        while it is paused."""
        if self._sender.node.is_paused:
            return
        while self._queue and not self._is_loading:
            room = WINDOW - len(self._on_the_way)
            if room <= 0:
                break
            part = self._queue[0]
            if not isinstance(part, bytes):
                self._load(part)
                break
            self._on_the_way += part[:room]
            self.queued_bytes -= min(room, len(part))
            if len(part) > room:
                self._queue[0] = part[room:]
            else:
                self._queue.popleft()
        if not self._queue and self._is_finishing:
            self._end_after_the_last_byte()
        else:
            self.schedule_delivery()

    def _end_after_the_last_byte(self) -> None:
        """Ends the connection for the sender. The receiver is notified when it has received everything."""
        self._sender.is_open = False
        self._sender.network.forget_connection(self._sender)
        self._sender.network.loop.call_soon(self._sender._tell_lost, None, context=self._sender.node.context.copy())
        self.schedule_delivery()

    def _load(self, region: SimulatedRegion) -> None:
        self._is_loading = True
        loaded = region.load()
        loaded.add_done_callback(lambda done: self._loaded(region, done), context=self._sender.node.context.copy())

    def _loaded(self, region: SimulatedRegion, done: "asyncio.Future[bytes]") -> None:
        self._is_loading = False
        if not self._queue or self._queue[0] is not region or self._sender.node.is_dead:
            return
        error = None if done.cancelled() else done.exception()
        if error is not None and not isinstance(error, LogDirError):
            raise error
        if done.cancelled() or error is not None or len(done.result()) < len(region):
            self._sender.break_off(f"a file region could not be sent: {error}", RESET)
            return
        self._queue[0] = done.result()
        self._advance()
        self._tell_writable()

    def go_on_after_a_cut(self) -> None:
        """Resumes delivery. The bytes that a dead process left to its kernel wait for the kernel's retransmission timer, so
        a newer connection may overtake them."""
        self.schedule_delivery(after_ns=self._sender.network.retransmission_ns() if self._sender.node.is_dead else 0)

    def schedule_delivery(self, *, at_once: bool = False, after_ns: int = 0) -> None:
        """Schedules the next delivery. Use `at_once` for bytes that the receiver's kernel has already received."""
        sender, receiver = self._sender, self._sender.other
        if self._delivery is not None or not (self._on_the_way or self._is_at_the_end()) or not receiver.receives:
            return
        network = sender.network
        if network.is_cut(sender.node.name, receiver.node.name):
            return
        if at_once:
            self._delivery = network.loop.call_soon(self._deliver, context=NO_PROCESS)
        else:
            reading_ns = network.reading_ns(receiver.node.name, self._last_size)
            self._delivery = network.later(self._deliver, after_ns=max(after_ns, reading_ns))

    def _is_at_the_end(self) -> bool:
        return self._is_finishing and not self._queue and not self._on_the_way

    def _deliver(self) -> None:
        self._delivery = None
        receiver = self._sender.other
        if not receiver.receives:
            return
        if self._is_at_the_end():
            receiver.lose(None)
            return
        size = self._sender.network.piece_size(receiver.node.name, len(self._on_the_way))
        self._last_size = size
        piece = self._on_the_way[:size]
        del self._on_the_way[:size]
        receiver.deliver(piece)
        if self._sender.is_open:
            self.advance_and_tell()
        else:
            self.schedule_delivery()

    def advance_and_tell(self) -> None:
        """Refills the window. Called when there is room in it again, or when the sender resumes."""
        if not self._sender.node.is_paused:
            self._advance()
            self._tell_writable()
        self.schedule_delivery()

    def _tell_writable(self) -> None:
        sender = self._sender
        if self._had_left_over and not self._queue and sender.is_open and not sender.is_closing:
            self._had_left_over = False
            if sender.receiver is not None and not sender.node.is_dead:
                sender.node.enter(sender.receiver.writable)


class SimulatedNetwork:
    """The listeners, the connections, and the links that are cut."""

    def __init__(self, loop: SimulatedLoop, seed: object) -> None:
        self.loop = loop
        self._rng = random.Random(f"{seed}/network")
        self._listeners: list[SimulatedListener] = []
        # In insertion order, because connections end in this order when a node dies.
        self._connections: dict[SimulatedConnection, None] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._held_back: dict[tuple[str, str], list[Callable[[], None]]] = {}
        # For each machine that lost power: the peers' ends of its connections, which the peers still consider open.
        self._half_open: dict[str, list[SimulatedConnection]] = {}
        self._slow_readers: dict[str, int] = {}
        self._latency_range_ns = LATENCY_NS
        self._next_port = FIRST_FREE_PORT

    # --- faults --------------------------------------------------------------------------------------------------
    def cut(self, sender: str, receiver: str) -> None:
        """Cuts the link from `sender` to `receiver`. Bytes sent on it wait for `mend`."""
        self._cut[sender, receiver] = None

    def mend(self, sender: str | None = None, receiver: str | None = None) -> None:
        """Ends the cut of one direction, all cuts of one node, or all cuts. Bytes that were held back arrive."""
        for way in [way for way in self._cut if receiver is None or way == (sender, receiver)]:
            if sender is None or sender in way:
                del self._cut[way]
                for callback in self._held_back.pop(way, ()):
                    self.later(callback)
        for connection in list(self._connections):
            connection.outgoing.go_on_after_a_cut()
            connection.other.outgoing.go_on_after_a_cut()

    def is_cut(self, sender: str, receiver: str) -> bool:
        return (sender, receiver) in self._cut

    def reset(self, one: str, other: str) -> None:
        """RST: ends every connection between two nodes at once on both sides. Bytes in flight are lost."""
        for connection in list(self._connections):
            if (connection.node.name, connection.other.node.name) in ((one, other), (other, one)):
                connection.outgoing.drop()
                connection.lose(RESET)

    def slow_reader(self, name: str, bytes_per_second: int | None) -> None:
        """Limits how many bytes a second the node reads from each of its connections. None removes the limit."""
        if bytes_per_second is None:
            self._slow_readers.pop(name, None)
        else:
            self._slow_readers[name] = bytes_per_second

    def set_latency(self, minimum_ns: int, maximum_ns: int) -> None:
        """Sets the latency of bytes, connects and ends of connections from now on."""
        self._latency_range_ns = (minimum_ns, maximum_ns)

    def drop_node(self, node: Peer, *, silently: bool) -> None:
        """Removes a dead node and its listeners. Its kernel either resets a connection, or sends the bytes it still has and
        then closes it, so a request may outlive its sender. With `silently` the kernel is gone too: peers are not notified,
        and connects get no answer until `power_on`."""
        self._listeners = [listener for listener in self._listeners if listener.node is not node]
        for connection in [connection for connection in self._connections if connection.node is node]:
            if silently:
                connection.lose(None)
                self._half_open.setdefault(node.name, []).append(connection.other)
            elif self._rng.random() < 0.5:
                connection.break_off(None, RESET)
            else:
                connection.leave_to_the_kernel()
        if silently:
            self._half_open.setdefault(node.name, [])

    def power_on(self, name: str) -> None:
        """Makes the machine answer again. It answers each connection of its former life with a reset."""
        for connection in self._half_open.pop(name, ()):
            self.later(partial(connection.lose, RESET))

    def resume_node(self, node: Peer) -> None:
        """Continues a resumed node: it gets the bytes its kernel has received, and the bytes it had queued leave."""
        for connection in [connection for connection in self._connections if connection.node is node]:
            connection.other.outgoing.schedule_delivery(at_once=True)
            connection.outgoing.advance_and_tell()

    # --- for the connections -------------------------------------------------------------------------------------
    def later(self, callback: Callable[[], None], *, after_ns: int = 0) -> asyncio.TimerHandle:
        """Calls back after a latency. The callback belongs to no process: bytes in flight arrive even if the sender dies."""
        return self.loop.call_at_ns(self.loop.now_ns + max(self._latency_ns(), after_ns), callback, context=NO_PROCESS)

    def when_reachable(self, sender: Peer, receiver: Peer, callback: Callable[[], None]) -> None:
        """Calls back after a latency, or once the link from `sender` to `receiver` is mended."""
        if self.is_cut(sender.name, receiver.name):
            self._held_back.setdefault((sender.name, receiver.name), []).append(callback)
        else:
            self.later(callback)

    def piece_size(self, reader: str, available: int) -> int:
        """Draws how many of the available bytes arrive together: usually all, sometimes any part."""
        rate = self._slow_readers.get(reader)
        if rate is not None:
            available = min(available, max(1, rate // SLOW_READS_A_SECOND))
        return available if self._rng.random() < 0.6 else self._rng.randint(1, available)

    def retransmission_ns(self) -> int:
        """Draws how long a kernel waits before it retransmits after a cut. The wait can be long, because real kernels back
        off exponentially."""
        return self._rng.randint(0, RETRANSMISSION_MAX_NS)

    def reading_ns(self, reader: str, size: int) -> int:
        """Returns how long a slow reader needs to read `size` bytes."""
        rate = self._slow_readers.get(reader)
        return 0 if rate is None else size * NS_PER_S // rate

    def forget_listener(self, listener: SimulatedListener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def forget_connection(self, connection: SimulatedConnection) -> None:
        self._connections.pop(connection, None)

    def _latency_ns(self) -> int:
        # No function is called more often than this one, and random() costs half as much as randint().
        shortest_ns, longest_ns = self._latency_range_ns
        return shortest_ns + int(self._rng.random() * (longest_ns - shortest_ns))

    # --- for the environment -------------------------------------------------------------------------------------
    def listen(self, node: Peer, host: str, port: int, accept: Callable[[Connection], Receiver]) -> SimulatedListener:
        if port == 0:
            port = self._take_port()
        for other in self._listeners:
            same_node = other.node is node
            if other.port == port and (other.answers(host, port) or (same_node and host in EVERYWHERE)):
                raise ListenFailed(f"{host}:{port}: address already in use")
        listener = SimulatedListener(self, node, host, port, accept)
        self._listeners.append(listener)
        return listener

    async def connect(
        self, node: Peer, host: str, port: int, accept: Callable[[Connection], Receiver], deadline_ns: int
    ) -> SimulatedConnection:
        target = f"{host}:{port}"
        arrival_ns = self.loop.now_ns + self._latency_ns()
        await self.loop.sleep_until(min(arrival_ns, deadline_ns))
        retry_ns = FIRST_SYN_RETRY_NS
        while True:
            if node.is_dead:
                raise asyncio.CancelledError(f"{node.name} is gone")
            listener = next((listener for listener in self._listeners if listener.answers(host, port)), None)
            is_reachable = listener is None or not self._is_unreachable(node, listener.node)
            if is_reachable and host not in self._half_open:
                break
            arrival_ns = self.loop.now_ns + retry_ns
            if arrival_ns > deadline_ns:
                await self.loop.sleep_until(deadline_ns)
                break
            await self.loop.sleep_until(arrival_ns)
            retry_ns *= 2
        if arrival_ns > deadline_ns:
            raise ConnectFailed(f"{target}: connection timed out")
        if listener is None:
            raise ConnectFailed(f"{target}: connection refused")
        near = SimulatedConnection(self, node, peer=target, local_host=node.name)
        far_host = host if listener.host in EVERYWHERE else listener.host
        far = SimulatedConnection(self, listener.node, peer=f"{node.name}:{self._take_port()}", local_host=far_host)
        near.other, far.other = far, near
        self._connections[near] = None
        self._connections[far] = None
        node.trace("connected", target)
        self._accept(listener, far)
        near.receiver = accept(near)
        return near

    def _accept(self, listener: SimulatedListener, connection: SimulatedConnection) -> None:
        def accept() -> None:
            if connection.is_open:
                connection.receiver = listener.accept(connection)
                connection.is_in_the_backlog = False
                connection.other.outgoing.schedule_delivery(at_once=True)

        if connection.node.is_paused:
            # The connection waits in the kernel's backlog until the process resumes.
            connection.is_in_the_backlog = True
            self.loop.call_soon(accept, context=connection.node.context.copy())
        else:
            connection.node.enter(accept)

    def _is_unreachable(self, one: Peer, other: Peer) -> bool:
        return self.is_cut(one.name, other.name) or self.is_cut(other.name, one.name)

    def _take_port(self) -> int:
        self._next_port += 1
        return self._next_port
