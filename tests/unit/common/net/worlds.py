"""The worlds of the network tests: the simulated world, and real sockets on the loopback interface.

A scenario is `async def scenario(world)`. It gets its nodes by name from the world. It listens on 127.0.0.1 with port 0,
which works in both worlds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import structlog

from common.environment.interface import Connection, Environment
from common.environment.real import RealEnvironment
from common.ids import Uuid
from common.net.node_channel import NodeChannel
from common.net.request_context import Handler, RequestContext
from common.net.request_server import RequestServer
from common.parts import Buffer, Part
from common.protocol.api_keys import ApiKey
from common.protocol.framing import encode_response_frame
from common.protocol.messages.api_versions import ApiVersionsResponse
from common.protocol.messages.headers import RequestHeader
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from common.protocol.registry import APIS
from common.protocol.schema import Struct, message_schema
from common.time_units import NS_PER_S
from tests.frames import Frames
from tests.request_frames import encode_request_frame
from tests.response_frames import parse_response
from tests.simulation.environment import SimulatedWorld

HOST = "127.0.0.1"
MAX_REQUEST_BYTES = 1 << 20


class World(Protocol):
    """The methods that the network tests need from a world, simulated or real."""

    def node(self, name: str) -> Environment: ...

    async def sleep(self, seconds: float) -> None: ...

    async def until(self, condition: Callable[[], object]) -> None: ...

    def logged(self, name: str) -> list[dict[str, Any]]: ...


Scenario = Callable[[World], Coroutine[Any, Any, None]]


class SimulatedTestWorld:
    def __init__(self, world: SimulatedWorld) -> None:
        self.simulated = world
        self.node = world.node
        self.sleep = world.sleep

    async def until(self, condition: Callable[[], object]) -> None:
        await self.simulated.until(condition)

    def logged(self, name: str) -> list[dict[str, Any]]:
        return [event.fields for event in self.simulated.events_named(name)]


class RealTestWorld:
    def __init__(self, entries: list[Any]) -> None:
        self._entries = entries
        self._nodes: dict[str, Environment] = {}

    def node(self, name: str) -> Environment:
        if name not in self._nodes:
            self._nodes[name] = RealEnvironment(name)
        return self._nodes[name]

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            # A test may wait for any condition, not just one event, so this polls.
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def logged(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self._entries if entry["event"] == name]


def run_simulated(scenario: Scenario, seed: int = 1) -> None:
    async def run(world: SimulatedWorld) -> None:
        await scenario(SimulatedTestWorld(world))

    SimulatedWorld(seed).run(run)


def run_on_seeds(scenario: Scenario) -> None:
    """Runs the scenario with ten seeds. The seed decides how bytes are split, and which connection receives first."""
    for seed in range(10):
        run_simulated(scenario, seed)


def run_real(scenario: Scenario) -> None:
    lost: list[dict[str, Any]] = []

    async def run(entries: list[Any]) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
        await scenario(RealTestWorld(entries))

    with structlog.testing.capture_logs() as entries:
        asyncio.run(run(entries))
    assert lost == []


class Server:
    """A RequestServer under test in its own TaskGroup. Leaving the context closes it."""

    def __init__(self, world: World, handlers: Mapping[ApiKey, Handler], **options: Any) -> None:
        self.world = world
        self._handlers = handlers
        self._options = options
        self._group = asyncio.TaskGroup()
        self.port = 0

    async def __aenter__(self) -> "Server":
        await self._group.__aenter__()
        self.server = RequestServer(
            self.world.node("server"),
            listener_name="TEST",
            host=HOST,
            handlers=self._handlers,
            task_group=self._group,
            **{"port": 0, "max_request_bytes": MAX_REQUEST_BYTES, **self._options},
        )
        self.port = self.server.start().port
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.server.close()
        await self._group.__aexit__(*error)

    async def raw(self, name: str = "client") -> "RawPeer":
        """Opens a connection on which the test can send any bytes."""
        peers: list[RawPeer] = []

        def accept(connection: Connection) -> RawPeer:
            peers.append(RawPeer(self.world, connection))
            return peers[0]

        env = self.world.node(name)
        await env.connect(HOST, self.port, accept, deadline_ns=env.now_ns() + NS_PER_S)
        return peers[0]


class RawPeer:
    """One end of a connection, client or server, that sends raw bytes and collects the frames it receives."""

    def __init__(self, world: World, connection: Connection) -> None:
        self.world = world
        self.connection = connection
        self.frames: list[memoryview] = []
        self.is_lost = False
        self._received = Frames()

    def data_received(self, view: memoryview) -> None:
        self.frames += self._received.receive(view)

    def connection_lost(self, reason: str | None) -> None:
        self.is_lost = True

    def writable(self) -> None:
        """Does nothing: the tests send so little that they need not wait for a full send buffer."""

    def send(self, *parts: bytes) -> None:
        self.connection.send(parts)

    async def response(self, api_key: ApiKey, version: int, *, number: int = 0) -> tuple[int, Any]:
        """Returns the correlation id and message of the response with this index."""
        await self.world.until(lambda: len(self.frames) > number or self.is_lost)
        header, message = parse_response(APIS[api_key].response, self.frames[number], version)
        return header.correlation_id, message

    def correlation_ids(self) -> list[int]:
        return [int.from_bytes(frame[:4], "big") for frame in self.frames]

    async def lost(self) -> None:
        await self.world.until(lambda: self.is_lost)


class Impostor:
    """A fake server. It answers each frame with the bytes that `answer(number, correlation_id)` returns, if any."""

    def __init__(self, world: World, answer: Callable[[int, int], bytes | None]) -> None:
        self.peers: list[RawPeer] = []
        self._world = world
        self._answer = answer
        self.requests: list[bytes] = []
        self.listener = world.node("server").listen(HOST, 0, self._accept)
        self.port = self.listener.port

    def _accept(self, connection: Connection) -> RawPeer:
        peer = RawPeer(self._world, connection)
        self.peers.append(peer)
        received = peer.data_received

        def data_received(view: memoryview) -> None:
            received(view)
            while peer.frames:
                frame = bytes(peer.frames.pop(0))
                self.requests.append(frame)
                answer = self._answer(len(self.requests) - 1, int.from_bytes(frame[4:8], "big"))
                if answer is not None:
                    peer.send(answer)

        peer.data_received = data_received  # type: ignore[method-assign]
        return peer

    def close(self) -> None:
        self.listener.close()
        for peer in self.peers:
            peer.connection.abort()


def versions_answer(correlation_id: int, version: int, **fields: Any) -> bytes:
    parts = encode_response_frame(correlation_id, ApiVersionsResponse(**fields), version)
    return b"".join(part for part in parts if isinstance(part, bytes))


def request_bytes(request: Struct, version: int, *, correlation_id: int = 0, client_id: str = "test") -> bytes:
    """Encodes a whole request frame."""
    header = RequestHeader(
        request_api_key=message_schema(type(request)).api_key or 0,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    parts: list[Part] = encode_request_frame(header, request, version)
    return b"".join(part for part in parts if isinstance(part, Buffer))


METADATA_VERSION = 12


def metadata_request(name: str, correlation_id: int = 0) -> bytes:
    """Builds a Metadata request for one topic. The handlers of these tests answer with the topic's name."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name, topic_id=Uuid(bytes(16)))])
    return request_bytes(request, METADATA_VERSION, correlation_id=correlation_id)


