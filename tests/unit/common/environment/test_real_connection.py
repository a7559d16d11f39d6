"""RealConnection over loopback sockets. The other end is a plain socket of the test, blocking or on the event loop."""

import asyncio
import errno
import gc
import os
import socket
import struct
import threading
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from common.environment import disk_operations, real_connection
from common.environment.disk_lanes import DiskLanes
from common.environment.interface import ConnectFailed, Connection, ListenFailed, LogDirError, Receiver
from common.environment.page_cache import PageCache
from common.environment.real import RealEnvironment
from common.environment.real_connection import (
    COPY_MAX,
    RECEIVE_BUFFER_MAX,
    RECEIVE_BUFFER_MIN,
    RealConnection,
)
from common.environment.real_log_dir import RealLogDir
from common.parts import Part
from common.time_units import NS_PER_S
from tests.unit.common.environment.conftest import MakeLogDir, Reports


@pytest.fixture(autouse=True)
def every_part_counts_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests are about regions that are sent from the file, and use small ones."""
    monkeypatch.setattr(real_connection, "COPY_MAX", 0)


class Recorder:
    """A receiver that records all calls and lets the test wait for them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.data = bytearray()
        self.sizes: list[int] = []
        self.lost: list[str | None] = []
        self.writables = 0
        self.changed = asyncio.Event()

    def data_received(self, view: memoryview) -> None:
        self.data += view
        self.sizes.append(len(view))
        self.changed.set()

    def connection_lost(self, reason: str | None) -> None:
        self.lost.append(reason)
        self.changed.set()

    def writable(self) -> None:
        self.writables += 1
        self.changed.set()

    async def until(self, condition: str) -> None:
        """Waits until `condition`, an expression over this object, is true."""
        async with asyncio.timeout(10):
            while not eval(condition, {"len": len}, vars(self)):
                self.changed.clear()
                await self.changed.wait()


class Pair:
    """A RealConnection and the socket at its other end."""

    def __init__(self, recorder: Recorder, peer: socket.socket) -> None:
        self.recorder = recorder
        assert isinstance(recorder.connection, RealConnection)
        self.connection = recorder.connection
        self.peer = peer
        self._loop = asyncio.get_running_loop()

    async def receive(self, size: int) -> bytes:
        """Receives exactly this many bytes, or fewer at the end of the stream."""
        received = bytearray()
        async with asyncio.timeout(10):
            while len(received) < size and (
                data := await self._loop.sock_recv(self.peer, min(size - len(received), 1 << 18))
            ):
                received += data
        return bytes(received)

    async def transmit(self, data: bytes) -> None:
        async with asyncio.timeout(10):
            await self._loop.sock_sendall(self.peer, data)


@pytest.fixture
async def pair(env: RealEnvironment) -> AsyncIterator[Pair]:
    """Yields a connection that our listener accepted from a plain socket."""
    accepted: asyncio.Queue[Recorder] = asyncio.Queue()

    def accept(connection: Connection) -> Receiver:
        recorder = Recorder(connection)
        accepted.put_nowait(recorder)
        return recorder

    listener = env.listen("127.0.0.1", 0, accept)
    peer = socket.socket()
    peer.setblocking(False)
    await asyncio.get_running_loop().sock_connect(peer, (listener.host, listener.port))
    recorder = await accepted.get()
    listener.close()
    yield Pair(recorder, peer)
    recorder.connection.abort()
    peer.close()
    await recorder.until("lost")
    assert len(recorder.lost) == 1


# --- bytes -----------------------------------------------------------------------------------------------------------
async def test_bytes_both_ways_and_in_order(pair: Pair) -> None:
    """The connection sends all kinds of parts, with several calls, and receives data from the peer."""
    host, port = pair.peer.getsockname()
    assert pair.connection.peer == f"{host}:{port}"
    assert pair.connection.local_host == "127.0.0.1"
    pair.connection.send([b"ab", bytearray(b"cd"), b"", memoryview(b"xxefxx")[2:4]])
    pair.connection.send([b"%d" % (i % 10) for i in range(500)])
    assert await pair.receive(506) == b"abcdef" + b"0123456789" * 50
    assert pair.connection.queued_bytes == 0
    await pair.transmit(b"hello")
    await pair.recorder.until("len(data) == 5")
    assert pair.recorder.data == b"hello"
    # No send left bytes in the queue, so `writable` must not be called.
    assert pair.recorder.writables == 0


async def test_a_slow_reader_gets_everything_in_order(pair: Pair) -> None:
    """The socket takes only part of the data. The rest is sent as the peer reads, and then the owner is notified."""
    pair.connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)  # type: ignore[union-attr]
    payload = os.urandom(4_000_000)
    parts = [payload[i : i + 33_333] for i in range(0, len(payload), 33_333)]
    pair.connection.send(parts)
    await pair.transmit(b"x")
    await pair.recorder.until("data")
    assert 0 < pair.connection.queued_bytes < len(payload)
    pair.connection.send([b"end"])
    assert await pair.receive(len(payload) + 3) == payload + b"end"
    await pair.recorder.until("writables")
    assert pair.connection.queued_bytes == 0
    assert pair.recorder.writables == 1


