"""The check of `diskraft demo --report`: it finds every difference between the disk that died and the report's content."""

from typing import Any

import pytest

from tools.lab.demo_report import ExpectedFailure, compare

EXPECTED = ExpectedFailure(broker_id=2, directory_id="D", topic="demo", partitions=frozenset({1, 2}))


def failure(*partitions: tuple[str, int], broker_id: int = 2, directory_id: str = "D") -> dict[str, Any]:
    named = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return {"broker_id": broker_id, "directory_id": directory_id, "partitions": named}


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        ([failure(("demo", 1), ("demo", 2))], []),
        ([], ["the report names [], but the dead disk is [(2, 'D')]"]),
        ([failure(("demo", 1), directory_id="E")], ["the report names [(2, 'E')], but the dead disk is [(2, 'D')]"]),
        ([failure(), failure(broker_id=1)], ["the report names [(2, 'D'), (1, 'D')], but the dead disk is [(2, 'D')]"]),
        ([failure(("demo", 1))], ["the report is missing [('demo', 2)]"]),
        (
            [failure(("demo", 1), ("demo", 2), ("demo", 3))],
            ["the report names [('demo', 3)], which were not on the disk"],
        ),
    ],
)
def test_every_difference_is_told(failures: list[dict[str, Any]], told: list[str]) -> None:
    """The first report equals the expected one. The others, in this order, name no failure, another directory, one failure
    too many, one partition too few, or one partition too many."""
    assert compare(failures, EXPECTED) == told
