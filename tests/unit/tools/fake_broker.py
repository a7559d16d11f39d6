"""A fake broker in threads, for tests of blocking tools. It returns the responses that the test provides.

One thread accepts connections, and one more serves each connection, one request at a time. The response to ApiVersions lists
the APIs that have an answer, unless the test provides its own.
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
from common.protocol.framing import RequestFramer, encode_response_frame, parse_request
from common.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from common.protocol.registry import APIS


class LastBytes(bytes):
    """Bytes to send as they are before closing the connection."""


# Returns the response, or bytes to send as they are, or None to close the connection.
Answer = Callable[[Any], Any]


class FakeBroker:
    """`requests` records all requests except ApiVersions. A test calls `close`, or uses the broker in a with statement."""

    def __init__(self, answers: Mapping[ApiKey, Answer]) -> None:
        self.answers = dict(answers)
        self.requests: list[Any] = []
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
        with connection:
            for frame in _frames(connection):
                answer = self._answer(frame)
                if answer is None:
                    return
                connection.sendall(answer)
                if isinstance(answer, LastBytes):
                    return

    def _answer(self, frame: memoryview) -> bytes | None:
        header, body = parse_request(frame)
        api = APIS[ApiKey(header.request_api_key)]
        request = decode(api.request, body, header.request_api_version)
        if api.key is ApiKey.API_VERSIONS and api.key not in self.answers:
            response: Any = self._versions()
        else:
            if api.key is not ApiKey.API_VERSIONS:
                self.requests.append(request)
            response = self.answers[api.key](request)
        if response is None or isinstance(response, bytes):
            return response
        parts = encode_response_frame(header.correlation_id, response, header.request_api_version)
        return b"".join(part for part in parts if not isinstance(part, FileRegion))

    def _versions(self) -> ApiVersionsResponse:
        keys = [key for key in self.answers if key is not ApiKey.API_VERSIONS]
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=APIS[key].versions.first, max_version=APIS[key].versions.last)
                for key in keys
            ]
        )


def _frames(connection: socket.socket) -> Iterator[memoryview]:
    framer = RequestFramer(1 << 20)
    while True:
        while (frame := framer.next_frame()) is not None:
            yield frame
        try:
            data = connection.recv(1 << 16)
        except OSError:
            return
        if not data:
            return
        framer.receive_data(data)
