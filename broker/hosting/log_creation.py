"""Groups the logs that are to be created in one directory (shell).

The disk needs several syncs to make a new log durable, and a hundred new logs need hardly more if they share them. So the
logs that are waiting to be created are created together. They wait in the directory's work lane, where jobs keep their
order: a log joins the others only if no other job was queued after them. Such a job may be the deletion of an earlier log of
the same name, and the new log must not be created before it.
"""

from collections.abc import Awaitable, Callable, Sequence

from broker.hosting.directory_lane import DirectoryLane, Job
from common.ids import TopicIdPartition
from common.storage.new_log import LOGS_PER_CREATION_MAX


class LogCreation:
    """See the module docstring. `create` creates the logs of some replicas, as one job of the lane."""

    def __init__(self, lane: DirectoryLane, create: Callable[[Sequence[TopicIdPartition]], Awaitable[None]]) -> None:
        self._lane = lane
        self._create = create
        # The newest group, and its job. The group may grow while its job is the last in the lane.
        self._group: list[TopicIdPartition] = []
        self._job: Job | None = None

    def add(self, replica: TopicIdPartition) -> None:
        """Creates the log of one more replica, after everything that was queued in the lane before this call."""
        is_open = self._job is not None and self._lane.is_last(self._job)
        if is_open and len(self._group) < LOGS_PER_CREATION_MAX:
            self._group.append(replica)
            return
        group = [replica]
        self._group, self._job = group, lambda: self._create(group)
        self._lane.submit(self._job)