async def test_the_receive_buffer_grows_with_the_traffic_and_shrinks_again(pair: Pair) -> None:
    """A busy connection reads up to 1 MiB at once. After many small reads its buffer is small again."""
    await pair.transmit(b"x")
    await pair.recorder.until("data")
    assert pair.connection._buffer_size == RECEIVE_BUFFER_MIN
    pair.connection.pause_reading()
    pair.connection._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)  # type: ignore[union-attr]
    sender = asyncio.ensure_future(pair.transmit(bytes(16 << 20)))
    while pair.connection._buffer_size < RECEIVE_BUFFER_MAX:
        pair.connection.resume_reading()
        await asyncio.wait([sender], timeout=0.01)
        pair.connection.pause_reading()
        await asyncio.wait([sender], timeout=0.01)
    pair.connection.resume_reading()
    await sender
    await pair.recorder.until(f"len(data) == {1 + (16 << 20)}")
    assert max(pair.recorder.sizes) > RECEIVE_BUFFER_MIN
    for i in range(70):
        await pair.transmit(b"y")
        await pair.recorder.until(f"len(data) == {2 + (16 << 20) + i}")
    assert pair.connection._buffer_size == RECEIVE_BUFFER_MIN


async def test_a_taken_buffer_stays_as_it_was(env: RealEnvironment) -> None:
    """The receiver may keep a large batch without copying it, so later data must go into another buffer."""
    kept: list[memoryview] = []
    received = asyncio.Event()

    class Taker(Recorder):
        def data_received(self, view: memoryview) -> None:
            self.connection.take_buffer()
            kept.append(view)
            received.set()

    server, client = await connected(env, Taker)
    for text in (b"first", b"again"):
        received.clear()
        client.connection.send([text])
        await received.wait()
    assert kept == [b"first", b"again"]
    client.connection.close()
    await server.until("lost")


async def test_connections_share_their_receive_buffer(env: RealEnvironment) -> None:
    """A connection needs a buffer only while it reads. One that has been read from and is idle keeps none, so that 2,000 of
    them take no 64 KiB each. A buffer that one connection has taken is not used by another."""
    kept: list[memoryview] = []
    received = asyncio.Event()

    class Taker(Recorder):
        def data_received(self, view: memoryview) -> None:
            kept.append(view)
            if bytes(view) == b"taken":
                self.connection.take_buffer()
            received.set()

    pairs = [await connected(env, Taker) for _ in range(3)]
    for (_, client), text in zip(pairs, (b"first", b"taken", b"third"), strict=True):
        received.clear()
        client.connection.send([text])
        await received.wait()
    assert kept[0].obj is kept[1].obj is not kept[2].obj
    assert bytes(kept[1]) == b"taken"
    for server, client in pairs:
        client.connection.close()
        await server.until("lost")


async def test_pausing_stops_the_data_and_resuming_brings_it(pair: Pair) -> None:
    """Data that arrives while reading is paused waits in the kernel until reading is resumed."""
    pair.connection.pause_reading()
    await pair.transmit(b"early")
    # A connection that is not paused would read the data during this round trip.
    pair.connection.send([b"?"])
    await pair.receive(1)
    assert pair.recorder.data == b""
    pair.connection.resume_reading()
    await pair.recorder.until("len(data) == 5")


# --- the end ---------------------------------------------------------------------------------------------------------
async def test_close_sends_what_is_queued_first(pair: Pair) -> None:
    """After close, send ignores new parts."""
    payload = os.urandom(5_000_000)
    pair.connection.send([payload])
    pair.connection.close()
    pair.connection.send([b"late"])
    assert await pair.receive(len(payload) + 99) == payload
    await pair.recorder.until("lost")
    assert pair.recorder.lost == [None]
    pair.connection.send([b"later"])
    pair.connection.close()
    pair.connection.abort()


async def test_abort_drops_what_is_queued(pair: Pair) -> None:
    """The peer gets a connection reset, so it cannot take the truncated data for a complete response."""
    pair.connection.send([bytes(5_000_000)])
    pair.connection.abort()
    await pair.recorder.until("lost")
    assert pair.recorder.lost == [None]
    with pytest.raises(ConnectionResetError):
        await pair.receive(5_000_000)


async def test_a_half_closed_peer_still_gets_what_is_queued(pair: Pair) -> None:
    """`printf request | nc` closes its sending side after the request, and must still get the response."""
    payload = os.urandom(5_000_000)
    await pair.transmit(b"request")
    await pair.recorder.until("data")
    pair.connection.send([payload])
    pair.peer.shutdown(socket.SHUT_WR)
    assert await pair.receive(len(payload) + 1) == payload
    await pair.recorder.until("lost")
    assert pair.recorder.lost == [None]


