"""The result of a controller operation: records, a response, and events to be logged (core).

Counterpart of Kafka's ControllerResult. An operation reads the metadata state but never changes it; the shell replays and
appends the records. The shell must hold back the response until the records are committed. If the operation has no records,
the shell waits until everything appended before is committed, since the response may be based on uncommitted state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from common.records.metadata_frame import ApiMessageAndVersion

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class ControllerEvent:
    """One log line. Events with `is_about_commit` are logged when the records are committed, the others at once."""

    name: str
    fields: Mapping[str, object]
    is_about_commit: bool = True


@dataclass(frozen=True, slots=True)
class ControllerResult(Generic[Response]):
    """Records to be replayed and appended in this order. With `is_atomic` they become visible together or not at all."""

    records: Sequence[ApiMessageAndVersion]
    response: Response
    is_atomic: bool = True
    events: Sequence[ControllerEvent] = field(default=())
