"""Serves Kafka requests on one listener: frames in, handlers called, responses out in the order of the requests (shell).

Kafka's `SocketServer`, `RequestChannel` and the frame of `KafkaApis`. Handlers of one connection start in order and may end
in any; a peer that misbehaves costs one log line and its own connection. Limits: requests in flight, bytes queued for a
peer, bytes of requests held, connections in all and per host, deadlines for idleness, for half a frame and for a peer
that does not read. The easy thing to get wrong: a stopped connection has whole frames lying in its reader, so whatever
removes the cause must call `_advance`, not wait for more data.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from common.environment.interface import Connection, Environment, Listener, Receiver
from common.net.api_versions import advertised_versions, api_versions_response, unsupported_version_response
from common.net.error_responses import error_response
from common.net.frame_reader import FrameReader
from common.net.request_context import ANONYMOUS, Authorize, Handler, RequestContext, allow_all
from common.net.request_memory import RequestMemory
from common.parts import Part
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode_request
from common.protocol.errors import ApiError, RemoteProtocolError
from common.protocol.framing import encode_response_frame, parse_request
from common.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from common.protocol.messages.produce import ProduceRequest
from common.protocol.registry import APIS
from common.protocol.schema import Struct, VersionRange
from common.time_units import NS_PER_S

# Api key, version and correlation id stand at the same place in every version of the request header.
HEADER_START: Final = struct.Struct(">hhi")

SWEEP_INTERVAL_NS: Final = NS_PER_S

# A decoded request, and what its handler makes of it, takes several times the bytes that came in. The records of a produce
# request are not decoded, only what names their partitions.
DECODED_FACTOR: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one server allows its peers. The numbers are those of reference/faults.md, "Malformed input"."""

    in_flight_per_connection_max: int = 64
    # Responses that a peer has not taken yet, and those to come whose size is known; beyond it no further request of that
    # peer is started.
    queued_response_bytes_max: int = 1024 * 1024
    request_memory_bytes: int = 256 * 1024 * 1024
    connections_max: int = 2000
    connections_per_host_max: int = 200
    # Negative: for ever.
    idle_ns: int = 600 * NS_PER_S
    # A frame has this long, and longer in proportion to its size.
    frame_ns: int = 30 * NS_PER_S
    frame_bytes_per_second_min: int = 16 * 1024
    # How long a peer may take none of what is queued for it.
    stalled_ns: int = 30 * NS_PER_S


class RequestServer:
    """One listener and its connections."""

    def __init__(
        self,
        env: Environment,
        *,
        listener_name: str,
        host: str,
        port: int,
        handlers: Mapping[ApiKey, Handler],
        max_request_bytes: int,
        task_group: asyncio.TaskGroup,
        advertised: Mapping[ApiKey, VersionRange] | None = None,
        authorize: Authorize = allow_all,
        limits: ServerLimits | None = None,
    ) -> None:
        self.env = env
        self.listener_name = listener_name
        self.max_request_bytes = max_request_bytes
        self.limits = limits or ServerLimits()
        self.task_group = task_group
        self.authorize = authorize
        self.memory = RequestMemory(self.limits.request_memory_bytes, self._memory_is_full)
        served = {ApiKey.API_VERSIONS: self._handle_api_versions, **handlers}
        self.advertised = advertised if advertised is not None else advertised_versions(served)
        self.handlers: Mapping[ApiKey, Handler] = served
        self._host = host
        self._port = port
        self._listener: Listener | None = None
        # Insertion ordered: the order in which they are swept and closed must not depend on addresses in memory.
        self._connections: dict[ServedConnection, None] = {}
        self._connections_of_host: dict[str, int] = {}
        self._cancel_sweep: Callable[[], None] | None = None

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def start(self) -> Listener:
        """Listens. Raises ListenFailed."""
        self._listener = self.env.listen(self._host, self._port, self._accept)
        return self._listener

    def close(self) -> None:
        """Stops listening and closes every connection, after what is queued for it has left."""
        if self._listener is not None:
            self._listener.close()
        if self._cancel_sweep is not None:
            self._cancel_sweep()
        for connection in list(self._connections):
            connection.close()

    def forget(self, connection: "ServedConnection") -> None:
        """The connection is gone."""
        if self._connections.pop(connection, self) is self:
            return
        left = self._connections_of_host[connection.host] - 1
        if left:
            self._connections_of_host[connection.host] = left
        else:
            del self._connections_of_host[connection.host]

    def _handle_api_versions(self, context: RequestContext, request: Any) -> Struct:
        return api_versions_response(self.advertised)

    def _memory_is_full(self) -> None:
        for connection in list(self._connections):
            connection.settle_reading()

    def _accept(self, connection: Connection) -> Receiver:
        host = connection.peer.rpartition(":")[0]
        refusal = self._refusal(host)
        if refusal is not None:
            self.env.log.warning(
                "connection_limit_reached", listener=self.listener_name, peer=connection.peer, reason=refusal
            )
            connection.close()
            return _Refused()
        served = ServedConnection(self, connection, host)
        self._connections[served] = None
        self._connections_of_host[host] = self._connections_of_host.get(host, 0) + 1
        if self._cancel_sweep is None:
            self._sweep_later()
        return served

    def _refusal(self, host: str) -> str | None:
        if len(self._connections) >= self.limits.connections_max:
            return f"{self.limits.connections_max} connections are open"
        if self._connections_of_host.get(host, 0) >= self.limits.connections_per_host_max:
            return f"{self.limits.connections_per_host_max} connections of this host are open"
        return None

    def _sweep_later(self) -> None:
        self._cancel_sweep = self.env.call_at(self.env.now_ns() + SWEEP_INTERVAL_NS, self._sweep)

    def _sweep(self) -> None:
        """One timer for the deadlines of all connections; it rests while there are none."""
        self._cancel_sweep = None
        now_ns = self.env.now_ns()
        for connection in list(self._connections):
            connection.check_deadlines(now_ns)
        if self._connections:
            self._sweep_later()


