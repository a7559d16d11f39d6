"""The positions of recent batches: searching, ending reads at batch boundaries, and bounded memory."""

from common.storage.batch_positions import BatchPositions


def positions() -> BatchPositions:
    """Returns three batches: offsets 0-4 at position 0, offset 5 at 100, offsets 10-19 at 150. The segment ends at 400."""
    tail = BatchPositions(0)
    tail.append(0, 4, 0)
    tail.append(5, 5, 100)
    tail.append(10, 19, 150)
    return tail


def test_an_offset_is_found_in_the_first_batch_that_reaches_it() -> None:
    tail = positions()
    found = [tail.batch_for(offset) for offset in (0, 4, 5, 6, 10, 19)]
    assert found == [(0, 0), (0, 0), (5, 100), (10, 150), (10, 150), (10, 150)]
    assert tail.batch_for(20) is None


def test_a_read_ends_with_a_whole_batch_below_both_limits() -> None:
    tail = positions()

    def end(size_limit: int, upper_offset: int) -> int:
        return tail.end_of_whole_batches(size_limit=size_limit, upper_offset=upper_offset, segment_size=400)

    assert [end(limit, 99) for limit in (0, 99, 100, 149, 150, 399, 400, 999)] == [0, 0, 100, 100, 150, 150, 400, 400]
    assert [end(999, upper) for upper in (0, 4, 5, 6, 19, 20)] == [0, 0, 100, 150, 150, 400]
    assert tail.first_end(0, 400) == 100
    assert tail.first_end(150, 400) == 400
    assert [tail.next_offset_at(position) for position in (0, 100, 150, 400, 7)] == [0, 5, 10, None, None]


def test_memory_is_bounded_and_what_went_is_not_covered() -> None:
    tail = BatchPositions(0, limit=4)
    for offset in range(20):
        tail.append(offset, offset, offset * 10)
    assert len(tail) < 8
    assert tail.covered_from == 16
    assert not tail.covers(15)
    assert tail.batch_for(16) == (16, 160)
