"""Listening, connecting and resolving names for the real environment (shell).

1. Each name is resolved on a thread of its own, because the resolver may hang. The event loop's default executor is never
   used: a call stuck there would outlive the loop.
2. A process that is out of descriptors must stop accepting for a while, or it would spin.
3. A connect to a free local port in the ephemeral range, above 32768, can connect to itself. That counts as refused.
"""

import asyncio
import contextlib
import errno
import os
import socket
import threading
from collections.abc import Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from common.environment.interface import ConnectFailed, Connection, Listener, ListenFailed, Receiver
from common.environment.process import ProcessResources, close_socket
from common.environment.real_connection import RealConnection, ReceiveBuffers, host_text

_BACKLOG: Final = 1024
_ACCEPTS_PER_TURN: Final = 64
_ACCEPT_PAUSE_SECONDS: Final = 1.0
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]
Accept = Callable[[Connection], Receiver]


class RealListener(Listener):
    """Accepts connections on a socket that is already listening."""

    def __init__(
        self,
        sock: socket.socket,
        *,
        accept: Accept,
        loop: asyncio.AbstractEventLoop,
        log: FilteringBoundLogger,
        process: ProcessResources,
        buffers: ReceiveBuffers,
    ) -> None:
        address = sock.getsockname()
        self.host = host_text(address)
        self.port = address[1]
        self._sock: socket.socket | None = sock
        self._accept = accept
        self._loop = loop
        self._log = log
        self._process = process
        self._buffers = buffers
        self._pause: asyncio.TimerHandle | None = None
        process.sockets[sock] = None
        loop.add_reader(sock.fileno(), self._on_readable)

    def close(self) -> None:
        sock = self._sock
        if sock is None:
            return
        self._sock = None
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(sock.fileno())
        self._process.sockets.pop(sock, None)
        close_socket(sock)

    def _on_readable(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if self._sock is None:
                return
            try:
                accepted, _peer = self._sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_DESCRIPTORS:
                    self._pause_accepting(error)
                    return
                # This connection failed before it was accepted. Others may be waiting.
                continue
            self._begin(accepted)

    def _begin(self, accepted: socket.socket) -> None:
        try:
            accepted.setblocking(False)
            connection = RealConnection(accepted, self._loop, self._process, self._buffers)
        except OSError:
            # The peer disconnected before sending anything.
            accepted.close()
            return
        connection.start(self._accept(connection))

    def _pause_accepting(self, error: OSError) -> None:
        assert self._sock is not None
        self._log.error("accept_failed", host=self.host, port=self.port, error=error.strerror)
        self._loop.remove_reader(self._sock.fileno())
        self._pause = self._loop.call_later(_ACCEPT_PAUSE_SECONDS, self._resume_accepting)

    def _resume_accepting(self) -> None:
        if self._sock is not None:
            self._loop.add_reader(self._sock.fileno(), self._on_readable)


def listening_socket(host: str, port: int) -> socket.socket:
    """Returns a listening socket. Host "" means all interfaces, for IPv4 and, if the machine has it, IPv6.

    Raises ListenFailed.
    """
    where = f"{host or '*'}:{port}"
    try:
        if host:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            # Like Java, prefer IPv4 if the name has addresses of both families.
            family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
            return _listen_on(family, address)
        with contextlib.suppress(OSError):
            return _listen_on(socket.AF_INET6, ("::", port, 0, 0))
        return _listen_on(socket.AF_INET, ("0.0.0.0", port))
    except (OSError, OverflowError, ValueError) as error:
        # ValueError means an impossible host name, for example one with a label of 64 characters.
        raise ListenFailed(f"cannot listen on {where}: {_reason(error)}") from error


def _listen_on(family: int, address: object) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setblocking(False)
        sock.bind(address)  # type: ignore[arg-type]  # `object` is wider than typeshed's address type
        sock.listen(_BACKLOG)
    except (OSError, OverflowError):
        sock.close()
        raise
    return sock


class Resolver:
    """Resolves names to addresses. Concurrent calls for the same name share one thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The result of each look-up under way, by (host, port). An entry is removed when its thread has reported the result.
        self._asked: dict[tuple[str, int], asyncio.Future[list[_Address]]] = {}

    async def resolve(self, host: str, port: int) -> list[_Address]:
        """Returns the addresses in the resolver's order. Raises OSError."""
        try:
            return _addresses(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # The host is not an IP address, so look the name up.
        key = (host, port)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._loop.create_future()
            # Retrieve the exception, so that asyncio does not log a failure for which no caller is waiting any more.
            asked.add_done_callback(lambda done: done.exception())
            thread = threading.Thread(target=self._look_up, args=(key, asked), name=f"resolver of {host}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise OSError(errno.EAGAIN, str(error)) from error
            self._asked[key] = asked
        return await asyncio.shield(asked)

    def _look_up(self, key: tuple[str, int], asked: "asyncio.Future[list[_Address]]") -> None:
        found: list[_Address] | OSError
        try:
            found = _addresses(*key, 0)
        except OSError as error:
            found = error
        with contextlib.suppress(RuntimeError):  # The loop may be closed by now.
            self._loop.call_soon_threadsafe(self._found, key, asked, found)

    def _found(
        self, key: tuple[str, int], asked: "asyncio.Future[list[_Address]]", found: "list[_Address] | OSError"
    ) -> None:
        self._asked.pop(key, None)
        if isinstance(found, OSError):
            asked.set_exception(found)
        else:
            asked.set_result(found)


def _addresses(host: str, port: int, flags: int) -> list[_Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except ValueError as error:
        # The host may come from a registration or a file and have a label of 64 characters, two dots in a row or a NUL.
        raise socket.gaierror(socket.EAI_NONAME, f"no host can have this name ({error})") from error
    # typeshed also allows an (int, bytes) address, which only a Python without IPv6 returns.
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]


async def connected_socket(loop: asyncio.AbstractEventLoop, resolver: Resolver, host: str, port: int) -> socket.socket:
    """Connects to the first of the host's addresses that accepts. Raises ConnectFailed with the last failure."""
    reason = "the name has no address"
    try:
        addresses = await resolver.resolve(host, port)
    except (OSError, OverflowError) as error:
        raise ConnectFailed(f"cannot connect to {host}:{port}: {_reason(error)}") from error
    for family, address in addresses:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            # The process is out of descriptors. Report it like an unreachable peer, because it may also be temporary.
            reason = _reason(error)
            continue
        connected = False
        try:
            sock.setblocking(False)
            await _connect(loop, sock, address)
            if sock.getsockname() == sock.getpeername():
                raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens, the connection met itself")
            connected = True
            return sock
        except OSError as error:
            reason = _reason(error)
        finally:
            if not connected:
                sock.close()
    raise ConnectFailed(f"cannot connect to {host}:{port}: {reason}")


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


async def _connect(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: object) -> None:
    code = sock.connect_ex(address)  # type: ignore[arg-type]
    if code == errno.EINPROGRESS:
        writable: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not writable.done():
                writable.set_result(None)

        loop.add_writer(sock.fileno(), wake)
        try:
            await writable
        finally:
            loop.remove_writer(sock.fileno())
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))
