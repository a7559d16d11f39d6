"""One connection of a request server: reads frames, calls handlers, sends responses in request order (shell).

Counterpart of Kafka's `RequestChannel` and the request loop of `KafkaApis`. Handlers start in the order of the requests and
may finish in any order. A finished response waits in its exchange until all earlier responses have been sent. A handler of
`IN_TURN` starts only then. Six causes pause reading, and each has its own event that resumes it:

1. Too many requests are in progress. Resumed when a response is sent.
2. The peer takes its queued responses too slowly. Resumed by `writable`.
3. The memory of the whole server is used up. Resumed by `memory_is_free`. The connection of a follower reads on: its fetches
   are small, and they are what the requests that fill the memory may wait for.
4. A request waits for a directory that is over its share of the memory. Resumed when the request no longer waits.
5. A long request is decoded in slices. Resumed when its handler has started, so that no later request overtakes it.
6. Requests that have arrived together have taken a whole turn (`TURN_NS`). Resumed in the next turn of the event loop.

A paused connection may hold complete frames in its reader, and no further data may ever arrive. So every event that removes
a cause must end in `_advance`.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from typing import Any, Final, Protocol

from common.environment.interface import Connection, Environment
from common.ids import DirectoryId
from common.light_tasks import LightTask
from common.net.api_versions import unsupported_version_response
from common.net.error_responses import error_response
from common.net.frame_reader import FrameReader
from common.net.peer_warnings import PeerWarnings
from common.net.request_context import ANONYMOUS, Authorize, ConnectAgain, DirectoryWait, Handler, RequestContext
from common.net.request_memory import RequestMemory
from common.net.request_sizes import (
    DECODED_FACTOR,
    LONG_REQUEST_BYTES,
    LONG_RESPONSES,
    expected_response_size,
    is_of_follower,
)
from common.net.server_limits import ServerLimits
from common.parts import Part
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode_request, decode_request_in_slices
from common.protocol.errors import ApiError, RemoteProtocolError
from common.protocol.framing import encode_response_frame, encode_response_frame_in_slices, request_body
from common.protocol.messages.fetch import FetchResponse
from common.protocol.messages.produce import ProduceRequest
from common.protocol.numbering import NumberingSource
from common.protocol.registry import APIS
from common.protocol.schema import Struct, VersionRange
from common.slices import ELEMENTS_PER_SLICE, result_in_slices
from common.time_units import NS_PER_MS, NS_PER_S

# API key, version and correlation id are at the same place in every version of the request header.
HEADER_START: Final = struct.Struct(">hhi")

# How long a connection goes on starting requests that have arrived together. Where records have to be looked at, one request
# can take the event loop a fifth of a second.
TURN_NS: Final = 50 * NS_PER_MS

# Requests that are handled only when all earlier ones of their connection have been answered, as Kafka does with all. A
# consumer takes the last answer for the newest. An end offset that was looked up while a fetch waited for records may be
# below the high watermark in the answer to that fetch, and an incremental fetch does not repeat what has not changed. Kafka
# Streams would wait for the next record.
IN_TURN: Final = frozenset({ApiKey.LIST_OFFSETS})


class Server(Protocol):
    """The part of RequestServer that a connection uses."""

    env: Environment
    listener_name: str
    warnings: PeerWarnings
    max_request_bytes: int
    limits: ServerLimits
    memory: RequestMemory
    task_group: asyncio.TaskGroup
    advertised: Mapping[ApiKey, VersionRange]
    # Look the handler up for each request, because the simulator's checkers wrap handlers after the server is created.
    handlers: Mapping[ApiKey, Handler]
    authorize: Authorize
    numbering: NumberingSource

    def forget(self, connection: "ServedConnection") -> None:
        """Removes a lost connection."""


class _Exchange:
    """One request and later its response. Leaves the connection's queue when it is done and all earlier ones have left."""

    __slots__ = (
        "_connection",
        "api_key",
        "correlation_id",
        "frame_size",
        "is_done",
        "is_kept",
        "is_long",
        "parts",
        "request",
        "response_size",
        "size",
        "start",
        "version",
    )

    def __init__(
        self,
        connection: "ServedConnection",
        api_key: ApiKey,
        version: int,
        correlation_id: int,
        frame_size: int = 0,
        is_long: bool = False,
    ) -> None:
        self._connection = connection
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        # The decoded request. None until it is decoded, and once it is answered or released. Nothing else that outlives the
        # handler may refer to the request; otherwise its frame would stay in memory.
        self.request: Struct | None = None
        # The part of `size` that is the request's frame. 0 once the frame is released.
        self.frame_size = frame_size
        # Whether the handler still needs the request when it has answered. It then calls `release` later.
        self.is_kept = False
        # Calls the handler. None once it has been called.
        self.start: Callable[[], None] | None = None
        # The estimated memory of the request while it is handled. Releasing the request subtracts its frame.
        self.size = 0
        # The size of the response: estimated until the response is encoded, exact from then on.
        self.response_size = 0
        # The encoded response. None until it is encoded, and for a request that wants no response.
        self.parts: list[Part] | None = None
        # Whether the request has thousands of elements, and so the response may have as many.
        self.is_long = is_long
        # Set when the handler has answered. From then on the exchange only waits for the exchanges before it.
        self.is_done = False

    def keep(self) -> None:
        self.is_kept = True

    def release(self) -> None:
        self._connection.release(self)

    def expect_response(self, size: int) -> None:
        self._connection.expect_response(self, size)

    def wait_for(self, directory_id: DirectoryId) -> DirectoryWait:
        return self._connection.wait_for(directory_id, self.size)

    def has_room_for(self, directory_id: DirectoryId) -> bool:
        return self._connection.memory.has_room_for(directory_id)


