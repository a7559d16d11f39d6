"""What the user wrote about the partitions and offsets of a reset: topics, times, durations and CSV (core).

Counterpart of parts of Kafka's ConsumerGroupCommand and CsvUtils. The errors are ToolErrors in Kafka's words.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from admin.partitions import TopicPartition
from tools.errors import ToolError

INT64_MAX: Final = 2**63 - 1
_MS_OF_UNIT: Final = (86_400_000, 3_600_000, 60_000, 1_000)
# ISO 8601 as java.time.Duration reads it: days, then after a T hours, minutes and seconds, each with a sign of its own.
_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?[0-9]{1,18})D)?"
    r"(?:T(?=[-+0-9])(?:([-+]?[0-9]{1,18})H)?(?:([-+]?[0-9]{1,18})M)?(?:([-+]?[0-9]{1,18})(?:[.,]([0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
_DATETIME: Final = re.compile(r"(\d{1,4})-(\d\d?)-(\d\d?)T(\d\d?):(\d\d?):(\d\d?)\.(\d{1,3})(?:Z|([-+])(\d\d):?(\d\d)?)?")
_PARTITION: Final = re.compile("[0-9]{1,10}")
_OFFSET: Final = re.compile("[0-9]{1,19}")


def partitions_in(topic_argument: str) -> list[TopicPartition]:
    """Reads `topic:0,1`. Raises ToolError."""
    topic, _, partitions = topic_argument.partition(":")
    if not topic or not partitions or ":" in partitions:
        raise ToolError(f"Invalid topic arg '{topic_argument}', expected topic name and partitions")
    for text in partitions.split(","):
        if _PARTITION.fullmatch(text) is None or int(text) >= 2**31:
            raise ToolError(f"Invalid partition '{text}' specified in topic arg '{topic_argument}''")
    return [TopicPartition(topic, int(text)) for text in partitions.split(",")]


def duration_ms(text: str) -> int:
    """Reads `PnDTnHnMnS`. Raises ToolError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise ToolError(f"Text cannot be parsed to a Duration: {text}; --by-duration takes PnDTnHnMnS, for example PT12H")
    sign, *units, fraction = match.groups()
    length = sum(int(unit) * ms for unit, ms in zip(units, _MS_OF_UNIT, strict=True) if unit)
    if fraction:
        part = int(fraction.ljust(9, "0")) // 1_000_000
        length += -part if (units[3] or "").startswith("-") else part
    return -length if sign == "-" else length


def timestamp_ms(text: str) -> int:
    """Reads `YYYY-MM-DDThh:mm:ss.sss`, in UTC unless a time zone follows. Raises ToolError."""
    match = _DATETIME.fullmatch(text)
    if match is None:
        raise ToolError(
            f"Error parsing timestamp {text}; --to-datetime takes YYYY-MM-DDThh:mm:ss.sss, in UTC or with a zone as +02:00"
        )
    *numbers, ms, sign, hours, minutes = match.groups()
    zone = timezone(timedelta(0))
    try:
        if sign is not None:
            shift = timedelta(hours=int(hours), minutes=int(minutes or 0))
            zone = timezone(-shift if sign == "-" else shift)
        year, month, day, hour, minute, second = map(int, numbers)
        when = datetime(year, month, day, hour, minute, second, tzinfo=zone)
    except ValueError as error:
        raise ToolError(f"Error parsing timestamp {text}: {error}") from None
    return (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + int(ms)


def exported(plan: Mapping[str, Mapping[TopicPartition, int]], *, with_group: bool) -> str:
    """Returns the lines of --export: `topic,partition,offset`, after the group if there are several."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group_id, planned in plan.items():
        for partition, offset in planned.items():
            cells: Sequence[object] = (partition.topic, partition.partition, offset)
            writer.writerow((group_id, *cells) if with_group else cells)
    return text.getvalue()


def parse_plan(text: str, group_id: str | None, path: str) -> dict[str, dict[TopicPartition, int]]:
    """Reads what --export printed. Lines without a group are for `group_id`, the only group of the command line. Raises
    ToolError."""
    plan: dict[str, dict[TopicPartition, int]] = {}
    for number, cells in enumerate(csv.reader(io.StringIO(text)), 1):
        if not cells:
            # Kafka's --export ends with an empty line.
            continue
        group = cells.pop(0) if len(cells) == 4 else group_id
        if group is None or len(cells) != 3 or not _PARTITION.fullmatch(cells[1]) or not _OFFSET.fullmatch(cells[2]):
            form = "topic,partition,offset" if group_id is not None else "group,topic,partition,offset"
            raise ToolError(f"line {number} of {path} is not {form}")
        if int(cells[1]) >= 2**31 or int(cells[2]) > INT64_MAX:
            raise ToolError(f"line {number} of {path} has a partition or an offset that is too large")
        plan.setdefault(group, {})[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
    return plan
