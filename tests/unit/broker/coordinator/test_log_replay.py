"""A load leaves turns of the event loop to others, whatever the log consists of."""

import asyncio
from typing import Any, cast

from broker.coordinator.core.group_settings import GroupSettings
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.log_replay import replay_log
from broker.hosting.partition import Partition
from common.ids import LeaderEpoch, Offset
from common.records.batch import set_base_offset_and_epoch
from common.records.end_transaction import EndTransactionMarker, encode_marker_batch
from common.storage.read_limits import ReadLimits
from tests.counted import result_and_turns

MARKERS = 2_000


class LogOfMarkers:
    """What compaction leaves for a day where every commit of offsets is part of a transaction."""

    log_start_offset = Offset(0)

    async def read_bytes(self, offset: Offset, limits: ReadLimits) -> bytes:
        content = bytearray()
        for at in range(offset, limits.upper_offset):
            marker = bytearray(encode_marker_batch(EndTransactionMarker(1, 0, 0, is_commit=True), timestamp_ms=1))
            set_base_offset_and_epoch(marker, at, LeaderEpoch(0))
            content += marker
        return bytes(content)


class PartitionOfMarkers:
    log = LogOfMarkers()


def test_a_log_of_nothing_but_markers_is_replayed_in_turns() -> None:
    partition: Any = PartitionOfMarkers()
    replaying = replay_log(cast(Partition, partition), GroupShard(GroupSettings()), Offset(MARKERS))
    replayed, turns = asyncio.run(result_and_turns(replaying))
    assert replayed.size_bytes > 0
    assert turns >= MARKERS // 200
