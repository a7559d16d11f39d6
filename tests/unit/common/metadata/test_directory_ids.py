"""The reserved directory ids."""

import pytest

from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED, is_reserved


def test_the_numbers_of_kip_858() -> None:
    """In memory UNASSIGNED, LOST and MIGRATING are 0, 1 and 2, as in KIP-858."""
    assert [int.from_bytes(id_, "big") for id_ in (UNASSIGNED, LOST, MIGRATING)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("number", "reserved"),
    [(0, True), (2, True), (99, True), (100, False), (256, False), (1 << 64, False), (1 << 127, False)],
)
def test_the_first_hundred_are_reserved(number: int, reserved: bool) -> None:
    """Ids 0 to 99 are reserved. A larger id is not, even if its last byte is below 100."""
    assert is_reserved(number.to_bytes(16, "big")) is reserved
