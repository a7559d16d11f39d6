"""A connection to one other node, opened on demand. Responses are matched by correlation id (shell).

Counterpart of Kafka's `NetworkClient`, for one node. The first request connects and asks which versions the node serves;
later requests share the connection. After a failure, the next attempt waits, and each further failure lengthens the wait. A
late response looks the same as one that will never come, so a request that times out closes the connection, and all other
requests in flight on it fail.

A channel has at most one connection attempt (`NodeChannel._connect`) and one live connection (`_Link`). A link is never
reused: once it has ended, the next request makes a new one.

A task sends with `send` and awaits the response. An owner that sends request after request uses `post`: the response comes
in a call, as soon as it has arrived, and costs no future and no turn of the event loop.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from common.environment.interface import ConnectFailed, Connection, Environment
from common.net.frame_reader import FrameReader
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode
from common.protocol.errors import ErrorCode, RemoteProtocolError, error_name
from common.protocol.framing import encode_request, response_body, response_correlation_id
from common.protocol.messages.api_versions import ApiVersionsRequest
from common.protocol.numbering import NumberingSource, kip858_numbering
from common.protocol.registry import API_OF_REQUEST, APIS, Api
from common.protocol.schema import Struct, VersionRange
from common.time_units import NS_PER_MS, NS_PER_S

Result = TypeVar("Result")

SOFTWARE_NAME: Final = "diskraft"
SOFTWARE_VERSION: Final = "0.1.0"

# The default time limit for connecting and asking for versions together.
SETUP_NS: Final = 10 * NS_PER_S
# Kafka's reconnect.backoff.ms and reconnect.backoff.max.ms.
BACKOFF_FIRST_NS: Final = 50 * NS_PER_MS
BACKOFF_MAX_NS: Final = NS_PER_S
BACKOFF_JITTER: Final = 0.2

RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
CORRELATION_ID_SIZE: Final = 4
CORRELATION_ID_MAX: Final = 0x7FFF_FFFF

# The ApiVersions version to try first. Version 4 exists, but every broker in use supports version 3.
HANDSHAKE_VERSION: Final = 3


class ChannelError(Exception):
    """A request got no response: no connection, connection lost, deadline passed, no common version, or malformed data.

    It is unknown whether the other node has acted on the request, unless nothing was sent (for example, because the
    connection was refused).
    """


class NotServed(ChannelError):
    """The node does not serve this API, or no version of it that we know. Nothing was sent; a retry does not help."""


OnAnswer = Callable[[Any], None]
"""Called with the response to a request, or with the ChannelError for which there is none."""


class NodeChannel:
    """Sends requests to one node. `send` connects when there is no connection."""

    def __init__(
        self,
        env: Environment,
        *,
        host: str,
        port: int,
        client_id: str,
        task_group: asyncio.TaskGroup,
        max_response_bytes: int = RESPONSE_BYTES_MAX,
        setup_ns: int = SETUP_NS,
        numbering: NumberingSource = kip858_numbering,
    ) -> None:
        self._env = env
        self._setup_ns = setup_ns
        self._host = host
        self._port = port
        self._client_id = client_id
        self._task_group = task_group
        self._max_response_bytes = max_response_bytes
        self._numbering = numbering
        # The live connection, with known versions. Set when an attempt succeeds, cleared when the link is lost.
        self._link: _Link | None = None
        # The connection attempt in progress, backoff included.
        self._attempt: asyncio.Task[None] | None = None
        # The callers of `send` that wait for the attempt, in order of arrival.
        self._waiting: dict[asyncio.Future[_Link], None] = {}
        # Failed attempts and lost connections since the last successful attempt. Each one doubles the backoff.
        self._failures = 0
        # Why the last attempt failed, or "" after a success. Reported to callers whose deadline passes while they wait for
        # the next attempt.
        self._last_failure = ""
        # No attempt connects before this time.
        self._not_before_ns = 0
        # Whether `close` was called. Never reset.
        self._is_closed = False
        # The versions that the node served when it was last connected, by API key. Empty before the first connection.
        self.served_versions: Mapping[int, VersionRange] = {}

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def is_connected(self) -> bool:
        return self._link is not None

    def version_of(self, api_key: ApiKey) -> int | None:
        """Returns the version in which requests of this API are sent, or None without a connection or a common version."""
        return self._link.version_of(APIS[api_key]) if self._link is not None else None

    async def send(self, request: Struct, *, version: int | None = None, deadline_ns: int) -> Any:
        """Sends a request and returns its response message. Raises ChannelError (NotServed without a common version), and
        LocalProtocolError if the request does not fit its version.

        Uses the highest version that both sides support, or exactly `version` if given. Records in the response are views of
        memory that stays valid.
        """
        link = self._link or await self._connected(deadline_ns)
        api, chosen = self._served(link, request, version)
        return await link.request(api, request, chosen, deadline_ns)

    def post(self, request: Struct, *, version: int, deadline_ns: int, on_answer: OnAnswer) -> None:
        """Sends a request like `send`, but calls `on_answer` with the response, or with what `send` would raise. The call
        comes later, except that `close` may make it. It must raise nothing."""
        if self._link is None:
            self._task_group.create_task(self._post_when_connected(request, version, deadline_ns, on_answer))
            return
        try:
            api, _ = self._served(self._link, request, version)
            self._link.post(api, request, version, deadline_ns, on_answer)
        except ChannelError as error:
            asyncio.get_running_loop().call_soon(on_answer, error)

    async def _post_when_connected(self, request: Struct, version: int, deadline_ns: int, on_answer: OnAnswer) -> None:
        try:
            answer = await self.send(request, version=version, deadline_ns=deadline_ns)
        except ChannelError as error:
            answer = error
        on_answer(answer)

    def _served(self, link: "_Link", request: Struct, version: int | None) -> tuple[Api, int]:
        """Returns the API of the request, and the version to send it in. Raises NotServed."""
        api = API_OF_REQUEST[type(request)]
        chosen = link.version_of(api) if version is None else version
        if chosen is None or chosen not in api.versions or not link.serves(api.key, chosen):
            wanted = api.key.name if version is None else f"version {version} of {api.key.name}"
            raise NotServed(f"{self.address} does not serve {wanted}")
        return api, chosen

    def close(self) -> None:
        """Drops the connection. All requests in flight and all later ones fail."""
        self._is_closed = True
        if self._attempt is not None:
            self._attempt.cancel()
        self._fail_waiting(ChannelError(f"the channel to {self.address} is closed"))
        if self._link is not None:
            self._link.abort(f"the channel to {self.address} is closed")

    # --- connecting ----------------------------------------------------------------------------------------------
    async def _connected(self, deadline_ns: int) -> "_Link":
        if self._is_closed:
            raise ChannelError(f"the channel to {self.address} is closed")
        waiter: asyncio.Future[_Link] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        if self._attempt is None:
            self._attempt = self._task_group.create_task(self._connect(), name=f"connect-{self.address}")
        try:
            async with self._env.timeout_at(deadline_ns):
                return await waiter
        except TimeoutError:
            reason = self._last_failure or f"{self.address} does not answer"
            raise ChannelError(f"no connection within the request's deadline: {reason}") from None
        finally:
            self._waiting.pop(waiter, None)

    async def _connect(self) -> None:
        """Makes one attempt for all waiting callers. Sleeps first if the backoff has not passed."""
        try:
            if self._env.now_ns() < self._not_before_ns:
                await self._env.sleep_until(self._not_before_ns)
            link = await self._handshake()
        except ChannelError as error:
            self._attempt = None
            self._last_failure = str(error)
            self._back_off()
            self._fail_waiting(error)
        else:
            self._attempt = None
            self._failures = 0
            self._last_failure = ""
            self._link = link
            self.served_versions = link.versions
            for waiter in _taken(self._waiting):
                if not waiter.done():
                    waiter.set_result(link)

    async def _handshake(self) -> "_Link":
        deadline_ns = self._env.now_ns() + self._setup_ns
        link = _Link(
            self._env,
            self.address,
            self._client_id,
            max_response_bytes=self._max_response_bytes,
            numbering=self._numbering,
            lost=self._link_lost,
        )
        try:
            await self._env.connect(self._host, self._port, link.accept, deadline_ns=deadline_ns)
        except ConnectFailed as error:
            raise ChannelError(str(error)) from error
        except asyncio.CancelledError:
            link.abort("the attempt was given up")
            raise
        try:
            await link.learn_versions(deadline_ns)
        except (ChannelError, asyncio.CancelledError):
            link.abort("the handshake failed")
            raise
        return link

    def _link_lost(self, link: "_Link") -> None:
        if self._link is link:
            self._link = None
            self._back_off()

    def _back_off(self) -> None:
        """Delays the next attempt, with jitter so that nodes do not reconnect all at once."""
        delay_ns = min(BACKOFF_FIRST_NS << min(self._failures, 30), BACKOFF_MAX_NS)
        self._failures += 1
        jitter = 1 + BACKOFF_JITTER * (2 * self._env.rng.random() - 1)
        self._not_before_ns = self._env.now_ns() + int(delay_ns * jitter)

    def _fail_waiting(self, error: ChannelError) -> None:
        for waiter in _taken(self._waiting):
            _reject(waiter, error)


class _InFlight:
    """A request that was sent and not yet answered."""

    __slots__ = ("api", "deadline_ns", "on_answer", "version")

    def __init__(self, api: Api, version: int, deadline_ns: int, on_answer: OnAnswer) -> None:
        self.api = api
        self.version = version
        self.deadline_ns = deadline_ns
        self.on_answer = on_answer


class _Link:
    """One connection of a channel over its whole life. It is the Receiver of that Connection."""

    def __init__(
        self,
        env: Environment,
        address: str,
        client_id: str,
        *,
        max_response_bytes: int,
        numbering: NumberingSource,
        lost: Callable[["_Link"], None],
    ) -> None:
        self._env = env
        self._address = address
        self._client_id = client_id.encode()
        self._max_response_bytes = max_response_bytes
        self._numbering = numbering
        self._lost = lost
        # The connection and the reader of its frames. Both are None until `accept`.
        self._connection: Connection | None = None
        self._reader: FrameReader | None = None
        # The versions that the node serves, by API key. Empty until the handshake (ApiVersions) is complete.
        self.versions: dict[int, VersionRange] = {}
        # Unanswered requests by correlation id. An entry is removed when its response arrives, at its deadline, or when the
        # link ends.
        self._in_flight: dict[int, _InFlight] = {}
        self._last_correlation_id = -1
        # One timer for all requests. If they are answered in time, it still fires, and is then armed for those in flight by
        # then: a timer for each request would cost a good part of a small one. Invariant: never armed for later than a
        # deadline in flight.
        self._cancel_timer: Callable[[], None] | None = None
        self._timer_at_ns = 0
        # Why the link has ended; None while it is alive. Set once, by `_finish`.
        self._end: str | None = None

    def accept(self, connection: Connection) -> "_Link":
        self._connection = connection
        self._reader = FrameReader(
            size_min=CORRELATION_ID_SIZE, size_max=self._max_response_bytes, take_buffer=connection.take_buffer
        )
        if self._end is not None:
            connection.abort()
        return self

    # --- Receiver ------------------------------------------------------------------------------------------------
    def data_received(self, view: memoryview) -> None:
        if self._end is not None or self._reader is None:
            return
        reader = self._reader
        reader.receive(view)
        try:
            # An owner that gets an answer may close the channel.
            while self._end is None and (frame := reader.next_frame()) is not None:
                self._handle_response(frame)
        except RemoteProtocolError as error:
            self._env.log.warning("response_malformed", peer=self._address, reason=str(error))
            self.abort(f"it answered with nonsense: {error}")
        reader.keep_rest()

    def connection_lost(self, reason: str | None) -> None:
        self._finish(f"connection lost: {reason or 'closed by the other side'}")

    def writable(self) -> None:
        """Ignored: requests are few and small, so they are queued without backpressure."""

    # --- versions ------------------------------------------------------------------------------------------------
    def version_of(self, api: Api) -> int | None:
        """Returns the highest version that both sides support, or None."""
        theirs = self.versions.get(api.key)
        if theirs is None:
            return None
        version = min(api.versions.last, theirs.last)
        return version if version >= max(api.versions.first, theirs.first) else None

    def serves(self, api_key: ApiKey, version: int) -> bool:
        return version in self.versions.get(api_key, ())

    async def learn_versions(self, deadline_ns: int) -> None:
        """Asks the node which API versions it serves. Raises ChannelError."""
        api = APIS[ApiKey.API_VERSIONS]
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        response = await self.request(api, request, HANDSHAKE_VERSION, deadline_ns)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The refusal may list only the versions of ApiVersions, so ask again in one of them.
            offered = max((entry.max_version for entry in response.api_keys if entry.api_key == api.key), default=0)
            response = await self.request(api, request, min(max(offered, 0), HANDSHAKE_VERSION), deadline_ns)
        if response.error_code != ErrorCode.NONE:
            raise ChannelError(f"{self._address} refused ApiVersions with {error_name(response.error_code)}")
        self.versions = {entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in response.api_keys}

    # --- requests ------------------------------------------------------------------------------------------------
    async def request(self, api: Api, request: Struct, version: int, deadline_ns: int) -> Any:
        """Sends one request in this version and waits for its response. Raises ChannelError."""
        future: asyncio.Future[Struct] = asyncio.get_running_loop().create_future()
        # If the waiting task is cancelled, the request stays in flight: without a response by its deadline, the connection
        # must be closed.
        self.post(api, request, version, deadline_ns, partial(_settle, future))
        return await future

    def post(self, api: Api, request: Struct, version: int, deadline_ns: int, on_answer: OnAnswer) -> None:
        """Sends one request in this version, and calls `on_answer` once. Raises ChannelError if nothing was sent."""
        if self._end is not None or self._connection is None:
            raise ChannelError(f"{self._address}: {self._end}")
        if self._env.now_ns() >= deadline_ns:
            # Nothing was sent, so there is no need to close the connection.
            raise ChannelError(f"{self._address}: the deadline of {api.key.name} has passed already")
        correlation_id = self._last_correlation_id = (self._last_correlation_id + 1) & CORRELATION_ID_MAX
        parts = encode_request(api, version, correlation_id, self._client_id, request, numbering=self._numbering())
        self._in_flight[correlation_id] = _InFlight(api, version, deadline_ns, on_answer)
        self._connection.send(parts)
        self._watch(deadline_ns)

    def _watch(self, deadline_ns: int) -> None:
        """Makes the timer fire at this deadline or before."""
        if self._cancel_timer is not None:
            if self._timer_at_ns <= deadline_ns:
                return
            self._cancel_timer()
        self._timer_at_ns = deadline_ns
        self._cancel_timer = self._env.call_at(deadline_ns, self._look_at_deadlines)

    def _look_at_deadlines(self) -> None:
        self._cancel_timer = None
        now_ns = self._env.now_ns()
        for correlation_id, request in self._in_flight.items():
            if request.deadline_ns <= now_ns:
                self._time_out(correlation_id)
                return
        if self._in_flight:
            self._watch(min(request.deadline_ns for request in self._in_flight.values()))

    def _time_out(self, correlation_id: int) -> None:
        late = self._in_flight.pop(correlation_id)
        what = f"{late.api.key.name} was not answered in time"
        self.abort(f"given up, for {what}")
        late.on_answer(ChannelError(f"{self._address}: {what}"))

    def _handle_response(self, frame: memoryview) -> None:
        """Completes the request that the response belongs to. Raises RemoteProtocolError."""
        correlation_id = response_correlation_id(frame)
        answered = self._in_flight.get(correlation_id)
        if answered is None:
            raise RemoteProtocolError(f"a response with correlation id {correlation_id}, which no request has")
        response = self._parse(answered, frame)
        del self._in_flight[correlation_id]
        answered.on_answer(response)

    def _parse(self, answered: _InFlight, frame: memoryview) -> Struct:
        version = answered.version
        if answered.api.key is ApiKey.API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
            # A node that does not support the request's version responds in version 0 (KIP-511).
            version = 0
        message_class = answered.api.response
        return decode(message_class, response_body(message_class, frame, version), version, numbering=self._numbering())

    # --- the end -------------------------------------------------------------------------------------------------
    def abort(self, reason: str) -> None:
        """Drops the connection. All requests in flight fail with the reason."""
        self._finish(reason)
        if self._connection is not None:
            self._connection.abort()

    def _finish(self, reason: str) -> None:
        if self._end is not None:
            return
        self._end = reason
        self._lost(self)
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
        in_flight, self._in_flight = self._in_flight, {}
        for request in in_flight.values():
            request.on_answer(ChannelError(f"{self._address}: {reason}"))


_UNSUPPORTED_VERSION: Final = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


def _settle(future: "asyncio.Future[Any]", answer: Any) -> None:
    if isinstance(answer, ChannelError):
        _reject(future, answer)
    elif not future.done():
        future.set_result(answer)


def _reject(future: "asyncio.Future[Any]", error: ChannelError) -> None:
    if not future.done():
        future.set_exception(error)
        # Mark the exception as retrieved: the waiting task may be cancelled in this very step and never look at it.
        future.exception()


def _taken(waiting: dict["asyncio.Future[Result]", None]) -> list["asyncio.Future[Result]"]:
    """Empties the dict and returns its futures."""
    taken = list(waiting)
    waiting.clear()
    return taken
