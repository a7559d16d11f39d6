"""The arguments of every controller operation: its turn, and the request (core).

An operation is a plain function `operation(turn, request)` that returns records, a response and events, and writes nothing.
If it may concern very many partitions, it is a generator with the same result (`long_decisions`).
The shell makes a new `Turn` when the operation reaches the head of the event queue. An operation that the controller starts
by itself has no request and gets None. `state` is the live state: it may be ahead of the committed log, and only `replay`
may change it. An operation may change `sessions` and ask `awaited`, which are soft state and not in the log.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from common.ids import BrokerId, Offset, Uuid
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState
from controller.core.broker_sessions import BrokerSessions
from controller.core.long_decisions import Sliced
from controller.core.placement import RandomSource
from controller.core.result import ControllerResult
from controller.core.settings import ControllerSettings
from controller.core.unfencing import AwaitedReplicas

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Everything besides the request that an operation may depend on."""

    state: MetadataState
    sessions: BrokerSessions
    awaited: AwaitedReplicas
    settings: ControllerSettings
    now_ns: int
    # The offset of the first record that this operation returns.
    next_write_offset: Offset
    # Randomness is injected, so that the same seed gives the same cluster.
    rng: RandomSource
    new_uuid: Callable[[], Uuid]


# Answers a request without an operation while another operation is under way, by the registrations before that operation,
# which are committed. Returns None if the request has to wait for its turn. May change `sessions`.
EarlyAnswer = Callable[[Turn, Mapping[BrokerId, BrokerRegistration], Request], Response | None]
Operation = Callable[[Turn, Request], ControllerResult[Response] | Sliced[ControllerResult[Response]]]
