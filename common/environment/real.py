"""The real environment: this machine's clock, network, disks and randomness (shell).

Each node creates one RealEnvironment inside the running event loop; the nodes of a process share `PROCESS`. Its counterparts
in Kafka are `Time`, `Selector`, `SocketServer` and `LogManager`. Only `exit` ends the process reliably: a normal exit would
wait for threads that a hung disk may block forever, and would leave the ports open.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

import structlog
from prometheus_client.registry import Collector

from common.environment.interface import (
    SYNC_TIMEOUT_NS,
    ConnectFailed,
    Connection,
    Environment,
    Listener,
    LogDir,
    Receiver,
)
from common.environment.metrics_server import MetricsServer
from common.environment.page_cache import PageCache
from common.environment.process import PROCESS
from common.environment.real_connection import RealConnection, ReceiveBuffers, host_text
from common.environment.real_log_dir import RealLogDir
from common.environment.real_network import RealListener, Resolver, connected_socket, listening_socket
from common.environment.real_timers import TimeoutAt, Timer, sleep_until
from common.ids import Uuid, uuid_text
from common.time_units import NS_PER_MS


class RealEnvironment(Environment):
    """See Environment. `node_name` is part of every log line."""

    def __init__(self, node_name: str) -> None:
        self.rng = random.Random(int.from_bytes(os.urandom(32), "big"))
        self.log = structlog.get_logger().bind(node=node_name)
        self._loop = asyncio.get_running_loop()
        self._process = PROCESS
        self._buffers = ReceiveBuffers()
        self._page_cache = PageCache()
        self._resolver = Resolver(self._loop)

    # Without a function around it: a small request asks for the time several times.
    now_ns = staticmethod(time.monotonic_ns)

    def wall_ms(self) -> int:
        return time.time_ns() // NS_PER_MS

    async def sleep_until(self, deadline_ns: int) -> None:
        await sleep_until(self._loop, deadline_ns)

    def timeout_at(self, deadline_ns: int) -> AbstractAsyncContextManager[None]:
        return TimeoutAt(self._loop, deadline_ns)

    def call_at(self, deadline_ns: int, callback: Callable[[], None]) -> Callable[[], None]:
        return Timer(self._loop, deadline_ns, callback).cancel

    def uuid(self) -> Uuid:
        while True:
            raw = bytearray(os.urandom(16))
            # Version 4, as in Java. Such a uuid is never one of the reserved first 100.
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            uuid = Uuid(bytes(raw))
            # Command-line tools would treat a leading '-' as an option.
            if not uuid_text(uuid).startswith("-"):
                return uuid

    def listen(self, host: str, port: int, accept: Callable[[Connection], Receiver]) -> Listener:
        sock = listening_socket(host, port)
        return RealListener(sock, accept=accept, loop=self._loop, log=self.log, process=self._process, buffers=self._buffers)

    async def connect(
        self, host: str, port: int, accept: Callable[[Connection], Receiver], *, deadline_ns: int
    ) -> Connection:
        try:
            async with self.timeout_at(deadline_ns):
                sock = await connected_socket(self._loop, self._resolver, host, port)
        except TimeoutError:
            raise ConnectFailed(f"cannot connect to {host}:{port}: no answer before the deadline") from None
        try:
            connection = RealConnection(sock, self._loop, self._process, self._buffers)
        except OSError as error:
            sock.close()
            raise ConnectFailed(f"cannot connect to {host}:{port}: {error.strerror}") from error
        connection.start(accept(connection))
        return connection

    def log_dir(self, path: str, *, operation_timeout_ns: int, sync_timeout_ns: int = SYNC_TIMEOUT_NS) -> LogDir:
        return RealLogDir(
            path,
            operation_timeout_ns=operation_timeout_ns,
            sync_timeout_ns=sync_timeout_ns,
            loop=self._loop,
            log=self.log,
            process=self._process,
            page_cache=self._page_cache,
        )

    def serve_metrics(self, host: str, port: int, collector: Collector) -> Callable[[], None]:
        listening = listening_socket(host, port)
        bound_to = listening.getsockname()
        server = MetricsServer(listening, collector, self._process)
        self.log.info("metrics_served", host=host_text(bound_to), port=bound_to[1])
        return server.stop

    def exit(self, code: int) -> NoReturn:
        self._process.exit(code)
