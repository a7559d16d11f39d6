"""Cuts or empties a follower's log so that it matches its leader's (shell).

Counterpart of the truncation in Kafka's AbstractFetcherThread and ReplicaFetcherThread. Meanwhile the partition is
restructuring: nothing is fetched for it, and new metadata waits. The checkpoints are lowered before and after, because none
of them may claim more than the log has.
"""

from collections.abc import Awaitable, Callable

from broker.hosting.partition import Partition
from broker.hosting.upkeep import Upkeep
from common.environment.interface import Environment
from common.ids import LeaderEpoch, Offset
from common.storage.log import Log


class FollowerTruncation:
    """Its methods raise LogDirError or LogClosed if the directory fails or the log goes away meanwhile."""

    def __init__(self, env: Environment, upkeep: Upkeep) -> None:
        self._env = env
        self._upkeep = upkeep

    async def truncate_to_divergence(
        self, partition: Partition, epoch: LeaderEpoch, end_offset: Offset, *, leader_start: Offset
    ) -> bool:
        """Truncates the log to the end of the last epoch that both logs share. `epoch` and `end_offset` are the diverging
        epoch in the leader's answer. The next fetch shows if that is enough. Returns False if nothing was truncated."""
        log = partition.log
        before = (log.log_end_offset, log.leader_epochs.latest_epoch)
        await self.truncate(partition, _divergence(log, epoch, end_offset), leader_start=leader_start)
        return (log.log_end_offset, log.leader_epochs.latest_epoch) != before

    async def truncate(self, partition: Partition, offset: Offset, *, leader_start: Offset) -> None:
        """Truncates the log. If that takes it below its start, no record is left, and it begins again where the leader's log
        does. If it began at `offset`, this replica could join the ISR without the leader's records below that."""
        if offset < partition.log.log_start_offset and 0 <= leader_start < offset:
            await self.restart(partition, leader_start)
            return
        if offset < partition.high_watermark:
            self._env.log.warning(
                "truncating_below_high_watermark",
                partition=partition.name,
                offset=offset,
                high_watermark=partition.high_watermark,
            )
        await self._restructure(partition, offset, lambda: partition.log.truncate_to(offset))
        self._env.log.info("replica_truncated", partition=partition.name, offset=offset)

    async def restart(self, partition: Partition, offset: Offset) -> None:
        """Empties the log, which then starts at `offset`."""
        # In between there is an empty log, with which nothing may be vouched for.
        await self._restructure(
            partition, Offset(0), lambda: partition.log.truncate_fully_and_start_at(offset), log_start=offset
        )
        self._env.log.info("replica_restarted", partition=partition.name, offset=offset)

    async def _restructure(
        self,
        partition: Partition,
        offset: Offset,
        change: Callable[[], Awaitable[object]],
        *,
        log_start: Offset | None = None,
    ) -> None:
        log = partition.log
        start_before, generation = log.log_start_offset, log.generation
        partition.begin_restructuring()
        try:
            log.lower_recovery_point(offset)
            log.lower_log_start(offset if log_start is None else log_start)
            # Store the lower recovery point before the truncation. Otherwise a kill in between could leave a checkpoint with
            # a recovery point beyond the end of the log.
            await self._upkeep.lower_checkpoints(partition)
            await change()
            await self._upkeep.lower_checkpoints_before_appends(partition)
        finally:
            if log.generation == generation:
                # The log has stayed as it was, and this replica may lead next. What was deleted must not be back then.
                log.raise_log_start_offset(start_before)
            partition.end_restructuring()


def _divergence(log: Log, epoch: LeaderEpoch, end_offset: Offset) -> Offset:
    """Returns the offset to truncate to when `epoch` ends at `end_offset` in the leader's log."""
    known = log.leader_epochs.end_offset_for(epoch, log.log_end_offset)
    if known.epoch < 0:
        target = end_offset
    elif known.epoch < epoch:
        # This log does not have the leader's epoch: truncate to the end of the largest epoch below it, then fetch again.
        target = known.end_offset
    else:
        target = min(known.end_offset, end_offset)
    return Offset(max(0, min(target, log.log_end_offset)))
