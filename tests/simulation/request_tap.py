"""A network that records the requests to the controller and its responses, so that a scenario can show the RPCs of a KIP.

Shell of the tests. The tap passes all bytes on unchanged and decodes a copy of them. Decoding a response takes the version
of its request, so the tap remembers the open requests of each connection.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.environment.interface import Connection, Receiver
from common.parts import FileRegion, Part
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode
from common.protocol.framing import parse_request, response_correlation_id
from common.protocol.messages.headers import RequestHeader
from common.protocol.registry import APIS
from common.protocol.schema import Struct
from tests.frames import Frames
from tests.response_frames import parse_response
from tests.simulation.network import Peer, SimulatedListener, SimulatedNetwork

SHOWN_APIS = (
    ApiKey.ALTER_PARTITION,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response."""

    sender: str
    request: Struct
    response: Struct


class TappedNetwork(SimulatedNetwork):
    """Records the exchanges with every listener on one port."""

    def __init__(self, plain: SimulatedNetwork, seed: object, *, port: int) -> None:
        super().__init__(plain.loop, seed)
        self.exchanges: list[Exchange] = []
        self._port = port

    def listen(self, node: Peer, host: str, port: int, accept: Callable[[Connection], Receiver]) -> SimulatedListener:
        def accept_tapped(connection: Connection) -> Receiver:
            return _TappedReceiver(connection, accept(connection), self.exchanges)

        return super().listen(node, host, port, accept_tapped if port == self._port else accept)


class _TappedReceiver:
    """Taps one connection on the server's side."""

    def __init__(self, connection: Connection, receiver: Receiver, exchanges: list[Exchange]) -> None:
        self._receiver = receiver
        self._exchanges = exchanges
        self._sender = connection.peer.rpartition(":")[0]
        self._requests = Frames()
        self._responses = Frames()
        self._asked: dict[int, tuple[RequestHeader, Struct]] = {}
        self._send = connection.send
        connection.send = self._note_response  # type: ignore[method-assign]

    def data_received(self, view: memoryview) -> None:
        for frame in self._requests.receive(view):
            header, body = parse_request(frame)
            if header.request_api_key in SHOWN_APIS:
                api = APIS[ApiKey(header.request_api_key)]
                self._asked[header.correlation_id] = header, decode(api.request, body, header.request_api_version)
        self._receiver.data_received(view)

    def connection_lost(self, reason: str | None) -> None:
        self._receiver.connection_lost(reason)

    def writable(self) -> None:
        self._receiver.writable()

    def _note_response(self, parts: Sequence[Part]) -> None:
        for part in parts:
            for frame in self._responses.receive(bytes(len(part)) if isinstance(part, FileRegion) else part):
                self._note_frame(frame)
        self._send(parts)

    def _note_frame(self, frame: memoryview) -> None:
        asked = self._asked.pop(response_correlation_id(frame), None)
        if asked is not None:
            header, request = asked
            _, response = parse_response(APIS[ApiKey(header.request_api_key)].response, frame, header.request_api_version)
            self._exchanges.append(Exchange(self._sender, request, response))
