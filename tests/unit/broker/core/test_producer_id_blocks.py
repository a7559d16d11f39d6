"""The blocks of producer ids that a broker has: each id once, and the next block wanted in time."""

import pytest

from broker.core.producer_id_blocks import InvalidBlock, ProducerIdBlocks


def test_there_is_no_id_before_the_first_block() -> None:
    """A block is wanted from the start, and again once the only block is used up."""
    blocks = ProducerIdBlocks()
    assert blocks.wants_block
    assert blocks.take() is None
    blocks.add(0, 2)
    assert [blocks.take() for _ in range(3)] == [0, 1, None]
    assert blocks.wants_block


def test_the_next_block_is_wanted_when_nine_tenths_are_taken() -> None:
    """It is wanted until it is there, and the ids go on with it without a gap."""
    blocks = ProducerIdBlocks()
    blocks.add(1000, 10)
    assert blocks.take() == 1000
    wanted = []
    for _ in range(8):
        blocks.take()
        wanted.append(blocks.wants_block)
    assert wanted == [False] * 7 + [True]
    blocks.add(5000, 10)
    assert not blocks.wants_block
    assert [blocks.take() for _ in range(3)] == [1009, 5000, 5001]


@pytest.mark.parametrize(("first", "size"), [(-1, 10), (20, 0), (20, -1), (2**63 - 5, 6), (5, 10), (9, 1)])
def test_a_block_that_cannot_be_right_is_refused(first: int, size: int) -> None:
    """Its ids are negative or too large, or it begins within or below the block in use. It leaves no trace."""
    blocks = ProducerIdBlocks()
    blocks.add(0, 10)
    for taken in range(10):
        assert blocks.take() == taken
    with pytest.raises(InvalidBlock):
        blocks.add(first, size)
    assert blocks.take() is None
    blocks.add(2**63 - 6, 6)
    assert [blocks.take() for _ in range(7)] == [*range(2**63 - 6, 2**63), None]
