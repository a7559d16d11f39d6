"""A TCP connection on its own socket, driven by the event loop's readiness callbacks (shell).

docs/DESIGN.md, "The environment", explains why this module does not use asyncio's transports. Bytes are sent with sendmsg.
Small file regions are read into memory and sent with the bytes around them, large ones are sent with sendfile, if these
calls cannot block on a disk; otherwise the log directory's reader thread reads the region first. The socket stays writable
during that read, so the writer callback must be removed, or the event loop would spin.
"""

import asyncio
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, cast

from common.environment.interface import Connection, LogDirError, Receiver
from common.environment.process import ProcessResources, close_socket
from common.environment.real_log_dir import RealFileRegion
from common.parts import Buffer, FileRegion, Part

RECEIVE_BUFFER_MIN: Final = 64 * 1024
RECEIVE_BUFFER_MAX: Final = 1024 * 1024
# The receive buffer shrinks again after this many consecutive reads that left most of it empty.
_SMALL_READS_MAX: Final = 64
# Parts up to this size are joined with those beside them. A region is read for that: one system call costs less than the
# three for sendfile, and the copy is small.
COPY_MAX: Final = 16 * 1024
# The most that one sendfile call sends. The residency check before it covers the same range.
_SENDFILE_MAX: Final = 1024 * 1024
_PARTS_PER_SEND_MAX: Final = 64
# The most that one connection sends before the event loop serves other connections.
_TURN_BYTES: Final = 4 * 1024 * 1024
_LINGER_RESET: Final = struct.pack("ii", 1, 0)

# If sendfile fails with one of these errors, the socket failed and not the file. They are the errors that end a connection,
# and those that Linux derives from ICMP messages.
_SOCKET_ERRNOS: Final = frozenset(
    {
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
        errno.ENONET,
        errno.ENOPROTOOPT,
        errno.ENOTCONN,
        errno.EPIPE,
        errno.EPROTO,
        errno.ETIMEDOUT,
    }
)
# If sendfile fails with one of these errors, it does not support the file, or memory is short. The reader thread then reads
# the range, and finds any real error.
_SENDFILE_REFUSED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOMEM, errno.ENOBUFS})

# Tests replace this to make sendfile fail.
_sendfile = os.sendfile


class ReceiveBuffers:
    """The buffers into which the connections of one event loop read: one of each size.

    A connection uses a buffer only inside one callback, so all can share it. A buffer of its own for each would keep 64 KiB
    to 1 MiB for every idle connection, which no limit counts."""

    def __init__(self) -> None:
        self._views: dict[int, memoryview] = {}

    def of_size(self, size: int) -> memoryview:
        """Returns the buffer of this size. Its content is valid until a connection reads again, unless it is taken."""
        view = self._views.get(size)
        if view is None:
            view = self._views[size] = memoryview(bytearray(size))
        return view

    def take(self, size: int) -> None:
        """Gives the buffer of this size away. The next read gets a new one."""
        self._views.pop(size, None)


