"""The HTTP server of the metrics, on threads of its own (shell).

A thread accepts connections, and each one is answered on a thread of its own, so that a slow peer delays no other. Peers
that connect and send nothing, such as health checks of load balancers, must not use up the threads and descriptors that the
node needs for its disks and clients. So a connection that stays silent is closed, and if there are too many, the oldest is.
"""

import socket
import threading
import time
from typing import Final

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.registry import Collector

from common.environment.interface import ListenFailed
from common.environment.process import ProcessResources, close_socket

CONNECTIONS_MAX: Final = 16
# How long a peer may take to send a part of its request, or to accept a part of the answer.
SILENCE_SECONDS_MAX: Final = 10.0
_ACCEPT_PAUSE_SECONDS: Final = 1.0


class MetricsServer:
    """Serves one collector on a socket that is already listening, until `stop`. Owns the socket."""

    def __init__(
        self,
        listening: socket.socket,
        collector: Collector,
        process: ProcessResources,
        *,
        silence_seconds_max: float = SILENCE_SECONDS_MAX,
    ) -> None:
        """Raises ListenFailed if the process may not start another thread."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(collector)
        self._handler = type("_Handler", (MetricsHandler,), {"registry": registry, "timeout": silence_seconds_max})
        self._listening = listening
        self._process = process
        # The connections that are being answered, the oldest first. Only single dictionary operations, on any thread.
        self._connections: dict[socket.socket, None] = {}
        self._is_stopped = False
        listening.setblocking(True)
        process.sockets[listening] = None
        try:
            threading.Thread(target=self._accept, name="metrics", daemon=True).start()
        except RuntimeError as error:
            self.stop()
            raise ListenFailed(f"cannot serve metrics: {error}") from error

    def stop(self) -> None:
        """Frees the port. Answers that are under way may end."""
        self._is_stopped = True
        self._process.sockets.pop(self._listening, None)
        # This wakes the accepting thread, which then ends.
        close_socket(self._listening)

    # --- on the threads ------------------------------------------------------------------------------------------
    def _accept(self) -> None:
        while not self._is_stopped:
            try:
                accepted, address = self._listening.accept()
            except OSError:
                if not self._is_stopped:
                    # The process is probably out of descriptors. Trying again at once would spin.
                    time.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            self._begin(accepted, address)

    def _begin(self, accepted: socket.socket, address: object) -> None:
        self._connections[accepted] = None
        for oldest in list(self._connections)[:-CONNECTIONS_MAX]:
            self._leave(oldest)
        try:
            threading.Thread(target=self._answer, args=(accepted, address), name="metrics answer", daemon=True).start()
        except RuntimeError:
            # The process has reached its limit of threads. Prometheus scrapes again soon.
            self._leave(accepted)

    def _answer(self, accepted: socket.socket, address: object) -> None:
        try:
            self._handler(accepted, address, self)
        except (OSError, ValueError, TypeError):
            # The peer has left or is silent, or its request makes no sense. prometheus-client raises TypeError for a version
            # in the Accept header that is not a number.
            pass
        finally:
            self._leave(accepted)

    def _leave(self, accepted: socket.socket) -> None:
        self._connections.pop(accepted, None)
        close_socket(accepted)