async def test_the_end_of_an_idle_stream(pair: Pair) -> None:
    """If the peer ends the stream, the reason is None."""
    pair.peer.close()
    await pair.recorder.until("lost")
    assert pair.recorder.lost == [None]


async def test_a_reset_has_a_reason(pair: Pair) -> None:
    """The owner gets the kernel's error once."""
    pair.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    pair.peer.close()
    await pair.recorder.until("lost")
    assert pair.recorder.lost == ["Connection reset by peer"]


def _send_and_reset(peer: socket.socket, data: bytes) -> None:
    """Sends data and resets the connection in one event loop step, so that the connection finds both at once."""
    assert peer.send(data) == len(data)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


@pytest.mark.parametrize("size", [10, RECEIVE_BUFFER_MIN - 1, RECEIVE_BUFFER_MIN])
async def test_a_reset_right_behind_data(pair: Pair, size: int) -> None:
    """uvloop reports a socket with an error once and then stops watching it. The read that this causes returns the data, so
    the error would never be seen, and a request that waits for the rest of its response would wait until it times out."""
    _send_and_reset(pair.peer, bytes(size))
    await pair.recorder.until("lost")
    assert len(pair.recorder.data) == size
    assert pair.recorder.lost == ["Connection reset by peer"]


async def test_a_reset_while_the_peer_does_not_read(pair: Pair) -> None:
    """The socket is watched for reading and for writing then. Whichever sees the error ends the connection."""
    pair.connection.send([bytes(5_000_000)])
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert pair.connection.queued_bytes > 0
    _send_and_reset(pair.peer, b"request")
    await pair.recorder.until("lost")
    assert pair.recorder.lost[0] in {"Connection reset by peer", "Broken pipe"}


async def test_a_reset_behind_data_that_the_receiver_lets_wait(pair: Pair) -> None:
    """A receiver that pauses reading in the middle still gets all data that arrived before the reset."""

    def pause_at_first(view: memoryview) -> None:
        if not pair.recorder.data:
            pair.connection.pause_reading()
        Recorder.data_received(pair.recorder, view)

    pair.recorder.data_received = pause_at_first  # type: ignore[method-assign]
    pair.peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * RECEIVE_BUFFER_MIN)
    _send_and_reset(pair.peer, bytes(RECEIVE_BUFFER_MIN + 10))
    await pair.recorder.until("data")
    assert len(pair.recorder.data) == RECEIVE_BUFFER_MIN
    assert pair.recorder.lost == []
    pair.connection.resume_reading()
    await pair.recorder.until("lost")
    assert len(pair.recorder.data) == RECEIVE_BUFFER_MIN + 10
    assert pair.recorder.lost == ["Connection reset by peer"]


async def test_a_lost_connection_lets_go_of_its_receiver(env: RealEnvironment) -> None:
    """The receiver refers to the connection. If the connection went on referring to the receiver, both would stay until the
    garbage collector runs, and with them what the receiver holds."""
    accepted: asyncio.Queue[tuple[weakref.ref[Recorder], weakref.ref[Connection]]] = asyncio.Queue()

    def accept(connection: Connection) -> Receiver:
        recorder = Recorder(connection)
        accepted.put_nowait((weakref.ref(recorder), weakref.ref(connection)))
        return recorder

    listener = env.listen("127.0.0.1", 0, accept)
    gc.disable()
    try:
        with socket.create_connection((listener.host, listener.port)):
            receiver, connection = await accepted.get()
            listener.close()
            ended = receiver()
            assert ended is not None
            ended.connection.abort()
            await ended.until("lost")
            del ended
            # The callback that notified the receiver has to end, too.
            await asyncio.sleep(0)
        assert receiver() is None
        assert connection() is None
    finally:
        gc.enable()


async def test_a_connection_refused_by_its_owner(env: RealEnvironment) -> None:
    """The owner may abort a connection while it accepts it, before it returns the receiver. A connection limit does this."""
    refused: list[Recorder] = []

    def accept(connection: Connection) -> Receiver:
        refused.append(Recorder(connection))
        connection.abort()
        return refused[0]

    listener = env.listen("127.0.0.1", 0, accept)
    with socket.create_connection((listener.host, listener.port)) as peer:
        peer.setblocking(False)
        with pytest.raises(ConnectionResetError):
            await asyncio.get_running_loop().sock_recv(peer, 1)
    assert [recorder.lost for recorder in refused] == [[None]]
    listener.close()


