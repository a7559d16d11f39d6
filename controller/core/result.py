"""What a controller operation gives back: records, a response, and events to be logged (core).

Answers to Kafka's ControllerResult. An operation reads the state and changes nothing that is written to the log; the shell
replays and appends the records. Easy to get wrong: the response may be sent only when the records, or where there are none
everything appended before, are committed, since it may speak of state that is not committed yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from common.records.metadata_frame import ApiMessageAndVersion

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class ControllerEvent:
    """One line of the log. `is_about_commit` events are written when the records are committed, the others at once."""

    name: str
    fields: Mapping[str, object]
    is_about_commit: bool = True


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[Response]):
    """Records to be replayed and appended, in order; atomic ones become visible together or not at all."""

    records: Sequence[ApiMessageAndVersion]
    response: Response
    is_atomic: bool = True
    events: Sequence[ControllerEvent] = field(default=())
