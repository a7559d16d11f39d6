"""The JSON files of kafka-reassign-partitions: what to move where, and which topics to make a plan for (core, KIP-113).

A partition may have `log_dirs` beside its `replicas`: for each replica `any`, or the absolute path of a directory of its
broker. A file that contradicts itself is refused as a whole, before anything is sent.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from admin.partitions import TopicPartition, TopicPartitionReplica
from tools.errors import ToolError
from tools.kafka.json_text import is_integer, parse_json

ANY_LOG_DIR: Final = "any"
VERSION: Final = 1

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Reassignment:
    """What a file asks for."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]
    log_dirs: Mapping[TopicPartitionReplica, str]
    """Paths only: a replica that may be in any directory has no entry."""


def parse_reassignment(text: str) -> Reassignment:
    """Returns the content of a --reassignment-json-file. Raises ToolError."""
    replicas: dict[TopicPartition, tuple[int, ...]] = {}
    log_dirs: dict[TopicPartitionReplica, str] = {}
    entries = [_partition(entry) for entry in _entries(text, "partitions")]
    _check_partitions([(partition, broker_ids) for partition, broker_ids, _ in entries])
    for partition, broker_ids, paths in entries:
        replicas[partition] = tuple(broker_ids)
        for broker_id, path in zip(broker_ids, paths, strict=True):
            if path != ANY_LOG_DIR:
                log_dirs[TopicPartitionReplica(partition.topic, partition.partition, broker_id)] = path
    return Reassignment(replicas, log_dirs)


def parse_topics(text: str) -> list[str]:
    """Returns the topics of a --topics-to-move-json-file. Raises ToolError."""
    topics = [_field(entry, "topic", _is_text, "a string") for entry in _entries(text, "topics")]
    repeated = duplicates(topics)
    if repeated:
        raise ToolError(f"List of topics to reassign contains duplicate entries: [{', '.join(repeated)}]")
    return topics


def format_reassignment(
    replicas: Mapping[TopicPartition, Sequence[int]], log_dirs: Mapping[TopicPartitionReplica, str]
) -> str:
    """Returns a file's content in one line, sorted by partition. Replicas without an entry in `log_dirs` get `any`."""
    partitions = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": list(broker_ids),
            "log_dirs": [
                log_dirs.get(TopicPartitionReplica(partition.topic, partition.partition, broker_id), ANY_LOG_DIR)
                for broker_id in broker_ids
            ],
        }
        for partition, broker_ids in sorted(replicas.items())
    ]
    return json.dumps({"version": VERSION, "partitions": partitions}, separators=(",", ":"))


def duplicates(items: Iterable[Item]) -> list[Item]:
    """Returns each item that is there more than once, in the order of their repetitions."""
    seen: set[Item] = set()
    repeated: dict[Item, None] = {}
    for item in items:
        if item in seen:
            repeated[item] = None
        seen.add(item)
    return list(repeated)


# --- reading ---------------------------------------------------------------------------------------------------------


def _entries(text: str, name: str) -> list[Any]:
    """Returns the list of this name in a file of a version that we know."""
    try:
        data = parse_json(text, object_pairs_hook=_without_duplicates)
    except ValueError as error:
        raise ToolError(f"The input string is not a valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise ToolError("The input string is not a JSON object")
    version = data.get("version", VERSION)
    if version != VERSION or isinstance(version, bool):
        raise ToolError(f"Not supported version field value {json.dumps(version)}")
    entries = data.get(name, [])
    if not isinstance(entries, list):
        raise ToolError(f'"{name}" is not a list')
    return entries


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Of two values under one name, Python and Java would take the last.
    repeated = duplicates(name for name, _ in pairs)
    if repeated:
        raise ValueError(f"Duplicate field '{repeated[0]}'")
    return dict(pairs)


def _partition(entry: Any) -> tuple[TopicPartition, list[int], list[str]]:
    partition = TopicPartition(
        _field(entry, "topic", _is_text, "a string"), _field(entry, "partition", is_integer, "an integer")
    )
    broker_ids: list[int] = _field(entry, "replicas", _is_list_of(is_integer), "a list of integers")
    if "log_dirs" not in entry:
        return partition, broker_ids, [ANY_LOG_DIR] * len(broker_ids)
    paths: list[str] = _field(entry, "log_dirs", _is_list_of(_is_text), "a list of strings")
    if len(broker_ids) != len(paths):
        raise ToolError(
            f"Size of replicas list [{', '.join(map(str, broker_ids))}] is different from size of log dirs list "
            f"[{', '.join(paths)}] for partition {partition}"
        )
    for path in paths:
        if path != ANY_LOG_DIR and not path.startswith("/"):
            raise ToolError(f'Log directory {path} for partition {partition} is neither "any" nor an absolute path')
    return partition, broker_ids, paths


def _field(entry: Any, name: str, is_valid: Callable[[Any], bool], expected: str) -> Any:
    if not isinstance(entry, dict):
        raise ToolError(f"{json.dumps(entry)} is not a JSON object")
    if name not in entry:
        raise ToolError(f"No such field exists: `{name}` in {json.dumps(entry)}")
    if not is_valid(entry[name]):
        raise ToolError(f"`{name}` in {json.dumps(entry)} is not {expected}")
    return entry[name]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list_of(is_valid: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(is_valid, value))


def _check_partitions(partitions: Sequence[tuple[TopicPartition, list[int]]]) -> None:
    if not partitions:
        raise ToolError("Partition reassignment list cannot be empty")
    if any(not broker_ids for _, broker_ids in partitions):
        raise ToolError("Partition replica list cannot be empty")
    repeated = duplicates(partition for partition, _ in partitions)
    if repeated:
        raise ToolError(f"Partition reassignment contains duplicate topic partitions: {','.join(map(str, repeated))}")
    contradictions = [
        f"{partition} contains multiple entries for {','.join(map(str, duplicates(broker_ids)))}"
        for partition, broker_ids in partitions
        if duplicates(broker_ids)
    ]
    if contradictions:
        raise ToolError(f"Partition replica lists may not contain duplicate entries: {'. '.join(contradictions)}")
