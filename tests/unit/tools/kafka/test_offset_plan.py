"""What the user writes about partitions, times and offsets of a reset: read as Kafka's tool reads it, or refused."""

import pytest

from admin.partitions import TopicPartition
from tools.errors import ToolError
from tools.kafka.offset_plan import duration_ms, exported, parse_plan, partitions_in, timestamp_ms

T0, T1, U9 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 9)


def test_partitions_of_a_topic() -> None:
    assert partitions_in("t:1,0") == [T1, T0]


@pytest.mark.parametrize("text", ["t:", ":1", "t:1:2", "t:x", "t:-1", "t:1,,2", "t:2147483648", "t: 1"])
def test_wrong_partitions(text: str) -> None:
    with pytest.raises(ToolError, match="topic arg '"):
        partitions_in(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", 3_600_000),
        ("P1D", 86_400_000),
        ("p1dt2h3m4.5s", 86_400_000 + 7_200_000 + 180_000 + 4_500),
        ("PT-1H30M", -3_600_000 + 1_800_000),
        ("-PT1.25S", -1_250),
        ("PT-0.5S", -500),
        ("PT0,0019S", 1),
    ],
)
def test_durations(text: str, ms: int) -> None:
    """The forms of ISO 8601 that java.time.Duration takes."""
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1", "P1H", "P1DT", "PT1H1H", "PT1.5M", "P1W"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(ToolError, match="cannot be parsed to a Duration"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T00:00:01.500Z", 1_500),
        ("1970-01-01T02:00:00.001+02:00", 1),
        ("1970-01-01T00:00:00.000-0130", 5_400_000),
        ("2024-02-29T23:59:59.999", 1_709_251_199_999),
    ],
)
def test_times(text: str, ms: int) -> None:
    """A time without a zone is in UTC."""
    assert timestamp_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-02-30T00:00:00.000",
        "2024-01-01T25:00:00.000",
        "0-1-1T0:0:0.0",
    ],
)
def test_wrong_times(text: str) -> None:
    with pytest.raises(ToolError, match="Error parsing timestamp"):
        timestamp_ms(text)


def test_a_plan_is_read_as_it_is_exported() -> None:
    """With one group, its name is not in the file. Commas and quotes in a name survive."""
    plan = {"a,b": {T0: 1, U9: 2**63 - 1}, 'c"': {T1: 0}}
    assert exported({"g": {T0: 1, U9: 2}}, with_group=False) == "t,0,1\nu,9,2\n"
    assert exported(plan, with_group=True) == '"a,b",t,0,1\n"a,b",u,9,9223372036854775807\n"c""",t,1,0\n'
    assert parse_plan(exported(plan, with_group=True) + "\n", None, "f") == plan
    assert parse_plan("t,0,1\nother,u,9,2\n", "g", "f") == {"g": {T0: 1}, "other": {U9: 2}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("t,0,1\n\nt,0\n", "line 3 of f is not topic,partition,offset"),
        ("garbage", "line 1 of f is not topic,partition,offset"),
        ("t,x,1", "line 1 of f is not topic,partition,offset"),
        ("t,0,-1", "line 1 of f is not topic,partition,offset"),
        ("t,2147483648,1", "too large"),
        ("t,0,9223372036854775808", "too large"),
    ],
)
def test_wrong_plans(text: str, message: str) -> None:
    with pytest.raises(ToolError, match=message):
        parse_plan(text, "g", "f")


def test_a_plan_without_a_group() -> None:
    """Several groups are reset, so each line must name one."""
    with pytest.raises(ToolError, match="line 1 of f is not group,topic,partition,offset"):
        parse_plan("t,0,1", None, "f")
