"""The leader epochs of one log: end offsets according to KIP-101 and KIP-279, and truncation from both ends."""

import pytest

from common.ids import LeaderEpoch, Offset
from common.storage.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, EpochEnd, LeaderEpochs


def epochs() -> LeaderEpochs:
    return LeaderEpochs([(2, 10), (4, 20), (7, 35)])


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (7, (7, 50)),  # the latest epoch ends at the log end
        (4, (4, 35)),
        (2, (2, 20)),
        (5, (4, 35)),  # unknown, so the largest epoch below it
        (3, (2, 20)),
        (1, (1, 10)),  # older than everything left in the log
        (8, (UNDEFINED_EPOCH, UNDEFINED_OFFSET)),
        (-1, (UNDEFINED_EPOCH, UNDEFINED_OFFSET)),
    ],
)
def test_where_an_epoch_ended(asked: int, answer: tuple[int, int]) -> None:
    assert epochs().end_offset_for(LeaderEpoch(asked), Offset(50)) == answer


def test_an_empty_log_knows_no_epoch() -> None:
    nothing = LeaderEpochs()
    assert nothing.latest_epoch == UNDEFINED_EPOCH
    assert nothing.end_offset_for(LeaderEpoch(0), Offset(0)) == EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
    assert nothing.epoch_at(Offset(0)) == UNDEFINED_EPOCH


def test_an_epoch_is_noted_once_and_contradicting_entries_give_way() -> None:
    cache = epochs()
    assert not cache.assign(LeaderEpoch(7), Offset(40))
    assert cache.assign(LeaderEpoch(8), Offset(50))
    assert not cache.assign(LeaderEpoch(-1), Offset(60))
    # Epochs 7 and 8 begin at offset 35 or later. If epoch 9 begins at 35, they have no records.
    assert cache.assign(LeaderEpoch(9), Offset(35))
    assert cache.entries == [(2, 10), (4, 20), (9, 35)]
    # Epoch 3 begins after the higher epochs 4 and 9, so the entries of 4 and 9 are dropped.
    assert cache.assign(LeaderEpoch(3), Offset(60))
    assert cache.entries == [(2, 10), (3, 60)]


def test_truncation_from_the_end_forgets_epochs_that_begin_there() -> None:
    cache = epochs()
    assert not cache.truncate_from_end(Offset(36))
    assert cache.truncate_from_end(Offset(35))
    assert cache.entries == [(2, 10), (4, 20)]
    assert cache.truncate_from_end(Offset(0))
    assert cache.entries == []


def test_truncation_from_the_start_keeps_the_epoch_of_the_first_record_left() -> None:
    cache = epochs()
    assert not cache.truncate_from_start(Offset(10))
    assert cache.truncate_from_start(Offset(25))
    assert cache.entries == [(4, 25), (7, 35)]
    assert cache.truncate_from_start(Offset(35))
    assert cache.entries == [(7, 35)]
    assert not cache.truncate_from_start(Offset(5))


def test_the_epoch_of_a_record() -> None:
    cache = epochs()
    assert [cache.epoch_at(Offset(offset)) for offset in (9, 10, 19, 20, 34, 99)] == [-1, 2, 2, 4, 4, 7]


def test_content_survives_the_file() -> None:
    assert LeaderEpochs.parse(epochs().format()).entries == epochs().entries
    assert epochs().format() == b"0\n3\n2 10\n4 20\n7 35\n"


def test_only_the_first_clear_changes_anything() -> None:
    cache = epochs()
    assert cache.clear()
    assert not cache.clear()
