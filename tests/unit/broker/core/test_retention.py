"""Which segments retention gives up, by age and by size."""

import pytest

from broker.core.retention import NO_TIMESTAMP, UNLIMITED, SegmentFacts, calculate_deletion_point
from common.ids import Offset


def segments(*facts: tuple[int, int]) -> list[SegmentFacts]:
    """Segments of ten offsets each from (size, max_timestamp), the newest last."""
    return [
        SegmentFacts(
            base_offset=Offset(10 * number), next_offset=Offset(10 * number + 10), size=size, max_timestamp=timestamp
        )
        for number, (size, timestamp) in enumerate(facts)
    ]


@pytest.mark.parametrize(
    ("facts", "retention_ms", "retention_bytes", "high_watermark", "expected"),
    [
        # By age: older than 100 ms at 1000, oldest first, up to the first that stays.
        ([(5, 100), (5, 899), (5, 950)], 100, UNLIMITED, 30, 20),
        ([(5, 100), (5, 900), (5, 950)], 100, UNLIMITED, 30, 10),
        ([(5, 100), (5, 950), (5, 100)], 100, UNLIMITED, 30, 10),
        ([(5, 950), (5, 950)], 100, UNLIMITED, 20, None),
        # The newest goes too when it has expired, unless it is empty.
        ([(5, 100), (5, 200)], 100, UNLIMITED, 20, 20),
        ([(5, 100), (0, NO_TIMESTAMP)], 100, UNLIMITED, 20, 10),
        # Without timestamps there is no age.
        ([(5, NO_TIMESTAMP), (5, 100)], 100, UNLIMITED, 20, None),
        # Never above the high watermark.
        ([(5, 100), (5, 200), (5, 300)], 100, UNLIMITED, 19, 10),
        ([(5, 100)], 100, UNLIMITED, 0, None),
        # By size: while at least retention.bytes remain, and never the newest.
        ([(5, 1), (5, 1), (5, 1)], UNLIMITED, 10, 30, 10),
        ([(5, 1), (5, 1), (5, 1)], UNLIMITED, 11, 30, None),
        ([(5, 1), (5, 1), (5, 1)], UNLIMITED, 0, 30, 20),
        # Both: whichever gives up more.
        ([(5, 100), (5, 950), (5, 950)], 100, 5, 30, 20),
        ([(5, 1), (5, 1)], UNLIMITED, UNLIMITED, 20, None),
        ([], 0, 0, 0, None),
    ],
)
def test_deletion_point(
    facts: list[tuple[int, int]],
    retention_ms: int,
    retention_bytes: int,
    high_watermark: int,
    expected: int | None,
) -> None:
    """The offset below which all may go, at time 1000."""
    point = calculate_deletion_point(
        segments(*facts),
        now_ms=1000,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        high_watermark=Offset(high_watermark),
    )
    assert point == expected
