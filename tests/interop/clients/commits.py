"""Watches the committed offsets of groups, to find one that goes back or disappears."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from admin.errors import AdminError
from common.protocol.errors import ErrorCode
from common.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tests.blocking_admin import BlockingAdmin

OFFSETS_TOPIC = "__consumer_offsets"
POLL_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class LostCommit:
    """A committed offset that was `before` and is `after` now. `after` is negative if there is none any more."""

    group: str
    partition: int
    before: int
    after: int


def coordinator_of_all(admin: BlockingAdmin) -> int | None:
    """Returns the broker that coordinates every group, if the offsets topic has one partition, or None as yet."""
    (topic,) = admin.metadata([OFFSETS_TOPIC]).topics
    return next((part.leader_id for part in topic.partitions if part.leader_id >= 0), None)


class CommitWatcher(threading.Thread):
    """Asks for the committed offsets of the groups again and again, until `end`. A group has one topic."""

    def __init__(self, bootstrap: str, groups: Sequence[str]) -> None:
        super().__init__(daemon=True, name="watcher of commits")
        self.lost: list[LostCommit] = []
        self.highest: dict[tuple[str, int], int] = {}
        self.failure: BaseException | None = None
        self._servers = bootstrap
        self._groups = groups
        self._forgotten: set[str] = set()
        self._is_over = threading.Event()

    def run(self) -> None:
        try:
            with BlockingAdmin(self._servers) as admin:
                while not self._is_over.wait(POLL_SECONDS):
                    for found in self._ask(admin):
                        self._compare(found)
        except BaseException as error:  # noqa: BLE001 (shown by the test, which runs in another thread)
            self.failure = error

    def forget(self, group: str) -> None:
        """From now on the group's offsets may go, because its topic is about to be deleted."""
        self._forgotten.add(group)

    def end(self) -> None:
        """Returns once the watcher has ended. Raises what made it fail."""
        self._is_over.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def _ask(self, admin: BlockingAdmin) -> list[OffsetFetchResponseGroup]:
        groups = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in self._groups]
        try:
            coordinator = coordinator_of_all(admin)
            if coordinator is None:
                return []
            response: OffsetFetchResponse = admin.send(OffsetFetchRequest(groups=groups), coordinator)
        except AdminError:
            # That broker is gone. Another one answers later, and then it must know all commits.
            return []
        return [each for each in response.groups if each.error_code == ErrorCode.NONE]

    def _compare(self, found: OffsetFetchResponseGroup) -> None:
        now = {part.partition_index: part.committed_offset for topic in found.topics for part in topic.partitions}
        for (group, partition), before in self.highest.items():
            if group == found.group_id and group not in self._forgotten and now.get(partition, -1) < before:
                self.lost.append(LostCommit(group, partition, before, now.get(partition, -1)))
        for partition, offset in now.items():
            self.highest[found.group_id, partition] = max(offset, self.highest.get((found.group_id, partition), -1))
