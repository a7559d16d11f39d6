"""kafka-consumer-groups --reset-offsets: finds the new offsets of groups, and commits them if asked to (shell).

Counterpart of resetOffsets and prepareOffsetsToReset in Kafka's ConsumerGroupCommand. Only a group without members is reset.
An offset outside of the log is moved to the log's nearest end, with a warning on stderr.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from admin.client import AdminClient
from admin.errors import AdminError
from admin.groups import CommittedOffset
from admin.partitions import TopicPartition
from common.protocol.errors import ErrorCode
from common.protocol.messages.list_offsets import EARLIEST, LATEST
from common.time_units import NS_PER_MS
from tools.errors import ToolError
from tools.kafka.group_offsets import listed_offsets, partitions_of
from tools.kafka.offset_plan import INT64_MAX, duration_ms, parse_plan, timestamp_ms

NO_MEMBERS: Final = ("Empty", "Dead")
Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The options of a reset: one of the scenarios, and the partitions."""

    topics: Sequence[str]
    all_topics: bool
    to_offset: int | None
    shift_by: int | None
    to_earliest: bool
    to_latest: bool
    to_datetime: str | None
    by_duration: str | None
    from_file: str | None
    has_one_group: bool
    timeout_ms: int
    is_executed: bool


async def reset_offsets(admin: AdminClient, group_ids: Sequence[str], reset: Reset) -> dict[str, Offsets]:
    """Returns the new offsets by group. Raises ToolError and AdminError."""
    start_ms = _start_ms(reset)
    plan = _read_plan(reset, group_ids)
    new_offsets: dict[str, Offsets] = {}
    for group_id in group_ids:
        state = await _state(admin, group_id, reset)
        if state not in NO_MEMBERS:
            print(
                f"\nError: Assignments can only be reset if the group '{group_id}' is inactive, "
                f"but the current state is {state}."
            )
            new_offsets[group_id] = {}
            continue
        prepared = await _prepared(admin, group_id, reset, start_ms=start_ms, plan=plan)
        new_offsets[group_id] = prepared
        if reset.is_executed and prepared:
            committed = {partition: CommittedOffset(offset) for partition, offset in prepared.items()}
            await admin.groups.alter_offsets(group_id, committed, timeout_ms=reset.timeout_ms)
    return new_offsets


def _start_ms(reset: Reset) -> int | None:
    """Returns the time from which records are wanted, None for the scenarios without one. Raises ToolError."""
    if reset.to_datetime is not None:
        return timestamp_ms(reset.to_datetime)
    if reset.by_duration is not None:
        return time.time_ns() // NS_PER_MS - duration_ms(reset.by_duration)
    return None


