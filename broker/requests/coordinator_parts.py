"""The parts of an answer of a coordinator, each about one group, transactional id or partition (shell).

A tool may ask about thousands of groups at once, each of which may have hundreds of members, or offsets of hundreds of
partitions. So the parts are begun in slices. Only the first few are begun at once, before any request that comes later.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from broker.coordinator.coordinator_partition import CoordinatorPartition
from broker.coordinator.coordinator_runtime import CoordinatorRuntime
from broker.coordinator.shard import S
from broker.coordinator.waiting_request import WaitingRequest
from common.protocol.errors import ErrorCode
from common.slices import pause

GROUPS_PER_SLICE = 10

Asked = TypeVar("Asked")
Part = TypeVar("Part")


class Parts(Generic[Part]):
    """`begin` begins the part of each that is asked for."""

    def __init__(self, begin: Callable[[Asked], Part], asked: Iterable[Asked]) -> None:
        left = iter(list(asked))
        self._parts = [begin(each) for each in islice(left, GROUPS_PER_SLICE)]
        self._left = (begin(each) for each in left)

    async def begun(self) -> list[Part]:
        """Begins what is left, and returns all parts in the order in which they were asked for."""
        for number, part in enumerate(self._left, start=1):
            self._parts.append(part)
            if number % GROUPS_PER_SLICE == 0:
                await pause()
        return self._parts


async def all_of(parts: Parts[WaitingRequest]) -> list[Any]:
    """Returns the answers, in the order in which they were asked for."""
    return [await part.future for part in await parts.begun()]


def list_error(
    coordinator: CoordinatorRuntime[S], partitions: Sequence[CoordinatorPartition[S]], answers: Sequence[Any]
) -> int:
    """Returns why the lists of these partitions do not make up the list of all that this broker coordinates. No client may
    take a part for the whole."""
    for answer in answers:
        # A partition that moved away meanwhile is listed by its new coordinator.
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
            return int(answer.error_code)
    asked = zip(partitions, answers, strict=True)
    listed = {each.partition.key for each, answer in asked if answer.error_code == ErrorCode.NONE}
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.leads_another(listed) else ErrorCode.NONE