class RealConnection(Connection):
    """See Connection. Takes a connected, non-blocking socket. Nothing is received before `start`."""

    # Invariant: the number of unsent bytes in `_queue`. No property, because each request asks for it several times.
    queued_bytes = 0

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        process: ProcessResources,
        buffers: ReceiveBuffers,
    ) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.peer = address_text(sock.getpeername())
        self.local_host = host_text(sock.getsockname())
        self._sock: socket.socket | None = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._process = process
        # None before `start` and once the connection is lost.
        self._receiver: Receiver | None = None
        self._buffers = buffers
        self._buffer_size = RECEIVE_BUFFER_MIN
        self._small_reads = 0
        self._reading = False
        self._paused = False
        # The socket's error, if data that arrived before it may still be unread, else None.
        self._pending_error: str | None = None
        # The parts that are not sent yet. `_region_sent` counts bytes of the first region: those already sent, and those
        # that the reader thread has read and that are queued in front of the region.
        self._queue: deque[Part] = deque()
        self._region_sent = 0
        # Whether the writer callback is registered. Invariant: False while `_region_read` is set.
        self._writing = False
        # The reader thread's read of the region at the front of the queue, or None. Nothing is sent until the read
        # completes.
        self._region_read: asyncio.Future[bytes] | None = None
        # Whether a flush left bytes in the queue. If so, the flush that empties the queue resets this field and calls the
        # receiver's `writable()`.
        self._left_over = False
        # If True, `send` ignores new parts, and the socket closes when the queue is empty. Set by `close` and when the peer
        # ends the stream; never reset.
        self._closing = False
        process.sockets[sock] = None

    def start(self, receiver: Receiver) -> None:
        """Starts reading. The connection may already be closed."""
        if self._sock is None:
            # The connection was closed before it had a receiver, so `_lose` could not notify the receiver.
            self._loop.call_soon(receiver.connection_lost, None)
        else:
            self._receiver = receiver
            self._update_reading()

    # --- receiving -----------------------------------------------------------------------------------------------
    def take_buffer(self) -> None:
        self._buffers.take(self._buffer_size)

    def pause_reading(self) -> None:
        self._paused = True
        self._update_reading()

    def resume_reading(self) -> None:
        self._paused = False
        self._update_reading()

    def _update_reading(self) -> None:
        wanted = self._sock is not None and not self._paused and not self._closing and self._receiver is not None
        if wanted and not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)
        elif self._reading and not wanted:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _on_readable(self) -> None:
        if self._sock is None or not self._reading:
            return
        view = self._buffers.of_size(self._buffer_size)
        try:
            size = self._sock.recv_into(view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error.strerror)
            return
        if size == 0:
            self._end_of_stream()
            return
        assert self._receiver is not None, "nothing is read before `start` and after the end"
        self._receiver.data_received(view[:size])
        self._adapt_buffer(size, len(view))
        self._check_for_error()

    def _check_for_error(self) -> None:
        """Keeps a socket with an error watched until its data is read.

        uvloop reports a socket with an error once and then stops watching it. If data arrived before the error, one read
        returns only that data, and nothing would ever report the error. Taking the error from the socket and watching it
        anew delivers the rest of the data, and then the end of the stream.
        """
        if self._sock is None or not (error := self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            return
        self._pending_error = os.strerror(error)
        if self._reading:
            self._loop.remove_reader(self._fd)
            self._loop.add_reader(self._fd, self._on_readable)

    def _adapt_buffer(self, received: int, capacity: int) -> None:
        """Takes a larger receive buffer when a read fills this one, a small one when most stays empty for many reads."""
        if received == capacity:
            self._small_reads = 0
            if capacity < RECEIVE_BUFFER_MAX:
                self._buffer_size = min(capacity * 4, RECEIVE_BUFFER_MAX)
        elif capacity > RECEIVE_BUFFER_MIN and received < capacity // 8:
            self._small_reads += 1
            if self._small_reads >= _SMALL_READS_MAX:
                self._small_reads = 0
                self._buffer_size = RECEIVE_BUFFER_MIN
        else:
            self._small_reads = 0

    def _end_of_stream(self) -> None:
        if self._pending_error is not None:
            self._lose(self._pending_error)
            return
        # The peer may have closed only its sending side, so it still gets what is queued.
        self._closing = True
        self._update_reading()
        if not self._queue:
            self._lose(None)

    # --- sending -------------------------------------------------------------------------------------------------
    def send(self, parts: Sequence[Part]) -> None:
        if self._closing or self._sock is None:
            return
        joined = self._enqueue(parts)
        if self._queue:
            if joined:
                self._queue.append(joined)
            if not self._writing and self._region_read is None:
                self._flush()
        elif joined:
            self._send_at_once(self._sock, joined)

    def _enqueue(self, parts: Sequence[Part]) -> bytearray:
        """Queues the parts, except for the small ones at the end, which it returns joined."""
        queue = self._queue
        size = 0
        # Small parts that follow each other are joined. To queue and to send a part takes longer than to copy it.
        joined = bytearray()
        for part in parts:
            small: Buffer | None
            if isinstance(part, bytes):
                part_size = len(part)
                small = part if part_size <= COPY_MAX else None
            elif isinstance(part, RealFileRegion):
                part_size = part.size
                small = part.log_dir.read_resident(part) if 0 < part_size <= COPY_MAX else None
            else:
                assert not isinstance(part, FileRegion), "a region of another environment"
                part_size = part.nbytes if isinstance(part, memoryview) else len(part)
                small = part if part_size <= COPY_MAX else None
            if not part_size:
                continue
            size += part_size
            if small is not None:
                joined += small
                continue
            if joined:
                queue.append(joined)
                joined = bytearray()
            queue.append(part)
        self.queued_bytes += size
        return joined

    def _send_at_once(self, sock: socket.socket, data: bytearray) -> None:
        """Sends bytes before which nothing is queued, as nearly every time, and queues what the socket does not take."""
        assert not self._writing and self._region_read is None and not self._left_over, "nothing is queued"
        try:
            sent = sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lose(error.strerror)
            return
        self.queued_bytes -= sent
        if self.queued_bytes:
            self._queue.append(memoryview(data)[sent:])
            self._left_over = True
            self._set_writing(True)

    def _flush(self) -> None:
        if self._sock is None or self._region_read is not None:
            return
        queue = self._queue
        budget = _TURN_BYTES
        while queue and budget > 0:
            front = queue[0]
            sent = self._send_region(front) if isinstance(front, RealFileRegion) else self._send_bytes()
            if sent is None:
                # The connection was lost, or the reader thread is reading the region and `_on_region_read` will flush again.
                return
            if sent == 0:
                break
            budget -= sent
            self.queued_bytes -= sent
        if queue:
            self._left_over = True
            self._set_writing(True)
            return
        self._set_writing(False)
        if self._closing:
            self._lose(None)
        elif self._left_over:
            self._left_over = False
            cast(Receiver, self._receiver).writable()

    def _set_writing(self, wanted: bool) -> None:
        if wanted and not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._flush)
        elif self._writing and not wanted:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _send_bytes(self) -> int | None:
        """Sends parts up to the next region and returns the number of bytes sent.

        Returns None if the connection was lost, 0 if the socket takes nothing now.
        """
        queue = self._queue
        parts: list[Buffer] = []
        flags = 0
        for part in islice(queue, _PARTS_PER_SEND_MAX):
            if isinstance(part, RealFileRegion):
                # Let the response header share a TCP segment with the records after it.
                flags = socket.MSG_MORE
                break
            assert isinstance(part, Buffer)
            parts.append(part)
        try:
            sent = cast(socket.socket, self._sock).sendmsg(parts, (), flags)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._lose(error.strerror)
            return None
        left = sent
        for part in parts:
            size = part.nbytes if isinstance(part, memoryview) else len(part)
            if left < size:
                if left:
                    queue[0] = memoryview(part).cast("B")[left:]
                break
            left -= size
            queue.popleft()
        return sent

    def _send_region(self, region: RealFileRegion) -> int | None:
        """Sends part of the region at the front of the queue.

        Returns the same as `_send_bytes`. None may also mean that the reader thread is reading the part first.
        """
        if not region.is_valid:
            self._lose(f"{region.file.name} was truncated or its log directory closed while it was being sent")
            return None
        position = region.position + self._region_sent
        size = min(region.size - self._region_sent, _SENDFILE_MAX)
        if not region.log_dir.is_resident(region, position, size):
            self._read_region(region, position, size)
            return None
        try:
            sent = _sendfile(self._fd, region.file.fd, position, size)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            if error.errno in _SENDFILE_REFUSED:
                self._read_region(region, position, size)
                return None
            self._lose(error.strerror)
            if error.errno not in _SOCKET_ERRNOS:
                region.log_dir.region_failed(region, error)
            return None
        if sent == 0:
            self._lose(f"{region.file.name} ended before the range that was being sent")
            return None
        self._region_advanced(region, sent)
        return sent

    def _region_advanced(self, region: RealFileRegion, size: int) -> None:
        self._region_sent += size
        if self._region_sent == region.size:
            self._region_sent = 0
            self._queue.popleft()

    def _read_region(self, region: RealFileRegion, position: int, size: int) -> None:
        self._set_writing(False)
        self._left_over = True
        self._region_read = region.log_dir.read_region(region, position, size)
        self._region_read.add_done_callback(self._on_region_read)

    def _on_region_read(self, read: "asyncio.Future[bytes]") -> None:
        self._region_read = None
        if self._sock is None:
            return
        region = self._queue[0]
        assert isinstance(region, RealFileRegion)
        if not read.cancelled() and isinstance(error := read.exception(), LogDirError):
            # The log directory has reported the error to its owner. The response may already be partly sent, so the
            # connection must end.
            self._lose(str(error))
            return
        data = read.result()
        asked = min(region.size - self._region_sent, _SENDFILE_MAX)
        if len(data) < asked or not region.is_valid:
            self._lose(f"{region.file.name} ended before the range that was being sent")
            return
        self._region_advanced(region, len(data))
        self._queue.appendleft(data)
        self._flush()

    # --- the end -------------------------------------------------------------------------------------------------
    def close(self) -> None:
        if self._sock is None or self._closing:
            return
        self._closing = True
        self._update_reading()
        if not self._queue:
            self._lose(None)

    def abort(self) -> None:
        self._lose(None, reset=True)

    def _lose(self, reason: str | None, *, reset: bool = False) -> None:
        """Ends the connection. Later calls do nothing. The receiver is notified in the next event loop step."""
        sock = self._sock
        if sock is None:
            return
        self._sock = None
        self._update_reading()
        self._set_writing(False)
        self._queue.clear()
        self.queued_bytes = 0
        self._process.sockets.pop(sock, None)
        if reason is None and not reset:
            close_socket(sock)
        else:
            # Reset the connection, so that a truncated response does not look complete. The kernel then also drops unsent
            # data, instead of keeping it for a peer that does not read.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
            sock.close()
        # Let go of the receiver. It refers to this connection, so otherwise only the garbage collector would free the two,
        # and with them a half-received request.
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            self._loop.call_soon(receiver.connection_lost, reason)


def host_text(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """Returns the host of a socket address. An IPv4 peer of a dual-stack socket is shown as IPv4."""
    return address[0].removeprefix("::ffff:")


def address_text(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """Returns "host:port", with brackets around an IPv6 host."""
    host = host_text(address)
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