# --- regions ---------------------------------------------------------------------------------------------------------
class CountedSendfile:
    """Replaces sendfile with a wrapper that counts the bytes it sends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0
        monkeypatch.setattr(real_connection, "_sendfile", self)

    def __call__(self, *arguments: int) -> int:
        sent = os.sendfile(*arguments)
        self.bytes += sent
        return sent


@pytest.fixture
def copied_bytes(monkeypatch: pytest.MonkeyPatch) -> int:
    """Lets small parts be copied again (`every_part_counts_as_large`). The value is the largest size that is copied."""
    monkeypatch.setattr(real_connection, "COPY_MAX", COPY_MAX)
    return COPY_MAX


async def test_a_small_region_is_sent_along_with_the_bytes_around_it(
    pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, copied_bytes: int
) -> None:
    """One region is as large as may be copied, the other one byte larger. Only the second one is sent by sendfile."""
    sendfile = CountedSendfile(monkeypatch)
    content = os.urandom(2 * copied_bytes)
    file = await written_file(log_dir, content)
    pair.connection.send([b"header", log_dir.region(file, 1, copied_bytes), b"trailer"])
    expected = b"header" + content[1 : copied_bytes + 1] + b"trailer"
    assert await pair.receive(len(expected)) == expected
    assert sendfile.bytes == 0
    pair.connection.send([log_dir.region(file, 0, copied_bytes + 1)])
    assert await pair.receive(copied_bytes + 1) == content[: copied_bytes + 1]
    if page_cache_is_answered():
        assert sendfile.bytes == copied_bytes + 1


@pytest.mark.usefixtures("copied_bytes")
@pytest.mark.parametrize("reason", ["not in the cache", "the disk is slow"])
async def test_a_small_region_is_not_copied_if_that_might_wait_for_the_disk(
    pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """The reader thread reads it. The peer gets the same bytes."""
    file = await written_file(log_dir, b"content")
    read: list[int] = []
    copied = PageCache.read

    def counted(self: PageCache, fd: int, position: int, size: int) -> bytearray | None:
        read.append(size)
        return None if reason == "not in the cache" else copied(self, fd, position, size)

    monkeypatch.setattr(PageCache, "read", counted)
    monkeypatch.setattr(PageCache, "is_resident", lambda *_: False)
    if reason == "the disk is slow":
        monkeypatch.setattr(DiskLanes, "longest_wait_ns", NS_PER_S)
    pair.connection.send([b"header", log_dir.region(file, 0, 7)])
    assert await pair.receive(13) == b"headercontent"
    assert read == ([7] if reason == "not in the cache" else [])


@pytest.mark.usefixtures("copied_bytes")
async def test_a_small_region_that_goes_to_several_peers_is_read_once(
    pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another region is read again, even if it has the same range: the file may have been truncated and rewritten."""
    if not page_cache_is_answered():
        pytest.skip("the kernel does not tell what is in the page cache")
    file = await written_file(log_dir, b"content")
    read: list[int] = []
    copied = PageCache.read

    def counted(self: PageCache, fd: int, position: int, size: int) -> bytearray | None:
        read.append(size)
        return copied(self, fd, position, size)

    monkeypatch.setattr(PageCache, "read", counted)
    region = log_dir.region(file, 0, 7)
    pair.connection.send([b"1", region])
    pair.connection.send([b"2", region])
    assert await pair.receive(16) == b"1content2content"
    assert read == [7]
    pair.connection.send([log_dir.region(file, 0, 7)])
    assert await pair.receive(7) == b"content"
    assert read == [7, 7]
    await log_dir.truncate(file, 3)
    pair.connection.send([region])
    await pair.recorder.until("lost")


async def test_small_parts_leave_in_one_call(
    pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, copied_bytes: int
) -> None:
    """The answers to a hundred requests, of every kind of part, some empty, and a part that is too large to be copied. What
    the peer gets is in order, and a part costs no call of its own."""
    sent: list[int] = []
    sendmsg = socket.socket.sendmsg

    def counted(sock: socket.socket, parts: list[bytes], *rest: Any) -> int:
        sent.append(len(parts))
        return sendmsg(sock, parts, *rest)

    monkeypatch.setattr(socket.socket, "sendmsg", counted)
    content = os.urandom(50)
    file = await written_file(log_dir, content)
    answer: list[Part] = [b"header", log_dir.region(file, 0, 0), bytearray(b"-"), memoryview(b"x-y-z")[::1], b""]
    if page_cache_is_answered():
        answer.append(log_dir.region(file, 10, 30))
    large = os.urandom(copied_bytes + 1)
    parts: list[Part] = [*answer * 50, memoryview(large), *answer * 50]
    pair.connection.send(parts)
    small = b"header-x-y-z" + (content[10:40] if page_cache_is_answered() else b"")
    expected = small * 50 + large + small * 50
    assert pair.connection.queued_bytes == 0
    assert await pair.receive(len(expected)) == expected
    assert sent == [3]