class _Refused:
    """The receiver of a connection that is not served."""

    def data_received(self, view: memoryview) -> None:
        """Nothing is read from it."""

    def connection_lost(self, reason: str | None) -> None:
        """It was never counted."""

    def writable(self) -> None:
        """Nothing is sent on it."""


class _Exchange:
    """One request and, once there is one, its response. It leaves when all before it have left."""

    __slots__ = ("api_key", "correlation_id", "is_done", "parts", "request", "response_size", "size", "version")

    def __init__(
        self,
        api_key: ApiKey,
        version: int,
        correlation_id: int,
        *,
        request: Struct | None = None,
        size: int = 0,
        response_size: int = 0,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        # Until it is answered or released. What refers to an exchange must not refer to the request, or it would stay.
        self.request = request
        self.size = size
        # Expected until the response is there.
        self.response_size = response_size
        self.parts: list[Part] | None = None
        self.is_done = False


class ServedConnection:
    """One connection of a RequestServer: the Receiver of its Connection."""

    def __init__(self, server: RequestServer, connection: Connection, host: str) -> None:
        self.host = host
        self._server = server
        self._env = server.env
        self._limits = server.limits
        self._connection = connection
        self._reader = FrameReader(
            size_min=HEADER_START.size, size_max=server.max_request_bytes, take_buffer=connection.take_buffer
        )
        # In the order of the requests. The first one is not done, or it would have left.
        self._exchanges: deque[_Exchange] = deque()
        # Of all of them: responses that wait for those before them take memory like responses that wait for the peer.
        self._response_bytes = 0
        self._is_open = True
        self._is_reading = True
        self._is_advancing = False
        self._recheck_is_scheduled = False
        # Of the requests that are being handled, and all that the memory has been told of.
        self._in_flight_bytes = 0
        self._charged_bytes = 0
        now_ns = self._env.now_ns()
        self._last_use_ns = now_ns
        self._frame_since_ns: int | None = None
        self._sent_bytes = 0
        self._taken_bytes = 0
        self._taken_since_ns = now_ns

    # --- Receiver ------------------------------------------------------------------------------------------------
    def data_received(self, view: memoryview) -> None:
        if not self._is_open:
            return
        self._last_use_ns = self._env.now_ns()
        self._reader.receive(view)
        self._advance()
        self._reader.keep_rest()

    def connection_lost(self, reason: str | None) -> None:
        if self._is_open and self._frame_since_ns is not None:
            self._log_malformed("the connection ended inside a frame")
        self._stop()
        self._exchanges.clear()
        self._server.forget(self)

    def writable(self) -> None:
        self._advance()

    # --- for the server ------------------------------------------------------------------------------------------
    def memory_is_free(self) -> None:
        self._advance()

    def settle_reading(self) -> None:
        """Reads on or stops reading, as the state of the connection and the memory in use allow."""
        if not self._is_open or self._is_advancing:
            return
        self._charge()
        may_start = self._may_start()
        is_inside = self._reader.is_inside_a_frame
        if not may_start or not is_inside:
            self._server.memory.pass_on(self)
        may_read = may_start and self._server.memory.may_read(self, is_inside_a_frame=is_inside)
        if not may_start:
            self._recheck_queue()
        self._watch_frame(may_read)
        if may_read != self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._connection.resume_reading()
            else:
                self._connection.pause_reading()

    def close(self) -> None:
        """Ends the connection from our side, after what is queued has left."""
        self._stop()
        self._connection.close()

    def check_deadlines(self, now_ns: int) -> None:
        """Ends the connection when its peer was silent, slow in the middle of a frame, or took nothing for too long."""
        limits = self._limits
        queued_bytes = self._connection.queued_bytes
        taken_bytes = self._sent_bytes - queued_bytes
        if queued_bytes == 0 or taken_bytes != self._taken_bytes:
            self._taken_bytes = taken_bytes
            self._taken_since_ns = now_ns
        elif now_ns - self._taken_since_ns >= limits.stalled_ns:
            self._end(f"{queued_bytes} bytes wait and the peer takes none of them")
            return
        if not self._is_reading or not self._is_open:
            return
        if self._frame_since_ns is not None:
            size_ns = self._reader.expected_size * NS_PER_S // limits.frame_bytes_per_second_min
            if now_ns - self._frame_since_ns >= limits.frame_ns + size_ns:
                self._end("a request was begun and not finished")
        elif not self._exchanges and not queued_bytes and 0 <= limits.idle_ns <= now_ns - self._last_use_ns:
            self._end(None)

    def _end(self, reason: str | None) -> None:
        """Drops a peer that makes no progress. Idleness is ordinary and not worth a warning."""
        log = self._env.log.debug if reason is None else self._env.log.warning
        log(
            "connection_dropped",
            listener=self._server.listener_name,
            peer=self._connection.peer,
            reason=reason or "idle",
        )
        self._stop()
        self._connection.abort()

    def _stop(self) -> None:
        """Nothing more is read or answered; the requests that are being handled are answered into the void."""
        if self._is_open:
            self._is_open = False
            self._frame_since_ns = None
            self._charge()
            self._server.memory.forget(self)

    # --- requests ------------------------------------------------------------------------------------------------
    def _advance(self) -> None:
        """Starts all requests that are there and may start, then reads on or stops reading."""
        if self._is_advancing or not self._is_open:
            # Called from inside, by a handler that is done at once: the loop below goes on anyway.
            return
        self._is_advancing = True
        try:
            while self._may_start():
                frame = self._reader.next_frame()
                if frame is None:
                    break
                self._frame_since_ns = None
                self._start(frame)
        except RemoteProtocolError as error:
            self._refuse(str(error))
        finally:
            self._is_advancing = False
        self.settle_reading()

    def _may_start(self) -> bool:
        if not self._is_open or len(self._exchanges) >= self._limits.in_flight_per_connection_max:
            return False
        return self._connection.queued_bytes + self._response_bytes <= self._limits.queued_response_bytes_max

    def _watch_frame(self, may_read: bool) -> None:
        """The clock of a partial frame runs only while its peer could send the rest."""
        if not may_read or not self._reader.is_inside_a_frame:
            self._frame_since_ns = None
        elif self._frame_since_ns is None:
            self._frame_since_ns = self._env.now_ns()

    def _recheck_queue(self) -> None:
        """Bytes that were queued just now may all leave at the end of this step, and then nobody calls `writable`."""
        if self._recheck_is_scheduled or self._connection.queued_bytes <= self._limits.queued_response_bytes_max:
            return
        self._recheck_is_scheduled = True
        self._env.call_at(self._env.now_ns() + 1, self._recheck)

    def _recheck(self) -> None:
        self._recheck_is_scheduled = False
        if self._connection.queued_bytes <= self._limits.queued_response_bytes_max:
            self._advance()

    def _charge(self) -> None:
        """Tells the memory what this connection holds now."""
        held_bytes = self._in_flight_bytes + (self._reader.buffered_bytes if self._is_open else 0)
        difference = held_bytes - self._charged_bytes
        if difference:
            # Noted first, for the change may come back here when it fills the memory.
            self._charged_bytes = held_bytes
            self._server.memory.change(difference)

    def _start(self, frame: memoryview) -> None:
        """Calls the handler of one request. Raises RemoteProtocolError for what is none."""
        api_number, version, correlation_id = HEADER_START.unpack_from(frame)
        api = APIS.get(api_number)
        handler = self._server.handlers.get(api_number)
        if api is None or handler is None:
            raise RemoteProtocolError(f"api key {api_number} is not served here")
        if version not in api.versions:
            self._refuse_version(api.key, version, correlation_id)
            return
        header, body = parse_request(frame)
        request, memory = decode_request(api.request, body, version)
        exchange = _Exchange(
            api.key,
            version,
            correlation_id,
            request=request,
            size=_held_bytes(request, frame, memory),
            response_size=_expected_response_size(request),
        )
        context = RequestContext(
            api_key=api.key,
            api_version=version,
            correlation_id=correlation_id,
            client_id=header.client_id,
            listener_name=self._server.listener_name,
            peer=self._connection.peer,
            local_host=self._connection.local_host,
            principal=ANONYMOUS,
            received_ns=self._last_use_ns,
            request_bytes=frame,
            release=partial(self._release, exchange, len(frame)),
        )
        self._exchanges.append(exchange)
        self._response_bytes += exchange.response_size
        self._in_flight_bytes += exchange.size
        self._charge()
        try:
            self._server.authorize(context, request)
            result = handler(context, request)
        except ApiError as error:
            self._fail(exchange, error)
            return
        if isinstance(result, asyncio.Future):
            result.add_done_callback(partial(self._future_is_done, exchange))
        elif isinstance(result, Awaitable):
            self._server.task_group.create_task(self._await_result(exchange, result))
        else:
            self._answer(exchange, result)

    def _refuse_version(self, api_key: ApiKey, version: int, correlation_id: int) -> None:
        if api_key is not ApiKey.API_VERSIONS:
            raise RemoteProtocolError(f"version {version} of {api_key.name} is not served")
        # A client that guessed too new a version can read version 0, which tells it what to use (KIP-511).
        exchange = _Exchange(api_key, 0, correlation_id)
        self._exchanges.append(exchange)
        self._answer(exchange, unsupported_version_response(self._server.advertised))

    def _release(self, exchange: _Exchange, frame_bytes: int) -> None:
        """The handler has let go of a request that it will answer later. What its elements took goes on to count, for the
        response has as many."""
        if exchange.request is not None:
            exchange.request = None
            exchange.size -= frame_bytes
            self._in_flight_bytes -= frame_bytes
            self._charge()

    # --- responses -----------------------------------------------------------------------------------------------
    async def _await_result(self, exchange: _Exchange, result: Awaitable[Any]) -> None:
        try:
            response = await result
        except ApiError as error:
            self._fail(exchange, error)
        else:
            self._answer(exchange, response)

    def _future_is_done(self, exchange: _Exchange, done: "asyncio.Future[Any]") -> None:
        if done.cancelled():
            # Only the end of the daemon cancels what a handler waits for.
            return
        error = done.exception()
        if isinstance(error, ApiError):
            self._fail(exchange, error)
        elif error is not None:
            self._server.task_group.create_task(_raise(error))
        else:
            self._answer(exchange, done.result())

    def _fail(self, exchange: _Exchange, error: ApiError) -> None:
        assert exchange.request is not None
        response = error_response(exchange.request, exchange.api_key, error.code, error.message)
        if response is None and self._is_open:
            # Nothing may be answered, so closing is the only way to tell.
            self._refuse(f"{exchange.api_key.name} that wants no response failed with {error}")
        self._answer(exchange, response)

    def _answer(self, exchange: _Exchange, response: Struct | None) -> None:
        exchange.request = None
        self._in_flight_bytes -= exchange.size
        self._charge()
        exchange.is_done = True
        self._response_bytes -= exchange.response_size
        exchange.response_size = 0
        if response is not None and self._is_open:
            exchange.parts = encode_response_frame(exchange.correlation_id, response, exchange.version)
            exchange.response_size = sum(map(len, exchange.parts))
            self._response_bytes += exchange.response_size
        self._send_what_is_done()

    def _send_what_is_done(self) -> None:
        if not self._is_open:
            return
        exchanges = self._exchanges
        parts: list[Part] = []
        size = 0
        while exchanges and exchanges[0].is_done:
            exchange = exchanges.popleft()
            parts += exchange.parts or ()
            size += exchange.response_size
        if parts:
            self._last_use_ns = self._env.now_ns()
            self._response_bytes -= size
            self._sent_bytes += size
            self._connection.send(parts)
        self._advance()

    def _refuse(self, reason: str) -> None:
        self._log_malformed(reason)
        self.close()

    def _log_malformed(self, reason: str) -> None:
        self._env.log.warning(
            "request_malformed", listener=self._server.listener_name, peer=self._connection.peer, reason=reason
        )


def _held_bytes(request: Struct, frame: memoryview, memory: int) -> int:
    """What a request takes while it is handled, about; `memory` is what its elements take besides their text."""
    decoded = len(frame) + memory
    return decoded if isinstance(request, ProduceRequest) else max(decoded, len(frame) * DECODED_FACTOR)


def _expected_response_size(request: Struct) -> int:
    """What the response to a request will take in memory, where that is much and can be told beforehand.

    Of Fetch only the places of the records are in memory, and the other large responses are there at once."""
    return max(0, request.max_bytes) if isinstance(request, FetchSnapshotRequest) else 0


async def _raise(error: BaseException) -> None:
    """Ends the daemon: an error that no handler may have must not be lost in a callback."""
    raise error
