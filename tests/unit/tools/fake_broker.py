"""A fake broker that runs in threads, for tests of blocking tools. It returns the responses that the test provides.

One thread accepts connections. One more thread serves each connection, one request at a time. The broker itself answers the
first requests of an AdminClient: ApiVersions, with the APIs for which the test provides an answer, and Metadata without
topics.
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from common.configuration.endpoints import HostPort
from common.parts import FileRegion
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode
from common.protocol.framing import encode_response_frame, parse_request
from common.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from common.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from common.protocol.registry import APIS
from tests.frames import Frames

Answer = Callable[[Any], Any]
"""Returns the response to a request."""


class FakeBroker:
    """`requests` records the requests that the test's answers serve. The test must call `close`, or use the broker in a with
    statement."""

    def __init__(self, answers: Mapping[ApiKey, Answer]) -> None:
        self.answers = dict(answers)
        self.requests: list[Any] = []
        # What ApiVersions says beyond the served APIs.
        self.features = ApiVersionsResponse()
        # The brokers of the cluster by id. The one with the lowest id is the controller.
        self.members: Mapping[int, FakeBroker] = {1: self}
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = HostPort(*self._socket.getsockname()[:2])
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> "FakeBroker":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection and waits for the threads."""
        # Without the shutdown, the thread that accepts connections would not wake up.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._socket.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        # A tool that fails may close the connection before it has received all responses.
        with connection, contextlib.suppress(OSError):
            for frame in _frames(connection):
                connection.sendall(self._answer(frame))

    def _answer(self, frame: memoryview) -> bytes:
        header, body = parse_request(frame)
        api = APIS[ApiKey(header.request_api_key)]
        request = decode(api.request, body, header.request_api_version)
        if api.key is ApiKey.API_VERSIONS:
            response: Any = self._versions()
        elif isinstance(request, MetadataRequest) and request.topics == []:
            response = self._brokers()
        else:
            self.requests.append(request)
            response = self.answers[api.key](request)
        parts = encode_response_frame(header.correlation_id, response, header.request_api_version)
        return b"".join(part for part in parts if not isinstance(part, FileRegion))

    def _versions(self) -> ApiVersionsResponse:
        keys = {ApiKey.METADATA, ApiKey.API_VERSIONS, *self.answers}
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=APIS[key].versions.first, max_version=APIS[key].versions.last)
                for key in keys
            ],
            supported_features=self.features.supported_features,
            finalized_features=self.features.finalized_features,
            finalized_features_epoch=self.features.finalized_features_epoch,
        )

    def _brokers(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=id_, host=broker.address.host, port=broker.address.port)
                for id_, broker in self.members.items()
            ],
            controller_id=min(self.members),
        )


def _frames(connection: socket.socket) -> Iterator[memoryview]:
    frames = Frames()
    while True:
        try:
            data = connection.recv(1 << 16)
        except OSError:
            return
        if not data:
            return
        yield from frames.receive(data)