class _Wait:
    """The wait of one request for one directory."""

    __slots__ = ("_connection", "_directory_id", "_is_given_up", "_size", "appends")

    def __init__(self, connection: "ServedConnection", directory_id: DirectoryId, size: int) -> None:
        self._connection = connection
        self._directory_id = directory_id
        self._size = size
        self._is_given_up = False
        self.appends = 0

    def give_up(self) -> None:
        if not self._is_given_up:
            self._is_given_up = True
            self._connection.stop_waiting(self._directory_id)

    def end(self) -> None:
        self._connection.memory.waited_for(self._directory_id, self._size)
        self.give_up()


class ServedConnection:
    """The Receiver of one Connection of a RequestServer."""

    def __init__(self, server: Server, connection: Connection, host: str) -> None:
        self.host = host
        self.memory = server.memory
        self._server = server
        self._env = server.env
        self._limits = server.limits
        self._connection = connection
        self._reader = FrameReader(
            size_min=HEADER_START.size, size_max=server.max_request_bytes, take_buffer=connection.take_buffer
        )
        # The exchanges whose responses are not sent yet, in request order. Invariant while the connection is open: the first
        # exchange is not done, except inside `_advance` and while a send is scheduled.
        self._exchanges: deque[_Exchange] = deque()
        # Invariant while the connection is open: the sum of `response_size` over `_exchanges`. A response that waits for
        # earlier ones takes memory just like one that waits for the peer.
        self._response_bytes = 0
        # False as soon as either side ends the connection. After that no request is started and no response sent.
        self._is_open = True
        # Done when `_is_open` becomes false.
        self._client_gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Whether the connection delivers data. Changes only in `settle_reading`.
        self._is_reading = True
        # True inside `_advance`. Keeps a handler that answers at once from re-entering `_advance`, which sends its answer.
        self._is_advancing = False
        # Whether `_send_and_advance` is scheduled on the event loop.
        self._send_is_scheduled = False
        # Whether the event loop has its turn before the next request is started. Nothing is read until then: more requests
        # would only wait here, and the end of the connection would be noticed before them.
        self._is_between_turns = False
        # Invariant: the sum of `size` over all exchanges that are not done, and those that are done and kept.
        self._in_flight_bytes = 0
        # How many requests wait for each directory. Without zeros.
        self._waits: dict[DirectoryId, int] = {}
        # Whether a request was the fetch of a follower. A follower also asks for offsets here, and then goes on fetching.
        self._serves_follower = False
        # The bytes that RequestMemory counts for this connection: its requests in flight and the buffer of `_reader`, as of
        # the last `_charge`. Zero once the connection has stopped and its handlers are done.
        self._charged_bytes = 0
        now_ns = self._env.now_ns()
        # Time of the last data received or response sent. Idle time counts from here.
        self._last_use_ns = now_ns
        # Whether a long request is being decoded. Until its handler has started, no later request is.
        self._is_decoding = False
        # The time since which the peer has been able to send the rest of a partial frame. None if there is no partial frame
        # or reading is paused.
        self._frame_since_ns: int | None = None
        # The total size of all responses handed to `_connection`.
        self._sent_bytes = 0
        # The part of `_sent_bytes` that the peer had taken at the last sweep: the bytes that were no longer queued.
        self._taken_bytes = 0
        # The time of the last sweep that found progress or an empty queue. The deadline of a stalled peer counts from here.
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
        # A handler that still waits, as the fetch of a client that has gone may do for a minute, keeps this object alive. It
        # must not keep a half-received request with it.
        self._reader.drop()
        self._server.forget(self)

    def writable(self) -> None:
        self._advance()

    # --- for the server ------------------------------------------------------------------------------------------
    def memory_is_free(self) -> None:
        self._advance()

    def settle_reading(self) -> None:
        """Pauses or resumes reading, depending on the state of the connection and the memory in use."""
        if not self._is_open or self._is_advancing:
            return
        self._charge()
        may_start = self._may_start()
        is_inside = self._reader.is_inside_a_frame
        if may_start and self._is_reading and not is_inside and not self.memory.is_full:
            # Nothing changes, as after nearly every request. If this connection may read above the limit, it passes that
            # right on when the memory is full again, because then every connection comes here.
            self._frame_since_ns = None
            return
        if not may_start or not is_inside:
            self.memory.pass_on(self)
        may_read = may_start and (self._may_exceed_memory() or self.memory.may_read(self, is_inside_a_frame=is_inside))
        self._watch_frame(may_read)
        if may_read != self._is_reading:
            self._is_reading = may_read
            if may_read:
                self._connection.resume_reading()
            else:
                self._connection.pause_reading()

    def close(self) -> None:
        """Closes the connection after the queued responses have been sent."""
        self._send_what_is_done()
        self._stop()
        self._connection.close()

    def check_deadlines(self, now_ns: int) -> None:
        """Drops the connection if its peer has been idle, stuck inside a frame, or taking no responses for too long."""
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
        """Drops the peer. If `reason` is None, the peer was just idle, which is not worth a warning."""
        peer = self._connection.peer
        if reason is None:
            self._env.log.debug("connection_dropped", listener=self._server.listener_name, peer=peer, reason="idle")
        else:
            self._server.warnings.warn("connection_dropped", peer=peer, reason=reason)
        self._stop()
        self._connection.abort()

    def _stop(self) -> None:
        """Stops reading and sending. Responses that handlers still produce are dropped."""
        if self._is_open:
            self._is_open = False
            self._client_gone.set_result(None)
            self._frame_since_ns = None
            for exchange in self._exchanges:
                if exchange.start is not None:
                    exchange.start = None
                    self._answer(exchange, None)
            self._charge()
            self.memory.forget(self)

    # --- requests ------------------------------------------------------------------------------------------------
    def _advance(self) -> None:
        """Starts every request that is complete and allowed to start, then pauses or resumes reading."""
        if self._is_advancing or not self._is_open:
            # Either the connection is closed, or a handler that answered at once has led back here from inside `_advance`.
            # In the second case, the loop of the outer call continues.
            return
        if self._reader.is_inside_a_frame:
            self._is_advancing = True
            try:
                self._start_all()
            except RemoteProtocolError as error:
                self._refuse(str(error))
            finally:
                self._is_advancing = False
        self.settle_reading()

    def _start_all(self) -> None:
        """Starts the requests in turn, and sends together the responses of those that are answered at once. If that takes
        long, the event loop has its turn in between. Raises RemoteProtocolError."""
        reader = self._reader
        begun_ns: int | None = None
        while True:
            while reader.is_inside_a_frame and self._may_start() and (frame := reader.next_frame()) is not None:
                self._frame_since_ns = None
                self._start(frame)
                if not reader.is_inside_a_frame:
                    break
                now_ns = self._env.now_ns()
                if begun_ns is None:
                    begun_ns = now_ns
                elif now_ns - begun_ns >= TURN_NS:
                    self._is_between_turns = True
                    asyncio.get_running_loop().call_soon(self._begin_turn)
                    break
            # What is sent makes room for further requests.
            if not self._send_what_is_done() or not reader.is_inside_a_frame:
                return

    def _begin_turn(self) -> None:
        self._is_between_turns = False
        self._advance()

    def _may_start(self) -> bool:
        if not self._is_open or self._is_between_turns or self._is_decoding:
            return False
        if len(self._exchanges) >= self._limits.in_flight_per_connection_max:
            return False
        if self._connection.queued_bytes + self._response_bytes > self._limits.queued_response_bytes_max:
            return False
        if not self._waits or self.memory.is_half_empty:
            return True
        return not any(map(self.memory.is_over_share, self._waits))

    def _may_exceed_memory(self) -> bool:
        return self._serves_follower and self._charged_bytes < self._limits.follower_request_bytes_max

    def _watch_frame(self, may_read: bool) -> None:
        """Starts or stops the clock of a partial frame, which runs only while the peer can send the rest."""
        if not may_read or not self._reader.is_inside_a_frame:
            self._frame_since_ns = None
        elif self._frame_since_ns is None:
            self._frame_since_ns = self._env.now_ns()

    def _charge(self) -> None:
        """Updates the server's memory count to what this connection holds now."""
        held_bytes = self._in_flight_bytes
        if self._is_open and self._reader.is_inside_a_frame:
            held_bytes += self._reader.buffered_bytes
        difference = held_bytes - self._charged_bytes
        if difference:
            # Update `_charged_bytes` first: if the memory is full now, `change` calls `settle_reading`, which calls this
            # method again.
            self._charged_bytes = held_bytes
            self.memory.change(difference)

    def _start(self, frame: memoryview) -> None:
        """Calls the handler of one request, later if the request is long. Raises RemoteProtocolError if the frame is not a
        valid request."""
        api_number, version, correlation_id = HEADER_START.unpack_from(frame)
        api = APIS.get(api_number)
        handler = self._server.handlers.get(api_number)
        if api is None or handler is None:
            raise RemoteProtocolError(f"api key {api_number} is not served here")
        is_flexible = api.flexible.get(version)
        if is_flexible is None:
            self._refuse_version(api.key, version, correlation_id)
            return
        client_id, body = request_body(frame, is_flexible=is_flexible)
        frame_size = len(frame)
        is_long = frame_size > LONG_REQUEST_BYTES and api.request is not ProduceRequest
        exchange = _Exchange(self, api.key, version, correlation_id, frame_size, is_long)
        # By position: keywords double the time that it takes to create an object.
        context = RequestContext(
            api.key,
            version,
            correlation_id,
            client_id,
            self._server.listener_name,
            self._connection.peer,
            self._connection.local_host,
            ANONYMOUS,
            self._last_use_ns,
            frame,
            exchange,
            self._client_gone,
        )
        if is_long:
            self._is_decoding = True
            decoding = decode_request_in_slices(api.request, body, version, numbering=self._server.numbering())
            self._server.task_group.create_task(self._start_in_slices(handler, context, exchange, decoding))
            return
        request, memory = decode_request(api.request, body, version, numbering=self._server.numbering())
        self._start_decoded(handler, context, exchange, request, memory)

    async def _start_in_slices(
        self,
        handler: Handler,
        context: RequestContext,
        exchange: _Exchange,
        decoding: Generator[None, None, tuple[Struct, int]],
    ) -> None:
        exchange.size = exchange.frame_size * DECODED_FACTOR
        self._in_flight_bytes += exchange.size
        self._charge()
        try:
            request, memory = await result_in_slices(decoding, items=ELEMENTS_PER_SLICE)
        except RemoteProtocolError as error:
            if self._is_open:
                # This closes the connection.
                self._refuse(str(error))
        if not self._is_open:
            self._answer(exchange, None)
            return
        self._start_decoded(handler, context, exchange, request, memory)
        self._is_decoding = False
        self._send_and_advance()

    def _start_decoded(
        self, handler: Handler, context: RequestContext, exchange: _Exchange, request: Struct, memory: int
    ) -> None:
        frame_size = exchange.frame_size
        size, response_size = frame_size + memory, 0
        if not isinstance(request, ProduceRequest):
            size = max(size, frame_size * DECODED_FACTOR)
            if is_of_follower(request):
                self._serves_follower = True
            else:
                response_size = expected_response_size(request)
        # Charged when `_advance` has started all requests that have arrived, or when one of them is released or waits.
        self._in_flight_bytes += size - exchange.size
        self._response_bytes += response_size
        exchange.request, exchange.size, exchange.response_size = request, size, response_size
        is_first = not self._exchanges
        self._exchanges.append(exchange)
        if is_first or exchange.api_key not in IN_TURN:
            self._call(handler, context, exchange, request)
        else:
            exchange.start = partial(self._call, handler, context, exchange, request)

    def _call(self, handler: Handler, context: RequestContext, exchange: _Exchange, request: Struct) -> None:
        try:
            self._server.authorize(context, request)
            result = handler(context, request)
        except ApiError as error:
            self._fail(exchange, error)
            return
        if result is None or isinstance(result, Struct):
            self._answer_at_once_or_in_slices(exchange, result)
        elif isinstance(result, LightTask):
            result.when_ended(partial(self._light_task_ended, exchange))
        elif isinstance(result, asyncio.Future):
            result.add_done_callback(partial(self._future_is_done, exchange))
        else:
            self._server.task_group.create_task(self._await_result(exchange, result))

    def _start_first(self) -> None:
        """Calls the handler of the first exchange, whose turn it is. Its answer, if there is one at once, is left to the
        caller."""
        exchange = self._exchanges[0]
        start, exchange.start = exchange.start, None
        assert start is not None
        was_advancing, self._is_advancing = self._is_advancing, True
        try:
            start()
        finally:
            self._is_advancing = was_advancing

    def _refuse_version(self, api_key: ApiKey, version: int, correlation_id: int) -> None:
        if api_key is not ApiKey.API_VERSIONS:
            raise RemoteProtocolError(f"version {version} of {api_key.name} is not served")
        # Any client can read a version 0 response, which lists the supported versions (KIP-511).
        exchange = _Exchange(self, api_key, 0, correlation_id)
        self._exchanges.append(exchange)
        self._answer(exchange, unsupported_version_response(self._server.advertised))

    def expect_response(self, exchange: _Exchange, size: int) -> None:
        self._response_bytes += size - exchange.response_size
        exchange.response_size = size

    def wait_for(self, directory_id: DirectoryId, size: int) -> DirectoryWait:
        # The share depends on what is free, so count the request before `_may_start` looks at it.
        self._charge()
        self.memory.wait_for(directory_id, size)
        self._waits[directory_id] = self._waits.get(directory_id, 0) + 1
        return _Wait(self, directory_id, size)

    def stop_waiting(self, directory_id: DirectoryId) -> None:
        """Notes that one request no longer waits for this directory."""
        left = self._waits[directory_id] - 1
        if left:
            self._waits[directory_id] = left
        else:
            del self._waits[directory_id]
        # With too many requests in progress, nothing starts before a response is sent.
        if not self._is_reading and len(self._exchanges) < self._limits.in_flight_per_connection_max:
            self._advance()

    def release(self, exchange: _Exchange) -> None:
        """Stops counting a request that the handler no longer needs. Before the answer that is only its frame: the decoded
        elements stay counted, because the response will have as many elements."""
        self._stop_counting(exchange)
        self._charge()

    def _stop_counting(self, exchange: _Exchange) -> None:
        freed_bytes = exchange.size if exchange.is_done else exchange.frame_size
        exchange.request = None
        exchange.is_kept = False
        exchange.frame_size = 0
        exchange.size -= freed_bytes
        self._in_flight_bytes -= freed_bytes

    # --- responses -----------------------------------------------------------------------------------------------
    async def _await_result(self, exchange: _Exchange, result: Awaitable[Any]) -> None:
        try:
            response = await result
        except ApiError as error:
            self._fail(exchange, error)
            return
        except ConnectAgain as error:
            if self._is_open:
                self._end(str(error))
            self._answer(exchange, None)
            return
        if exchange.is_long or type(response) in LONG_RESPONSES:
            await self._answer_in_slices(exchange, response)
        else:
            self._answer(exchange, response)

    def _light_task_ended(self, exchange: _Exchange, response: FetchResponse) -> None:
        # Once the connection has ended there is nothing to encode, and the TaskGroup may be shutting down.
        if self._is_open and sum(len(topic.partitions) for topic in response.responses) > ELEMENTS_PER_SLICE:
            self._server.task_group.create_task(self._answer_in_slices(exchange, response))
        else:
            self._answer(exchange, response)

    def _answer_at_once_or_in_slices(self, exchange: _Exchange, response: Struct | None) -> None:
        # Once the connection has ended there is nothing to encode, and the TaskGroup may be shutting down.
        if exchange.is_long and self._is_open:
            self._server.task_group.create_task(self._answer_in_slices(exchange, response))
        else:
            self._answer(exchange, response)

    async def _answer_in_slices(self, exchange: _Exchange, response: Struct | None) -> None:
        if response is not None and self._is_open:
            encoding = encode_response_frame_in_slices(
                exchange.correlation_id, response, exchange.version, numbering=self._server.numbering()
            )
            exchange.parts = await result_in_slices(encoding, items=ELEMENTS_PER_SLICE)
        self._answer(exchange, response)

    def _future_is_done(self, exchange: _Exchange, done: "asyncio.Future[Any]") -> None:
        if done.cancelled():
            # Only the shutdown of the daemon cancels a handler's future.
            return
        error = done.exception()
        if isinstance(error, ApiError):
            self._fail(exchange, error)
        elif error is not None:
            self._server.task_group.create_task(_raise(error))
        else:
            self._answer_at_once_or_in_slices(exchange, done.result())

    def _fail(self, exchange: _Exchange, error: ApiError) -> None:
        assert exchange.request is not None
        response = error_response(exchange.request, exchange.api_key, error.code, error.message)
        if response is None and self._is_open:
            # No response is allowed, so closing the connection is the only way to report the failure.
            self._refuse(f"{exchange.api_key.name} that wants no response failed with {error}")
        self._answer_at_once_or_in_slices(exchange, response)

    def _answer(self, exchange: _Exchange, response: Struct | None) -> None:
        exchange.request = None
        exchange.is_done = True
        if not exchange.is_kept:
            self._stop_counting(exchange)
        self._response_bytes -= exchange.response_size
        exchange.response_size = 0
        if response is not None and self._is_open:
            if exchange.parts is None:
                exchange.parts = encode_response_frame(
                    exchange.correlation_id, response, exchange.version, numbering=self._server.numbering()
                )
            exchange.response_size = sum(map(len, exchange.parts))
            self._response_bytes += exchange.response_size
        if not self._is_open:
            # Nothing is sent, and no later step counts the memory again.
            self._charge()
            return
        if self._is_advancing or self._send_is_scheduled:
            return
        if len(self._exchanges) > 1:
            # Answers of requests that were written to the disk together are ready one after the other. Send them together.
            self._send_is_scheduled = True
            asyncio.get_running_loop().call_soon(self._send_and_advance)
        else:
            self._send_and_advance()

    def _send_and_advance(self) -> None:
        self._send_is_scheduled = False
        self._send_what_is_done()
        self._advance()

    def _send_what_is_done(self) -> bool:
        """Sends the responses that no earlier request holds up. Returns whether there were any exchanges to end."""
        exchanges = self._exchanges
        if not self._is_open or not exchanges or not exchanges[0].is_done:
            return False
        parts: list[Part] = []
        size = 0
        while exchanges and exchanges[0].is_done:
            exchange = exchanges.popleft()
            parts += exchange.parts or ()
            size += exchange.response_size
            if exchanges and exchanges[0].start is not None:
                self._start_first()
        if parts:
            self._last_use_ns = self._env.now_ns()
            self._response_bytes -= size
            self._sent_bytes += size
            self._connection.send(parts)
        return True

    def _refuse(self, reason: str) -> None:
        self._log_malformed(reason)
        self.close()

    def _log_malformed(self, reason: str) -> None:
        self._server.warnings.warn("request_malformed", peer=self._connection.peer, reason=reason)


async def _raise(error: BaseException) -> None:
    """Raises an unexpected error in a task of the TaskGroup, which ends the daemon. In a callback it would be lost."""
    raise error
