"""What a handler knows of a request beside its message: who sent it, where it came in, and its bytes (core).

Kafka's `RequestContext` and `KafkaPrincipal`. Listeners have no authentication yet, so every principal is the anonymous one;
`Authorize` is the step before every handler that will know better. The easy thing to get wrong: `request_bytes` keeps
the whole received frame alive, so a handler that parks a small request should not park its context with it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from common.protocol.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a connection acts for, in Kafka's form "User:alice"."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request, as it came in."""

    api_key: ApiKey
    api_version: int
    """The codec has dealt with it: what a version lacks has its default in the request and is left out of the answer. A
    handler looks at it only where Kafka gives the same fields another meaning in another version, and compares it with a
    constant `..._FIRST_VERSION`. Nothing below the handlers sees it."""
    correlation_id: int
    client_id: str | None
    listener_name: str
    peer: str
    """"host:port" of the sender."""
    local_host: str
    principal: Principal
    received_ns: int
    request_bytes: memoryview
    """The request with its header, without the length before it. Valid as long as it is held, as is all that the request
    message refers to (records are views of it)."""
    release: Callable[[], None]
    """Gives back the memory of the request before it is answered. Called by a handler that has let go of the request, its
    bytes and this context, and whose answer is no ApiError."""

    @property
    def peer_host(self) -> str:
        return self.peer.rpartition(":")[0]


# Gives the response message, or None when nothing is to be sent. A coroutine becomes a task of the server's TaskGroup.
# Raises, or gives an awaitable that raises, ApiError to answer with that code.
Handler = Callable[[RequestContext, Any], Any | Awaitable[Any]]

# Called before every handler. Raises ApiError for what the principal may not do.
Authorize = Callable[[RequestContext, Any], None]


def allow_all(context: RequestContext, request: Any) -> None:
    """The rule of a cluster without security: everybody may do everything."""