@pytest.mark.usefixtures("copied_bytes")
async def test_a_small_region_of_a_truncated_file_ends_the_connection(pair: Pair, log_dir: RealLogDir) -> None:
    file = await written_file(log_dir, b"content")
    region = log_dir.region(file, 0, 7)
    await log_dir.truncate(file, 3)
    pair.connection.send([b"header", region])
    await pair.recorder.until("lost")
    assert pair.recorder.lost == ["a was truncated or its log directory closed while it was being sent"]


async def written_file(log_dir: RealLogDir, content: bytes) -> Any:
    file = await log_dir.open("a", create=True)
    await log_dir.append(file, 0, [content])
    return file


@pytest.mark.parametrize("resident", [True, False])
async def test_regions_and_bytes_leave_in_order_whichever_way_they_go(
    pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, resident: bool
) -> None:
    """The peer gets the same bytes, whether sendfile sends them or the reader thread reads them first."""
    if not resident:
        monkeypatch.setattr(PageCache, "is_resident", lambda *_: False)
    sendfile = CountedSendfile(monkeypatch)
    content = os.urandom(6_000_000)
    file = await written_file(log_dir, content)
    parts: list[Part] = [
        b"header",
        log_dir.region(file, 17, 5_000_000),
        b"between",
        log_dir.region(file, 0, 0),
        log_dir.region(file, 5_999_990, 10),
        b"trailer",
    ]
    pair.connection.send(parts)
    pair.connection.send([log_dir.region(file, 3, 1)])
    expected = b"header" + content[17:5_000_017] + b"between" + content[-10:] + b"trailer" + content[3:4]
    assert await pair.receive(len(expected)) == expected
    await pair.recorder.until("writables")
    assert pair.connection.queued_bytes == 0
    if not resident:
        assert sendfile.bytes == 0
    elif page_cache_is_answered():
        assert sendfile.bytes == 5_000_011


def page_cache_is_answered() -> bool:
    """Returns whether this kernel reports that a file which was just read is in the page cache."""
    with open(__file__, "rb") as file:
        file.read()
        return PageCache().is_resident(file.fileno(), 0, 100)