def echo_name(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    """A handler that answers with the name in the request."""
    assert request.topics is not None
    return MetadataResponse(cluster_id=request.topics[0].name)


def name_in(request: MetadataRequest) -> str:
    assert request.topics is not None
    return request.topics[0].name or ""


class Gate:
    """A Metadata handler whose requests wait until the test calls `open` with the name in the request."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[None]] = {}
        self.started: list[str] = []

    async def handle(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        name = name_in(request)
        self.started.append(name)
        self.waiting[name] = asyncio.get_running_loop().create_future()
        await self.waiting[name]
        return MetadataResponse(cluster_id=name)

    def open(self, name: str) -> None:
        self.waiting.pop(name).set_result(None)


class Channel:
    """A NodeChannel under test in its own TaskGroup. Leaving the context closes it."""

    def __init__(self, world: World, port: int, **options: Any) -> None:
        self.world = world
        self._port = port
        self._options = options
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> "Channel":
        await self._group.__aenter__()
        self.env = self.world.node("client")
        self.channel = NodeChannel(
            self.env, host=HOST, port=self._port, client_id="test", task_group=self._group, **self._options
        )
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.channel.close()
        await self._group.__aexit__(*error)

    def send(self, request: Struct, *, seconds: float = 5, version: int | None = None) -> Awaitable[Any]:
        deadline_ns = self.env.now_ns() + round(seconds * NS_PER_S)
        return self.channel.send(request, version=version, deadline_ns=deadline_ns)

    async def ask(self, name: str, *, seconds: float = 5) -> str:
        """Sends a Metadata request with this name. Returns the name in the response of `echo_name` or a Gate."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        return str((await self.send(request, seconds=seconds)).cluster_id)
