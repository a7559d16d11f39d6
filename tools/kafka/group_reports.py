"""The tables of kafka-consumer-groups, with the columns and widths of Kafka's ConsumerGroupCommand (core).

A table that describes groups begins with an empty line. The last column is not padded, except where Kafka's is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from admin.errors import AdminError
from admin.groups import CommittedOffset, GroupDescription, GroupListing, GroupMember
from admin.partitions import TopicPartition, partitions_by_topic
from tools.kafka.java_exceptions import exception_text

MISSING: Final = "-"
_WIDTH: Final = 15


@dataclass(frozen=True, slots=True)
class OffsetRow:
    """A partition with the offset that the group committed, and the member that owns it."""

    group_id: str
    partition: TopicPartition
    committed: CommittedOffset | None
    log_end_offset: int | None
    """None if the partition's end is not known, because it has no leader or was deleted."""
    owner: GroupMember | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed.offset


Plan = Mapping[str, Mapping[TopicPartition, int]]
"""The new offset of each partition, by group."""


# --- lists -----------------------------------------------------------------------------------------------------------


def listing(groups: Sequence[GroupListing], *, with_type: bool, with_state: bool) -> list[str]:
    if not with_type and not with_state:
        return [each.group_id for each in groups]
    width = max((len(each.group_id) for each in groups), default=0)
    rows = [("GROUP", "TYPE", "STATE"), *((each.group_id, each.type, each.state) for each in groups)]
    return [
        f"{name:<{max(width, _WIDTH) + 10}}{f' {type_:<20}' if with_type else ''}{f' {state_:<20}' if with_state else ''}"
        for name, type_, state_ in rows
    ]


# --- offsets ---------------------------------------------------------------------------------------------------------


def offset_rows(
    group: GroupDescription, committed: Mapping[TopicPartition, CommittedOffset], ends: Mapping[TopicPartition, int]
) -> list[OffsetRow]:
    """Returns the partitions of each member, the member with the most partitions first, and then those without an owner."""
    members = sorted(group.members, key=lambda each: (-len(each.assignment), each.member_id))
    owned: list[tuple[TopicPartition, GroupMember | None]] = [
        (partition, member) for member in members for partition in sorted(member.assignment)
    ]
    taken = {partition for partition, _ in owned}
    free = [(partition, None) for partition in sorted(committed) if partition not in taken]
    return [
        OffsetRow(group.group_id, partition, committed.get(partition), ends.get(partition), owner)
        for partition, owner in (*owned, *free)
    ]


def offsets(rows: Sequence[OffsetRow], *, verbose: bool) -> str:
    """Returns the table of one group. `verbose` adds the leader epoch that was committed with the offset."""
    head = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"]
    table = [head, *map(_offset_cells, rows)]
    epochs = ["LEADER-EPOCH", *(_text(each.committed.leader_epoch if each.committed else None) for each in rows)]
    widths = [_width(table, 0), _width(table, 1), 10, 15, 15, 15, _width(table, 6), _width(table, 7), 0]
    if verbose:
        widths.insert(3, 15)
        table = [[*cells[:3], epoch, *cells[3:]] for cells, epoch in zip(table, epochs, strict=True)]
    return _lines(table, widths)


def _offset_cells(row: OffsetRow) -> list[str]:
    return [
        row.group_id,
        row.partition.topic,
        str(row.partition.partition),
        _text(row.committed.offset if row.committed else None),
        _text(row.log_end_offset),
        _text(row.lag),
        *((row.owner.member_id, row.owner.host, row.owner.client_id) if row.owner else (MISSING, MISSING, MISSING)),
    ]


# --- members and states ----------------------------------------------------------------------------------------------


