"""What a handler knows about a request besides the message: its sender, its listener, and its bytes (core).

Counterpart of Kafka's `RequestContext` and `KafkaPrincipal`. Listeners have no authentication yet, so every principal is
anonymous. `Authorize`, a hook that runs before every handler, is meant for future authorization. `request_bytes` keeps the
whole received frame alive, so a handler that keeps a small request for later should not keep the context.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from common.ids import DirectoryId
from common.protocol.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity that a connection acts for, in Kafka's form "User:alice"."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class ClientGone(Protocol):
    """The part of a future that a handler needs to learn that the client has gone."""

    def done(self) -> bool: ...
    def add_done_callback(self, callback: Callable[[Any], None], /) -> None: ...
    def remove_done_callback(self, callback: Callable[[Any], None], /) -> int: ...


class DirectoryWait(Protocol):
    """The wait of one request for one log directory."""

    appends: int
    """For the handler: how many appends there have not ended. Begins with 0."""

    def give_up(self) -> None:
        """Lets the connection read on, although the directory still needs the memory of the request."""

    def end(self) -> None:
        """Ends the wait: the directory no longer needs the memory of the request."""


class HeldMemory(Protocol):
    """The memory of one request, as its handler sees it."""

    def keep(self) -> None:
        """Keeps the memory counted after the response, until `release` is called."""

    def release(self) -> None:
        """Returns the memory to the server: the frame before the response is ready, or what was kept after it. A handler may
        call this when it no longer refers to the request, its bytes or its context. From then on the handler must not raise
        ApiError."""

    def expect_response(self, size: int) -> None:
        """Counts the response as so many bytes until it is encoded. For a handler that answers a small request with a large
        response, and not at once: if the peer takes no responses, the connection must not start such requests one after the
        other."""

    def wait_for(self, directory_id: DirectoryId) -> DirectoryWait:
        """Counts the memory for this directory until the returned wait ends. If the directory holds too much, the connection
        stops reading meanwhile (`common/net/request_memory.py`, rule 5)."""

    def has_room_for(self, directory_id: DirectoryId) -> bool:
        """Whether another request may wait for this directory."""


# Not frozen: a frozen dataclass takes three times as long to create, and one is created for each request.
@dataclass(slots=True)
class RequestContext:
    """Everything about one received request except its decoded message. Nothing changes it."""

    api_key: ApiKey
    api_version: int
    """The codec handles versions: a field that a version lacks has its default in the request and is left out of the
    response. A handler checks the version only if Kafka gives the same fields a different meaning in different versions,
    and compares the version with a constant `..._FIRST_VERSION`. Code below the handlers never sees the version."""
    correlation_id: int
    client_id: str | None
    listener_name: str
    peer: str
    """"host:port" of the sender."""
    local_host: str
    principal: Principal
    received_ns: int
    request_bytes: memoryview
    """The request including its header but not the length before it. Stays valid as long as it is referenced. The request
    message refers to the same memory: its records are views of it."""
    memory: HeldMemory
    client_gone: ClientGone
    """Done as soon as the connection has ended and no response can be sent any more."""
    is_forwarded: bool = False
    """Whether a broker has checked the request and sent it on for its client."""

    @property
    def peer_host(self) -> str:
        return self.peer.rpartition(":")[0]


class ConnectAgain(Exception):
    """Raised by a coroutine of a handler that cannot answer: the server closes the connection, and the client connects again
    and asks which versions are served. The text is logged."""


# A handler returns the response message, None to send no response, or an awaitable of either. A coroutine becomes a task of
# the server's TaskGroup; a LightTask needs none. The handler, a future or a coroutine raises ApiError to respond with that
# error's code.
Handler = Callable[[RequestContext, Any], Any | Awaitable[Any]]

# Called before every handler. Raises ApiError if the principal is not allowed to make the request.
Authorize = Callable[[RequestContext, Any], None]


def allow_all(context: RequestContext, request: Any) -> None:
    """Allows everything: the rule of a cluster without security."""
