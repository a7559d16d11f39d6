"""Tests the files of kafka-reassign-partitions: what they say, and that each contradiction is refused in Kafka's words."""

import json
from typing import Any

import pytest

from admin.partitions import TopicPartition, TopicPartitionReplica
from tools.errors import ToolError
from tools.kafka.reassignment_json import Reassignment, format_reassignment, parse_reassignment, parse_topics

T_0, T_1, U_0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def entry(**fields: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "replicas": [1, 2]} | fields


def file(*entries: Any, **fields: Any) -> str:
    return json.dumps({"version": 1, "partitions": list(entries)} | fields)


def test_directories_are_paths_or_any() -> None:
    """`any` and a missing list mean that the broker chooses: then there is no wish."""
    text = file(entry(log_dirs=["/a", "any"]), entry(partition=1, replicas=[3]))
    assert parse_reassignment(text) == Reassignment({T_0: (1, 2), T_1: (3,)}, {TopicPartitionReplica("t", 0, 1): "/a"})


def test_a_file_without_version_has_version_1() -> None:
    text = json.dumps({"partitions": [entry()]})
    assert parse_reassignment(text) == Reassignment({T_0: (1, 2)}, {})


def test_what_is_written_can_be_read() -> None:
    """One line, sorted by partition, with `any` for replicas whose directory is not known."""
    replicas = {U_0: (2,), T_0: (1, 2)}
    log_dirs = {TopicPartitionReplica("t", 0, 2): "/b"}
    text = format_reassignment(replicas, log_dirs)
    assert text == (
        '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","/b"]},'
        '{"topic":"u","partition":0,"replicas":[2],"log_dirs":["any"]}]}'
    )
    assert parse_reassignment(text) == Reassignment(replicas, log_dirs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The input string is not a valid JSON: "),
        ("{", "The input string is not a valid JSON: "),
        ('{"partitions": [], "partitions": []}', "The input string is not a valid JSON: Duplicate field 'partitions'"),
        ("[" * 100_000, "The input string is not a valid JSON: it is nested too deeply"),
        (
            file(entry(topic="a\ud800")),
            r"The input string is not a valid JSON: \ud800 is half of a surrogate pair and stands alone",
        ),
        ("[]", "The input string is not a JSON object"),
        (file(entry(), version=2), "Not supported version field value 2"),
        (file(entry(), version="1"), 'Not supported version field value "1"'),
        (file(entry(), version=True), "Not supported version field value true"),
        ('{"partitions": {}}', '"partitions" is not a list'),
        ("{}", "Partition reassignment list cannot be empty"),
        (file(), "Partition reassignment list cannot be empty"),
        (file(7), "7 is not a JSON object"),
        (file({"topic": "t"}), 'No such field exists: `partition` in {"topic": "t"}'),
        (file({"topic": "t", "partition": 0}), "No such field exists: `replicas` in "),
        (file(entry(topic=1)), "`topic` in "),
        (file(entry(partition="0")), "`partition` in "),
        (file(entry(partition=True)), "`partition` in "),
        (file(entry(replicas=1)), "`replicas` in "),
        (file(entry(replicas=[1, "2"])), "`replicas` in "),
        (file(entry(replicas=[1 << 31])), "`replicas` in "),
        (file(entry(log_dirs=["/a", 2])), "`log_dirs` in "),
        (file(entry(replicas=[])), "Partition replica list cannot be empty"),
        (
            file(entry(log_dirs=["/a"])),
            "Size of replicas list [1, 2] is different from size of log dirs list [/a] for partition t-0",
        ),
        (
            file(entry(log_dirs=["/a", "b"])),
            'Log directory b for partition t-0 is neither "any" nor an absolute path',
        ),
        (
            file(entry(log_dirs=["/a", ""])),
            'Log directory  for partition t-0 is neither "any" nor an absolute path',
        ),
        (
            file(entry(), entry(partition=1), entry(replicas=[3]), entry(partition=1)),
            "Partition reassignment contains duplicate topic partitions: t-0,t-1",
        ),
        (
            file(entry(replicas=[1, 2, 1]), entry(partition=1, replicas=[3, 3, 3])),
            "Partition replica lists may not contain duplicate entries: t-0 contains multiple entries for 1. "
            "t-1 contains multiple entries for 3",
        ),
    ],
)
def test_files_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ToolError) as error:
        parse_reassignment(text)
    assert str(error.value).startswith(message)


def test_topics_to_move() -> None:
    assert parse_topics('{"topics": [{"topic": "u"}, {"topic": "t"}], "version": 1}') == ["u", "t"]
    with pytest.raises(ToolError, match=r"^List of topics to reassign contains duplicate entries: \[t\]$"):
        parse_topics('{"topics": [{"topic": "t"}, {"topic": "t"}]}')
    with pytest.raises(ToolError, match=r"^No such field exists: `topic`"):
        parse_topics('{"topics": [{}]}')