def members(group: GroupDescription, *, verbose: bool) -> str:
    """Returns the table of the group's members. The columns of instance ids and of upgraded members are there only if some
    members have them."""
    members_ = sorted(group.members, key=lambda each: each.member_id)
    head = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    table = [head, *(_member_cells(group.group_id, each) for each in members_)]
    widths = [_width(table, 0), _width(table, 1), _width(table, 2, 17), _width(table, 3), _width(table, 4), 15]
    if not any(each.instance_id for each in members_):
        table = [[*cells[:2], *cells[3:]] for cells in table]
        del widths[2]
    if verbose:
        upgrades = {each.is_upgraded for each in members_}
        extra = [["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", "UPGRADED"]]
        extra += [_verbose_cells(group, each) for each in members_]
        widths += [15, _width(extra, 1, 20), 15, _width(extra, 3, 20)]
        is_mixed = {True, False} <= upgrades
        table = [cells + more[: 5 if is_mixed else 4] for cells, more in zip(table, extra, strict=True)]
        widths += [0] if is_mixed else []
    return _lines(table, widths, end="" if verbose else " ")


def _member_cells(group_id: str, member: GroupMember) -> list[str]:
    return [
        group_id,
        member.member_id,
        member.instance_id or "",
        member.host,
        member.client_id,
        str(len(member.assignment)),
    ]


def _verbose_cells(group: GroupDescription, member: GroupMember) -> list[str]:
    target_epoch = None if member.target_assignment is None else group.target_assignment_epoch
    upgraded = MISSING if member.is_upgraded is None else str(member.is_upgraded).lower()
    return [
        _text(member.epoch),
        _assignment(member.assignment),
        _text(target_epoch),
        _assignment(member.target_assignment or ()),
        upgraded,
    ]


def _assignment(partitions: Iterable[TopicPartition]) -> str:
    """Writes partitions as `t:0,1;u:2`."""
    by_topic = partitions_by_topic(sorted(partitions))
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in by_topic.items()) or MISSING


def state(group: GroupDescription, *, verbose: bool) -> str:
    coordinator = f"{group.coordinator.host}:{group.coordinator.port}  ({group.coordinator_id})"
    head = [
        "GROUP",
        "COORDINATOR (ID)",
        "ASSIGNMENT-STRATEGY",
        "STATE",
        "GROUP-EPOCH",
        "TARGET-ASSIGNMENT-EPOCH",
        "#MEMBERS",
    ]
    cells = [
        group.group_id,
        coordinator,
        group.assignor or MISSING,
        group.state,
        _text(group.epoch),
        _text(group.target_assignment_epoch),
        str(len(group.members)),
    ]
    table = [head, cells]
    widths = [_width(table, 0), _width(table, 1, 25), 20, 20, 15, 25, 0]
    if not verbose:
        table = [[*row[:4], row[6]] for row in table]
        del widths[4:6]
    return _lines(table, widths)


# --- resets and deletions --------------------------------------------------------------------------------------------


def new_offsets(plan: Plan) -> str:
    table = [["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]] if plan else []
    table += [
        [group_id, partition.topic, str(partition.partition), str(offset)]
        for group_id, planned in plan.items()
        for partition, offset in planned.items()
    ]
    return _lines(table, [30, 30, 10, 15]) if table else "\n"


def deleted_offsets(outcomes: Mapping[TopicPartition, AdminError | None], unknown_topics: Mapping[str, AdminError]) -> str:
    """Returns the result of each partition, and the error of each topic whose partitions are not known."""
    table = [["TOPIC", "PARTITION", "STATUS"]]
    rows = [(each.topic, str(each.partition), outcomes[each]) for each in sorted(outcomes)]
    rows += [(topic, MISSING, error) for topic, error in unknown_topics.items()]
    for topic, index, error in rows:
        table.append([topic, index, "Successful" if error is None else f"Error: {exception_text(error)}"])
    return _lines(table, [_width(table, 0), 10, 15])


# --- layout ----------------------------------------------------------------------------------------------------------


def _lines(table: Sequence[Sequence[str]], widths: Sequence[int], *, end: str = "") -> str:
    rows = (" ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)) for cells in table)
    return "".join(f"\n{row}{end}" for row in rows) + "\n"


def _width(table: Sequence[Sequence[str]], column: int, least: int = _WIDTH) -> int:
    return max([least, *(len(cells[column]) for cells in table[1:])])


def _text(number: int | None) -> str:
    return MISSING if number is None else str(number)
