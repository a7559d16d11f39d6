"""One operation under way: when it happens, and the steps that it has filled so far (core).

Functions of this package that decide part of an operation take the turn as their first argument and add records, answers and
timers to it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.result import Answer, CoordinatorRecord, Now, Step, TimerChange, Waiter
from common.configuration.group import GroupConfig
from common.protocol.schema import Struct
from common.records.batch import BATCH_OVERHEAD
from common.time_units import NS_PER_MS

# The most that the lengths, deltas and attributes of a record take beside its key and value.
_RECORD_OVERHEAD: Final = 36

# The first part of the key of each kind of timer. The group id follows, and the member id in a session timer.
SESSION: Final = "session"
JOIN: Final = "join"
SYNC: Final = "sync"


@dataclass(slots=True)
class Turn:
    """The arguments that every operation has, and what it asks of the shell."""

    now: Now
    settings: GroupSettings
    # Returns the configuration of a group by its id. It can change at any time.
    config_of: Callable[[str], GroupConfig]
    # Invariant: never empty. All but the last have reached the size of a batch.
    steps: list[Step] = field(default_factory=lambda: [Step()])
    # What the records of the last step come to.
    _batch_bytes: int = BATCH_OVERHEAD

    @property
    def step(self) -> Step:
        """The last step, which of most operations is the only one."""
        return self.steps[-1]

    def fits_one_batch(self, records: Sequence[CoordinatorRecord]) -> bool:
        return BATCH_OVERHEAD + sum(map(_size, records)) <= self.settings.batch_bytes_max

    def write(self, record: CoordinatorRecord) -> None:
        """Adds a record that must be in one batch with the others of the operation."""
        self.step.records.append(record)
        self._batch_bytes += _size(record)

    def write_together(self, records: Sequence[CoordinatorRecord]) -> None:
        """Adds records that must be in one batch with each other, and fit one. The log may end before them."""
        assert self.fits_one_batch(records)
        if self.step.records and self._batch_bytes + sum(map(_size, records)) > self.settings.batch_bytes_max:
            self._begin_step()
        for record in records:
            self.write(record)

    def write_tombstone(self, key: bytes) -> None:
        """Adds a tombstone, in a further step if the batch would become too large."""
        self.write_splitting(CoordinatorRecord(key, None))

    def write_splitting(self, record: CoordinatorRecord) -> None:
        """Adds a record, in a further step if the batch would become too large. A log that ends before it must be sound."""
        if self.step.records and self._batch_bytes + _size(record) > self.settings.batch_bytes_max:
            self._begin_step()
        self.write(record)

    def _begin_step(self) -> None:
        self.steps.append(Step())
        self._batch_bytes = BATCH_OVERHEAD

    def answer(self, waiter: Waiter, response: Struct) -> None:
        self.step.answers.append(Answer(waiter, response))

    def set_timer(self, key: tuple[str, ...], after_ms: int) -> None:
        self.step.timers.append(TimerChange(key, self.now.ns + after_ms * NS_PER_MS))

    def cancel_timer(self, key: tuple[str, ...]) -> None:
        self.step.timers.append(TimerChange(key, None))


def _size(record: CoordinatorRecord) -> int:
    return _RECORD_OVERHEAD + len(record.key) + len(record.value or b"")
