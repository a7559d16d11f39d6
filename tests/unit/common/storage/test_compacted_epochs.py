"""The leader epochs of a log whose compaction has removed the first records of an epoch, after a crash.

A follower that has records of an earlier epoch, which were never committed, asks where that epoch ended. If the answer were
too high, it would keep them.
"""

import pytest

from common.ids import LeaderEpoch, Offset
from common.records.batch import read_header
from common.records.record import Record, encode_batch
from common.storage.log import Log
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import FOLDER, PATH, append_batches, attached, created, log_files
from tests.unit.common.storage.test_log_compaction import CONFIG, compact

CHECKPOINT = f"{FOLDER}/leader-epoch-checkpoint"


async def compacted(world: SimulatedWorld) -> Log:
    """Returns a log with three epochs. Of epoch 1 no record is left, of epoch 2 only the last ones are."""
    log = await created(world, CONFIG)
    for epoch, records in enumerate((5, 20, 20)):
        for number in range(records):
            key = b"%d-%d" % (0, number) if epoch == 0 else b"key"
            encoded = encode_batch([Record(key, bytes(20), 100)])
            await append_batches(log, [(read_header(encoded), memoryview(encoded))], epoch=epoch).written
    await log.roll()
    await compact(log)
    assert log.leader_epochs.entries == [(0, 0), (1, 5), (2, 25)]
    return log


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_crash_leaves_the_epochs_as_they_were(is_flushed: bool) -> None:
    """The recovery point is stored only now and then, so segments that are compacted already may be validated."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await compacted(world)
        recovery_point = log.recovery_point if is_flushed else Offset(0)
        loaded = await Log.load(await attached(world), FOLDER, CONFIG, recovery_point=recovery_point)
        assert not loaded.recovery.lost_anything
        assert loaded.leader_epochs.entries == log.leader_epochs.entries

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("content", [None, b"", b"0\n3\n0 0\n", b"\0" * 20])
def test_epochs_that_are_lost_end_no_later_than_they_did(content: bytes | None, is_clean: bool) -> None:
    """Only the batches tell, so an epoch may have ended anywhere in the gap before the next one's first batch."""

    async def scenario(world: SimulatedWorld) -> None:
        log = await compacted(world)
        known = log.leader_epochs
        await log.close()
        log_dir = await attached(world)
        if content is None:
            await log_dir.remove(CHECKPOINT)
        else:
            await log_dir.replace_file(CHECKPOINT, content)
        loaded = await Log.load(log_dir, FOLDER, CONFIG, clean=is_clean)
        assert not loaded.recovery.lost_anything
        assert loaded.leader_epochs.latest_epoch == 2
        for epoch in map(LeaderEpoch, range(3)):
            found = loaded.leader_epochs.end_offset_for(epoch, loaded.log_end_offset)
            assert found.end_offset <= known.end_offset_for(epoch, log.log_end_offset).end_offset, epoch
        assert loaded.leader_epochs.end_offset_for(LeaderEpoch(0), loaded.log_end_offset) == (0, 5)
        await loaded.flush()
        assert log_files(world.disk(PATH))["leader-epoch-checkpoint"] == loaded.leader_epochs.format()

    SimulatedWorld(1).run(scenario)