def _read_plan(reset: Reset, group_ids: Sequence[str]) -> dict[str, Offsets] | None:
    if reset.from_file is None:
        return None
    try:
        text = Path(reset.from_file).read_text(encoding="utf-8")
    except OSError as error:
        raise ToolError(f"Unable to read file {reset.from_file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ToolError(f"Unable to read file {reset.from_file}: {error}") from error
    return parse_plan(text, group_ids[0] if reset.has_one_group else None, reset.from_file)


async def _state(admin: AdminClient, group_id: str, reset: Reset) -> str:
    try:
        return (await admin.groups.describe(group_id, timeout_ms=reset.timeout_ms)).state
    except AdminError as error:
        # A group can be given offsets before its first member joins.
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return NO_MEMBERS[1]


async def _prepared(
    admin: AdminClient, group_id: str, reset: Reset, *, start_ms: int | None, plan: Mapping[str, Offsets] | None
) -> Offsets:
    timeout_ms = reset.timeout_ms
    if plan is not None:
        if group_id not in plan:
            print(f"\nError: No reset plan for group {group_id} found")
            return {}
        return await _within_log(admin, plan[group_id], timeout_ms=timeout_ms)
    committed: dict[TopicPartition, CommittedOffset] = {}
    if reset.all_topics or reset.shift_by is not None or not _is_by_log(reset):
        committed = await admin.groups.offsets(group_id, timeout_ms=timeout_ms)
    partitions = sorted(committed) if reset.all_topics else await _partitions(admin, reset)
    if reset.to_offset is not None:
        return await _within_log(admin, dict.fromkeys(partitions, reset.to_offset), timeout_ms=timeout_ms)
    if reset.to_earliest or reset.to_latest:
        return await _offsets_at(admin, partitions, EARLIEST if reset.to_earliest else LATEST, timeout_ms=timeout_ms)
    if start_ms is not None:
        return await _offsets_since(admin, partitions, start_ms, timeout_ms=timeout_ms)
    if reset.shift_by is not None:
        for partition in partitions:
            if partition not in committed:
                raise ToolError(f"Cannot shift offset for partition {partition} since there is no current committed offset")
        shifted = {each: min(committed[each].offset + reset.shift_by, INT64_MAX) for each in partitions}
        return await _within_log(admin, shifted, timeout_ms=timeout_ms)
    others = [each for each in partitions if each not in committed]
    ends = await _offsets_at(admin, others, LATEST, timeout_ms=timeout_ms)
    return {each: committed[each].offset if each in committed else ends[each] for each in partitions}


def _is_by_log(reset: Reset) -> bool:
    """Returns whether the new offsets depend on the log alone, not on what the group had committed."""
    return (
        reset.to_offset is not None
        or reset.to_earliest
        or reset.to_latest
        or reset.to_datetime is not None
        or reset.by_duration is not None
    )


async def _partitions(admin: AdminClient, reset: Reset) -> list[TopicPartition]:
    partitions, unknown = await partitions_of(admin, reset.topics, timeout_ms=reset.timeout_ms)
    for error in unknown.values():
        raise error
    return partitions


# --- offsets of the log ----------------------------------------------------------------------------------------------


async def _offsets_at(
    admin: AdminClient, partitions: Sequence[TopicPartition], timestamp: int, *, timeout_ms: int
) -> Offsets:
    """Returns the offset at an end of the log."""
    listed = await listed_offsets(admin, partitions, timestamp, timeout_ms=timeout_ms)
    return {each: listed[each].offset or 0 for each in partitions}


async def _offsets_since(
    admin: AdminClient, partitions: Sequence[TopicPartition], start_ms: int, *, timeout_ms: int
) -> Offsets:
    """Returns the first offset at or after this time, or the end where no record is as new."""
    listed = await listed_offsets(admin, partitions, max(start_ms, 0), timeout_ms=timeout_ms)
    found = {each: listed[each].offset for each in partitions}
    without = [each for each, offset in found.items() if offset is None]
    for each in without:
        print(f"\nWarn: Partition {each.partition} from topic {each.topic} is empty. Falling back to latest known offset.")
    ends = await _offsets_at(admin, without, LATEST, timeout_ms=timeout_ms)
    return {each: ends[each] if offset is None else offset for each, offset in found.items()}


async def _within_log(admin: AdminClient, wanted: Offsets, *, timeout_ms: int) -> Offsets:
    """Returns the offsets, those before the start or beyond the end of the log replaced by that."""
    partitions = sorted(wanted)
    starts = await _offsets_at(admin, partitions, EARLIEST, timeout_ms=timeout_ms)
    ends = await _offsets_at(admin, partitions, LATEST, timeout_ms=timeout_ms)
    limited = {each: max(min(wanted[each], ends[each]), starts[each]) for each in partitions}
    for each, offset in limited.items():
        if offset != wanted[each]:
            side = "higher than latest" if offset < wanted[each] else "lower than earliest"
            print(
                f"New offset ({wanted[each]}) is {side} offset for topic partition {each}. Value will be set to {offset}",
                file=sys.stderr,
            )
    return limited
