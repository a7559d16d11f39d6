"""A relay between a node and a controller that can hold back the requests of one API.

It shows what becomes of a disk failure while the controller does not yet know what is on the disk. Everything else passes at
once, in order, and a held request goes on as it was sent.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from common.protocol.api_keys import ApiKey

_LENGTH_BYTES, _KEY_BYTES = 4, 2
_CHUNK_BYTES = 65_536


class Relay:
    """Passes every connection to its port on to the target's. The threads end with the connections."""

    def __init__(self, target_port: int, held: ApiKey) -> None:
        self._target = ("127.0.0.1", target_port)
        self._held = held.to_bytes(_KEY_BYTES, "big")
        self._may_pass = threading.Event()
        self._may_pass.set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Holds the requests back until the context ends."""
        self._may_pass.clear()
        try:
            yield
        finally:
            self._may_pass.set()

    def close(self) -> None:
        """Takes no more connections."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                try:
                    target = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                threading.Thread(target=self._serve, args=(client, target), daemon=True).start()

    def _serve(self, client: socket.socket, target: socket.socket) -> None:
        with client, target:
            answers = threading.Thread(target=_until_either_ends, args=(_pass_bytes, target, client), daemon=True)
            answers.start()
            _until_either_ends(self._pass_requests, client, target)
            answers.join()

    def _pass_requests(self, source: socket.socket, sink: socket.socket) -> None:
        with source.makefile("rb") as stream:
            while len(length := stream.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
                frame = stream.read(int.from_bytes(length, "big"))
                if frame[:_KEY_BYTES] == self._held:
                    self._may_pass.wait()
                sink.sendall(length + frame)


def _pass_bytes(source: socket.socket, sink: socket.socket) -> None:
    while chunk := source.recv(_CHUNK_BYTES):
        sink.sendall(chunk)


def _until_either_ends(
    pass_on: Callable[[socket.socket, socket.socket], None], source: socket.socket, sink: socket.socket
) -> None:
    with suppress(OSError):
        pass_on(source, sink)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