async def test_evicted_pages_are_read_by_the_thread(
    pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop must not wait for evicted pages. The reader thread reads at least the first MiB, sendfile sends at
    least the second half: the kernel may read ahead for the thread."""
    sendfile = CountedSendfile(monkeypatch)
    content = os.urandom(4 << 20)
    file = await written_file(log_dir, content)
    await log_dir.fsync(file)
    # Evict half of the file, because the kernel evicts large pages whole or not at all.
    os.posix_fadvise(file.open_file.fd, 0, 2 << 20, os.POSIX_FADV_DONTNEED)
    pair.connection.send([log_dir.region(file, 0, len(content))])
    assert await pair.receive(len(content)) == content
    if page_cache_is_answered():
        assert 2 << 20 <= sendfile.bytes <= 3 << 20


async def test_a_read_on_the_loop_starts_no_readahead(log_dir: RealLogDir) -> None:
    """A page with the mark of an earlier readahead makes the kernel read the next pages, although it is cached itself. So
    no page of a partly cached file is read on the loop: none becomes cached by trying."""
    cache = PageCache()
    page_count = (16 << 20) // 4096
    file = await written_file(log_dir, bytes(page_count * 4096))
    fd = file.open_file.fd
    await log_dir.fsync(file)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    # An ordinary read, which reads ahead and leaves the mark.
    os.pread(fd, 4096, 0)
    cached = [number for number in range(page_count) if cache.is_cached(fd, number * 4096, 1)]
    if not 0 < len(cached) < page_count:
        pytest.skip("this kernel or file system does not answer cachestat, or cached another part of the file")
    for number in cached:
        region: Any = log_dir.region(file, number * 4096, 10)
        assert log_dir.read_resident(region) is None
        assert not log_dir.is_resident(region, region.position, region.size)
    assert [number for number in range(page_count) if cache.is_cached(fd, number * 4096, 1)] == cached


@pytest.mark.parametrize("missing_mib", [2, 16])
async def test_the_reader_thread_brings_in_the_few_pages_that_keep_reads_off_the_loop(
    log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, missing_mib: int
) -> None:
    """Under memory pressure the kernel drops single pages. A missing page in the readahead of a record would send
    every read of that record to the reader thread, so the first of these reads brings it in. If many are missing, it does
    not."""
    if not page_cache_is_answered():
        pytest.skip("this kernel or file system does not answer cachestat and RWF_NOWAIT")
    monkeypatch.setattr(log_dir._directory, "readahead_bytes", 64 << 20)
    file = await written_file(log_dir, bytes(48 << 20))
    await log_dir.fsync(file)
    region: Any = log_dir.region(file, 0, 10)
    assert log_dir.read_resident(region) == bytearray(10)
    file.open_file.cached_until_ns = 0
    # Whole pieces of 2 MiB, because the kernel evicts large pages whole or not at all.
    os.posix_fadvise(file.open_file.fd, 32 << 20, missing_mib << 20, os.POSIX_FADV_DONTNEED)
    again: Any = log_dir.region(file, 0, 11)
    assert log_dir.read_resident(again) is None
    assert await log_dir.read(file, 0, 11) == bytes(11)
    assert log_dir.read_resident(again) == (bytearray(11) if missing_mib == 2 else None)


async def test_the_end_of_a_file_is_read_on_the_loop_while_more_is_being_written(
    log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to read ahead beyond the end of the file, and what is being written does not count as missing."""
    if not page_cache_is_answered():
        pytest.skip("this kernel or file system does not answer cachestat and RWF_NOWAIT")
    file = await written_file(log_dir, b"content")
    written = threading.Event()
    write = disk_operations.write_all

    def write_later(*arguments: Any) -> None:
        written.wait(10)
        write(*arguments)

    monkeypatch.setattr(disk_operations, "write_all", write_later)
    append = log_dir.append(file, 7, [bytes(1 << 20)])
    try:
        region: Any = log_dir.region(file, 0, 7)
        assert log_dir.read_resident(region) == bytearray(b"content")
        assert log_dir.is_resident(region, 0, 7)
    finally:
        written.set()
    await append


async def test_close_waits_for_a_region_too(pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """close sends the region even if the reader thread is still reading it and its file has been closed."""
    monkeypatch.setattr(PageCache, "is_resident", lambda *_: False)
    file = await written_file(log_dir, b"0123456789")
    pair.connection.send([log_dir.region(file, 2, 8)])
    log_dir.close_file(file)
    pair.connection.close()
    assert await pair.receive(99) == b"23456789"
    await pair.recorder.until("lost")


@pytest.mark.parametrize("resident", [True, False])
async def test_a_disk_error_after_the_header_ends_the_connection_and_reaches_the_directory(
    pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, resident: bool
) -> None:
    """The peer must not take the truncated response for a complete one."""

    def failing(*_arguments: object) -> int:
        raise OSError(errno.EIO, "dead")

    monkeypatch.setattr(RealLogDir, "is_resident", lambda *_: resident)
    monkeypatch.setattr(real_connection, "_sendfile", failing)
    monkeypatch.setattr(disk_operations, "_pread", failing)
    reports = Reports(log_dir)
    file = await written_file(log_dir, b"0123456789")
    pair.connection.send([b"header", log_dir.region(file, 0, 10)])
    await pair.recorder.until("lost")
    assert len(pair.recorder.lost) == 1
    assert pair.recorder.lost[0] is not None
    assert reports.codes == [("region", errno.EIO)]
    with pytest.raises(ConnectionResetError):
        await pair.receive(99)


@pytest.mark.parametrize("code", ["EPIPE", "ECONNRESET", "ECONNREFUSED", "EHOSTUNREACH", "ENONET", "ENOPROTOOPT", "EPROTO"])
async def test_a_socket_error_of_sendfile_is_not_the_disks(
    pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """A consumer that disconnects in the middle of a response must not take a directory offline."""

    def broken(*_arguments: object) -> int:
        raise OSError(getattr(errno, code), "the peer is gone")

    monkeypatch.setattr(RealLogDir, "is_resident", lambda *_: True)
    monkeypatch.setattr(real_connection, "_sendfile", broken)
    reports = Reports(log_dir)
    file = await written_file(log_dir, b"0123456789")
    pair.connection.send([log_dir.region(file, 0, 10)])
    await pair.recorder.until("lost")
    assert pair.recorder.lost == ["the peer is gone"]
    assert reports.errors == []


@pytest.mark.parametrize("resident", [True, False])
async def test_a_region_past_the_end_of_its_file(
    pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch, resident: bool
) -> None:
    """If the file ends before the region does, the connection is aborted. No error is reported for the directory."""
    monkeypatch.setattr(RealLogDir, "is_resident", lambda *_: resident)
    reports = Reports(log_dir)
    file = await written_file(log_dir, b"0123456789")
    pair.connection.send([log_dir.region(file, 5, 10)])
    await pair.recorder.until("lost")
    assert "ended before" in str(pair.recorder.lost[0])
    assert reports.errors == []


async def test_a_truncated_region_is_never_filled_with_other_bytes(pair: Pair, log_dir: RealLogDir) -> None:
    """The file is truncated and rewritten after the region was created, so the region must not send the new bytes.

    A region that ends at or before the truncation point stays valid.
    """
    reports = Reports(log_dir)
    file = await written_file(log_dir, b"0123456789")
    below, across = log_dir.region(file, 0, 4), log_dir.region(file, 2, 8)
    await log_dir.truncate(file, 4)
    await log_dir.append(file, 4, [b"abcdef"])
    again = log_dir.region(file, 2, 8)
    pair.connection.send([below, again])
    assert await pair.receive(12) == b"0123" + b"23abcdef"
    pair.connection.send([across])
    await pair.recorder.until("lost")
    assert "truncated" in str(pair.recorder.lost[0])
    assert reports.errors == []


async def test_a_cut_before_a_region_was_made_takes_nothing_of_it(pair: Pair, log_dir: RealLogDir) -> None:
    """A region stays valid if its file was truncated before the region was created, or is truncated beyond its end later."""
    file = await written_file(log_dir, b"0123456789")
    await log_dir.truncate(file, 2)
    await log_dir.append(file, 2, [b"abcdefgh"])
    region = log_dir.region(file, 2, 4)
    await log_dir.truncate(file, 8)
    pair.connection.send([region])
    assert await pair.receive(4) == b"abcd"


async def test_a_region_of_an_offline_directory(pair: Pair, log_dir: RealLogDir) -> None:
    """The file's descriptor may be closed and its number reused, so the region must not be sent."""
    file = await written_file(log_dir, b"0123456789")
    region = log_dir.region(file, 0, 10)
    log_dir.take_offline(LogDirError(log_dir.path, "probe", errno.EIO))
    pair.connection.send([region])
    await pair.recorder.until("lost")
    assert "log directory closed" in str(pair.recorder.lost[0])


@pytest.mark.slow
async def test_a_hung_read_of_a_region_ends_at_its_deadline(
    pair: Pair, make_log_dir: MakeLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer reads uncached data from a hung disk. Its connection ends at the deadline; other traffic continues."""
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(PageCache, "is_resident", lambda *_: False)
    log_dir = await make_log_dir(timeout_ms=500)
    file = await written_file(log_dir, b"0123456789")

    def hanging(fd: int, size: int, position: int) -> bytes:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(30)
        return os.pread(fd, size, position)

    monkeypatch.setattr(disk_operations, "_pread", hanging)
    reports = Reports(log_dir, offline=True)
    pair.connection.send([b"header", log_dir.region(file, 0, 10)])
    await pair.recorder.until("lost")
    assert "ETIMEDOUT" in str(pair.recorder.lost[0])
    assert reports.codes == [("region", errno.ETIMEDOUT)]
    gate.set()
    await log_dir.released


async def test_a_region_that_is_given_up_ends_its_connection_only(
    pair: Pair, log_dir: RealLogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is as silent as before and not blamed. Once the disk goes on, it serves as if nothing had happened."""
    gate, began = threading.Event(), threading.Event()
    monkeypatch.setattr(PageCache, "is_resident", lambda *_: False)
    file = await written_file(log_dir, b"0123456789")

    def hanging(fd: int, size: int, position: int) -> bytes:
        began.set()
        assert gate.wait(30)
        return os.pread(fd, size, position)

    monkeypatch.setattr(disk_operations, "_pread", hanging)
    reports = Reports(log_dir, offline=False)
    pair.connection.send([b"header", log_dir.region(file, 0, 10)])
    await asyncio.to_thread(began.wait, 30)
    before_ns = log_dir.silence_ns
    log_dir.give_up_regions()
    await pair.recorder.until("lost")
    assert "suspected of hanging" in str(pair.recorder.lost[0])
    assert log_dir.silence_ns > before_ns > 0
    log_dir.give_up_regions()
    gate.set()
    assert await log_dir.read(file, 0, 10) == b"0123456789"
    assert log_dir.silence_ns == 0
    assert reports.codes == []


# --- listening and connecting ----------------------------------------------------------------------------------------
async def connected(
    env: RealEnvironment, receiver_class: type[Recorder] = Recorder, *, host: str = "127.0.0.1", to: str = "127.0.0.1"
) -> tuple[Recorder, Recorder]:
    """Returns two RealConnections that are connected to each other, the accepted one first."""
    accepted: asyncio.Queue[Recorder] = asyncio.Queue()

    def accept(connection: Connection) -> Receiver:
        recorder = receiver_class(connection)
        accepted.put_nowait(recorder)
        return recorder

    clients: list[Recorder] = []

    def keep(connection: Connection) -> Receiver:
        clients.append(Recorder(connection))
        return clients[0]

    listener = env.listen(host, 0, accept)
    connection = await env.connect(to, listener.port, keep, deadline_ns=env.now_ns() + 10**10)
    assert connection is clients[0].connection
    server = await accepted.get()
    listener.close()
    return server, clients[0]


@pytest.mark.parametrize(("host", "to"), [("127.0.0.1", "localhost"), ("localhost", "127.0.0.1"), ("", "127.0.0.1")])
async def test_names_and_all_interfaces(env: RealEnvironment, host: str, to: str) -> None:
    """Names are resolved without the event loop's executor. The empty host accepts connections on every interface."""
    server, client = await connected(env, host=host, to=to)
    assert server.connection.peer.startswith("127.0.0.1:")
    client.connection.send([b"hello"])
    await server.until("len(data) == 5")
    server.connection.close()
    await client.until("lost")
    await server.until("lost")
    assert (client.lost, server.lost) == ([None], [None])


def never(connection: Connection) -> Receiver:
    raise AssertionError(f"connected to {connection.peer}")


async def test_a_refused_connect_names_the_address_and_the_reason(env: RealEnvironment) -> None:
    """The error text names the address and the kernel's reason."""
    listener = env.listen("127.0.0.1", 0, never)
    listener.close()
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{listener.port}: Connection refused"):
        await env.connect("127.0.0.1", listener.port, never, deadline_ns=env.now_ns() + 10**10)


async def test_connect_meets_its_deadline(env: RealEnvironment) -> None:
    """A listener with a full backlog drops new connections, like a host that does not answer."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
            fillers.append(filler)
        deadline_ns = env.now_ns() + 50_000_000
        with pytest.raises(ConnectFailed, match="no answer before the deadline"):
            await env.connect("127.0.0.1", silent.getsockname()[1], never, deadline_ns=deadline_ns)
        assert env.now_ns() >= deadline_ns
        for filler in fillers:
            filler.close()


@pytest.mark.parametrize("host", ["a" * 64 + ".b", "two..dots", "nul\0", "\ud800"])
async def test_names_that_no_host_can_have(env: RealEnvironment, host: str) -> None:
    """If a broker registers with such a name, connecting fails with ConnectFailed. Listening on one raises ListenFailed."""
    with pytest.raises(ConnectFailed, match="cannot connect to"):
        await env.connect(host, 9092, never, deadline_ns=env.now_ns() + NS_PER_S)
    with pytest.raises(ListenFailed):
        env.listen(host, 0, never)


async def test_connect_without_a_descriptor(env: RealEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is out of descriptors gets ConnectFailed, as for an unreachable peer, and can try again later."""
    listener = env.listen("127.0.0.1", 0, never)

    def none_left(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socket", none_left)
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{listener.port}: Too many open files"):
        await env.connect("127.0.0.1", listener.port, never, deadline_ns=env.now_ns() + 10**10)
    monkeypatch.undo()
    listener.close()


async def test_a_resolver_that_gets_no_thread_is_asked_again(env: RealEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none_left)
        with pytest.raises(ConnectFailed, match="can't start new thread"):
            await env.connect("broker-9.invalid", 9092, never, deadline_ns=env.now_ns() + 10**10)
    with pytest.raises(ConnectFailed, match=r"broker-9.invalid:9092: (?!can't start)"):
        await env.connect("broker-9.invalid", 9092, never, deadline_ns=env.now_ns() + 10**10)


async def test_connect_to_an_unknown_name(env: RealEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver's error is raised as ConnectFailed."""

    def unknown(_host: str, _port: int, **keywords: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ConnectFailed, match=r"broker-9:9092: Name or service not known"):
        await env.connect("broker-9", 9092, never, deadline_ns=env.now_ns() + 10**10)


async def test_a_hanging_resolver_meets_the_deadline_and_is_asked_once(
    env: RealEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the resolver hangs, retries must not pile up threads."""
    asked: list[str] = []
    released = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hanging(host: str, _port: int, **keywords: Any) -> Any:
        if keywords["flags"] == socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        asked.append(host)
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    for _ in range(3):
        with pytest.raises(ConnectFailed, match="deadline"):
            await env.connect("broker-9", 9092, never, deadline_ns=env.now_ns() + 20_000_000)
    assert asked == ["broker-9"]
    released.set()
    with pytest.raises(ConnectFailed, match="no address"):
        await env.connect("broker-9", 9092, never, deadline_ns=env.now_ns() + 10**10)


async def test_a_port_that_is_taken(env: RealEnvironment) -> None:
    """The error text names the address."""
    from common.environment.interface import ListenFailed

    listener = env.listen("127.0.0.1", 0, never)
    with pytest.raises(ListenFailed, match=f"127.0.0.1:{listener.port}: Address already in use"):
        env.listen("127.0.0.1", listener.port, never)
    listener.close()


async def test_a_listener_without_descriptors_rests(env: RealEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without free descriptors, the listener must not retry accept in a loop. It accepts the connection later."""
    monkeypatch.setattr("common.environment.real_network._ACCEPT_PAUSE_SECONDS", 0.02)
    accepts: list[str] = []
    real_accept = socket.socket.accept

    def scarce(self: socket.socket) -> Any:
        accepts.append("accept")
        if len(accepts) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return real_accept(self)

    monkeypatch.setattr(socket.socket, "accept", scarce)
    server, client = await connected(env)
    assert len(accepts) >= 2
    client.connection.close()
    await server.until("lost")
