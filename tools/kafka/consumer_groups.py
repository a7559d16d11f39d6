"""kafka-consumer-groups: list, describe, reset and delete consumer groups, with Kafka's flags and output (shell).

Counterpart of Kafka's ConsumerGroupCommand of release 4.1. As there, a wrong command line is status 1, but an error of the
cluster is printed on stdout after "Error: ", and the status is 0. Rows are sorted, where Kafka's tool has them in the order
of a hash table.
"""

import argparse
import sys
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Final

from admin.client import AdminClient
from admin.errors import AdminError
from admin.group_calls import DEAD
from admin.groups import CLASSIC, CONSUMER, CONSUMER_PROTOCOL, GroupDescription, GroupListing
from admin.partitions import TopicPartition
from broker.coordinator.core.regex import InvalidRegex, Regex
from tools.arguments import ToolParser, add_bootstrap, int64
from tools.errors import ToolError, run_tool
from tools.kafka import group_reports
from tools.kafka.admin_run import run_admin
from tools.kafka.group_offsets import end_offsets, partitions_of
from tools.kafka.java_exceptions import exception_text, message_text
from tools.kafka.offset_plan import exported
from tools.kafka.offset_reset import Reset, reset_offsets

TIMEOUT_MS: Final = 30_000
ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
SCENARIOS: Final = (
    "to-offset",
    "to-current",
    "to-datetime",
    "from-file",
    "by-duration",
    "to-earliest",
    "to-latest",
    "shift-by",
)
STATES: Final = ("CompletingRebalance", "Stable", "PreparingRebalance", "Assigning", "Reconciling", "Dead", "Empty")
TYPES: Final = (CONSUMER, CLASSIC)
# The value of --state or --type without an argument.
NO_FILTER: Final = ""
WARNING: Final = (
    "WARN: No action will be performed as the --execute option is missing. In a future major release, the default behavior "
    "of this command will be to prompt the user before executing the reset rather than doing a dry run. You should add the "
    "--dry-run option explicitly if you are scripting this command and want to keep the current default behavior without "
    "prompting."
)
Work = Callable[[AdminClient, argparse.Namespace], Coroutine[Any, Any, None]]


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-consumer-groups", "List, describe, reset and delete consumer groups.")
    add_bootstrap(parser, is_required=False)
    parser.add_argument("--list", action="store_true", help="list the groups")
    parser.add_argument("--describe", action="store_true", help="describe groups: their offsets, members or state")
    parser.add_argument("--delete", action="store_true", help="delete groups that have no members")
    parser.add_argument("--reset-offsets", action="store_true", help="change committed offsets of groups without members")
    parser.add_argument("--delete-offsets", action="store_true", help="delete committed offsets of a group")
    parser.add_argument(
        "--validate-regex", metavar="REGEX", help="check an expression that members may subscribe with; asks no broker"
    )
    parser.add_argument("--group", action="append", default=[], help="a group; may be given several times")
    parser.add_argument("--all-groups", action="store_true", help="all groups")
    parser.add_argument("--topic", action="append", default=[], metavar="TOPIC[:0,1]", help="a topic, or some partitions")
    parser.add_argument("--all-topics", action="store_true", help="all partitions for which the group has an offset")
    parser.add_argument("--offsets", action="store_true", help="with --describe: the offsets and the lag (the default)")
    parser.add_argument("--members", action="store_true", help="with --describe: the members")
    parser.add_argument(
        "--state", nargs="?", const=NO_FILTER, help="with --describe: the state; with --list: only groups in these states"
    )
    parser.add_argument("--type", nargs="?", const=NO_FILTER, help="with --list: only groups of these types")
    parser.add_argument("--verbose", action="store_true", help="with --describe: show more columns")
    parser.add_argument("--to-earliest", action="store_true", help="reset to the first offset")
    parser.add_argument("--to-latest", action="store_true", help="reset to the end of the log")
    parser.add_argument("--to-current", action="store_true", help="reset to the committed offset, or else to the end")
    parser.add_argument("--to-offset", type=int64, metavar="OFFSET", help="reset to this offset")
    parser.add_argument("--shift-by", type=int64, metavar="N", help="reset to N further, or back if negative")
    parser.add_argument("--by-duration", metavar="PnDTnHnMnS", help="reset to the first record of the last so many hours")
    parser.add_argument("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="reset to the first record since then")
    parser.add_argument("--from-file", metavar="FILE", help="reset to the offsets in a file as --export prints it")
    parser.add_argument("--dry-run", action="store_true", help="only show the new offsets (the default)")
    parser.add_argument("--execute", action="store_true", help="commit the new offsets")
    parser.add_argument("--export", action="store_true", help="print the new offsets as CSV")
    parser.add_argument(
        "--timeout", type=int, default=TIMEOUT_MS, metavar="MS", help="limit of each request (default 30000)"
    )
    return parser


# --- the checks that argparse cannot do ------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> str:
    """Returns the action. Raises ToolError in the words of Kafka's tool."""
    given = {option for option in (*ACTIONS, *SCENARIOS) if _is_given(arguments, option)}
    actions = [each for each in ACTIONS if each in given]
    if len(actions) != 1:
        names = ", ".join(f"--{each}" for each in ACTIONS)
        raise ToolError(f"Command must include exactly one action: {names}")
    action = actions[0]
    if action != "validate-regex" and arguments.bootstrap_server is None:
        raise ToolError('Missing required argument "[bootstrap-server]"')
    if action in ("describe", "delete", "reset-offsets") and not arguments.group and not arguments.all_groups:
        raise ToolError(f"Option [{action}] takes one of these options: [all-groups], [group]")
    _check_reports(arguments, action)
    if action == "delete" and arguments.topic:
        raise ToolError("The consumer does not support topic-specific offset deletion from a consumer group.")
    if action == "delete-offsets" and not (arguments.group and arguments.topic):
        raise ToolError("Option [delete-offsets] takes the following options: [topic], [group]")
    if action == "reset-offsets":
        _check_reset(arguments, [each for each in SCENARIOS if each in given])
    for option, value, refusing in (
        ("group", arguments.group, ("list",)),
        ("topic", arguments.topic, ("list", "describe")),
    ):
        if value and action in refusing:
            raise ToolError(f'Option "[{option}]" can\'t be used with option "[{action}]"')
    if arguments.group and arguments.all_groups:
        raise ToolError('Option "[group]" can\'t be used with option "[all-groups]"')
    return action


def _check_reports(arguments: argparse.Namespace, action: str) -> None:
    if action == "describe":
        reports = (arguments.members, arguments.offsets, arguments.state is not None)
        if sum(reports) > 1:
            raise ToolError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if arguments.state:
            raise ToolError("Option [describe] does not take a value for [state]")
    else:
        for option in ("members", "offsets", "verbose"):
            if getattr(arguments, option):
                raise ToolError(f"Option [{option}] is only for [describe]")
        if arguments.state is not None and action != "list":
            raise ToolError("Option [state] is only for [describe] and [list]")
    if arguments.type is not None and action != "list":
        raise ToolError("Option [type] is only for [list]")


def _check_reset(arguments: argparse.Namespace, scenarios: list[str]) -> None:
    if arguments.dry_run and arguments.execute:
        raise ToolError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if len(scenarios) > 1:
        raise ToolError(f'Option "[{scenarios[0]}]" can\'t be used with option "[{scenarios[1]}]"')
    if not scenarios:
        names = ", ".join(f"[{each}]" for each in SCENARIOS)
        raise ToolError(f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]")
    if not (arguments.topic or arguments.all_topics or arguments.from_file is not None):
        raise ToolError("One of the reset scopes should be defined: --all-topics, --topic.")


def _is_given(arguments: argparse.Namespace, option: str) -> bool:
    value = getattr(arguments, option.replace("-", "_"))
    # The number 0 is given, and equals False.
    return value is not None and value is not False


def _run(arguments: argparse.Namespace) -> int:
    action = _check(arguments)
    if action == "validate-regex":
        print(_verdict(arguments.validate_regex))
        return 0
    if action == "reset-offsets" and not arguments.dry_run and not arguments.execute:
        print(WARNING, file=sys.stderr)
    filters = _filter(arguments.state, STATES, "state"), _filter(arguments.type, TYPES, "types")

    async def work(admin: AdminClient) -> None:
        if action == "list":
            await _list(admin, arguments, *filters)
        else:
            await _WORK[action](admin, arguments)

    try:
        run_admin(arguments.bootstrap_server, work, command_config=arguments.command_config)
    except ToolError as error:
        # Only an AdminError ends the work of Kafka's tool in this way. Other ToolErrors are about the command line.
        if not isinstance(error.__cause__, AdminError):
            raise
        print(f"\nError: Executing consumer group command failed due to {exception_text(error.__cause__)}")
    return 0


def _verdict(regex: str) -> str:
    try:
        Regex(regex)
    except InvalidRegex as error:
        return f"The regular expression `{regex}` is invalid: {error}."
    return f"The regular expression `{regex}` is valid."


def _filter(text: str | None, known: tuple[str, ...], title: str) -> list[str]:
    """Returns the names in the list, spelled as brokers do. Raises ToolError."""
    if not text:
        return []
    by_name = {name.lower(): name for name in known}
    names = [by_name.get(part.strip().lower()) for part in text.split(",")]
    if None in names:
        raise ToolError(f"Invalid {title} list '{text}'. Valid {title.rstrip('s')}s are: {', '.join(known)}")
    return [name for name in names if name is not None]


# --- actions ---------------------------------------------------------------------------------------------------------


async def _groups(
    admin: AdminClient, arguments: argparse.Namespace, states: list[str] | None = None, types: list[str] | None = None
) -> list[GroupListing]:
    found = await admin.groups.list(states=states or (), types=types or (), timeout_ms=arguments.timeout)
    # Kafka Connect's workers, for one, form groups of another protocol.
    return [each for each in found if each.protocol_type in ("", CONSUMER_PROTOCOL)]


async def _group_ids(admin: AdminClient, arguments: argparse.Namespace) -> list[str]:
    if arguments.all_groups:
        return [each.group_id for each in await _groups(admin, arguments)]
    return sorted(set(arguments.group))


async def _list(admin: AdminClient, arguments: argparse.Namespace, states: list[str], types: list[str]) -> None:
    # Without --type, brokers that do not know the filter are asked as well.
    groups = await _groups(admin, arguments, states, types)
    lines = group_reports.listing(groups, with_type=arguments.type is not None, with_state=arguments.state is not None)
    print("".join(f"{line}\n" for line in lines), end="")


async def _describe(admin: AdminClient, arguments: argparse.Namespace) -> None:
    described = [
        await admin.groups.describe(group_id, timeout_ms=arguments.timeout)
        for group_id in await _group_ids(admin, arguments)
    ]
    for group in described:
        if arguments.members:
            # As in Kafka, the table of a group without members has a head.
            if _is_shown(group, 1):
                print(group_reports.members(group, verbose=arguments.verbose), end="")
        elif arguments.state is not None:
            if _is_shown(group, 1):
                print(group_reports.state(group, verbose=arguments.verbose), end="")
        else:
            committed = await admin.groups.offsets(group.group_id, timeout_ms=arguments.timeout)
            asked = {*committed, *(each for member in group.members for each in member.assignment)}
            ends = await end_offsets(admin, asked, timeout_ms=arguments.timeout)
            rows = group_reports.offset_rows(group, committed, ends)
            if _is_shown(group, len(rows)):
                print(group_reports.offsets(rows, verbose=arguments.verbose), end="")


def _is_shown(group: GroupDescription, count: int) -> bool:
    """Says on stderr what is unusual about the state of the group, and returns whether there is a table to print."""
    if group.state == DEAD:
        print(f"\nError: Consumer group '{group.group_id}' does not exist.")
    elif group.state == "Empty":
        print(f"\nConsumer group '{group.group_id}' has no active members.", file=sys.stderr)
    elif group.state != "Stable":
        print(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", file=sys.stderr)
    return group.state != DEAD and count > 0


async def _delete(admin: AdminClient, arguments: argparse.Namespace) -> None:
    deleted: list[str] = []
    failed: dict[str, AdminError] = {}
    for group_id in await _group_ids(admin, arguments):
        try:
            await admin.groups.delete(group_id, timeout_ms=arguments.timeout)
            deleted.append(group_id)
        except AdminError as error:
            failed[group_id] = error
    names = ", ".join(f"'{each}'" for each in deleted)
    if not failed:
        print(f"Deletion of requested consumer groups ({names}) was successful.")
        return
    print("\nError: Deletion of some consumer groups failed:")
    for group_id, reason in failed.items():
        print(f"* Group '{group_id}' could not be deleted due to: {exception_text(reason)}")
    if deleted:
        print(f"\nThese consumer groups were deleted successfully: {names}")


async def _delete_offsets(admin: AdminClient, arguments: argparse.Namespace) -> None:
    group_id = arguments.group[-1]
    partitions, unknown = await partitions_of(admin, arguments.topic, timeout_ms=arguments.timeout)
    outcomes: dict[TopicPartition, AdminError | None] = {}
    whole: AdminError | None = None
    try:
        # Also without any partition that is known: the coordinator says whether there is such a group.
        outcomes = await admin.groups.delete_offsets(group_id, partitions, timeout_ms=arguments.timeout)
    except AdminError as error:
        whole = error
        outcomes = dict.fromkeys(partitions, error)
    if whole is not None:
        print(f"\nError: {message_text(whole)}")
    elif any(outcomes.values()):
        print("\nError: Encountered some partition-level error, see the follow-up details.")
    else:
        print(f"Request succeeded for deleting offsets from group {group_id}.")
    print(group_reports.deleted_offsets(outcomes, unknown), end="")


async def _reset(admin: AdminClient, arguments: argparse.Namespace) -> None:
    reset = Reset(
        topics=arguments.topic,
        all_topics=arguments.all_topics,
        to_offset=arguments.to_offset,
        shift_by=arguments.shift_by,
        to_earliest=arguments.to_earliest,
        to_latest=arguments.to_latest,
        to_datetime=arguments.to_datetime,
        by_duration=arguments.by_duration,
        from_file=arguments.from_file,
        has_one_group=len(set(arguments.group)) == 1,
        timeout_ms=arguments.timeout,
        is_executed=arguments.execute,
    )
    plan = await reset_offsets(admin, await _group_ids(admin, arguments), reset)
    if arguments.export:
        print(exported(plan, with_group=not reset.has_one_group))
    else:
        print(group_reports.new_offsets(plan), end="")


_WORK: Final[Mapping[str, Work]] = MappingProxyType(
    {"describe": _describe, "delete": _delete, "reset-offsets": _reset, "delete-offsets": _delete_offsets}
)


if __name__ == "__main__":
    entry()
