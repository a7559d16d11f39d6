"""kafka-reassign-partitions: moves replicas between brokers, and between the directories of brokers (shell).

Counterpart of Kafka's ReassignPartitionsCommand, with its flags, its checks and its output; what --execute and --cancel do
is in reassignment.py. The current assignment is printed with the real directories, so that a rollback brings every replica
back to its directory. Errors go to stderr.
"""

import argparse
import secrets
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from admin.client import AdminClient
from admin.partitions import TopicPartition, TopicPartitionReplica
from admin.reassignments import PartitionReassignment
from common.ids import BrokerId
from controller.core.placement import PlacementBroker, place_replicas
from tools.arguments import ToolParser, add_bootstrap
from tools.errors import ToolError, run_tool
from tools.kafka import reassignment as moving
from tools.kafka import reassignment_throttles as throttles
from tools.kafka.admin_run import run_admin
from tools.kafka.reassignment_json import Reassignment, duplicates, format_reassignment, parse_reassignment, parse_topics
from tools.kafka.reassignment_states import Move, MoveState, move_lines, move_state, ongoing_lines, partition_lines

TIMEOUT_MS: Final = 10_000

ALREADY_RUNNING: Final = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a new "
    "partition assignment in addition to the existing one. The --additional flag can also be used to change the throttle by "
    "resubmitting the current reassignment."
)
RUN_VERIFY: Final = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)

# The options that each action needs, and those that it can have besides.
NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "generate": ("topics-to-move-json-file", "broker-list"),
        "execute": ("reassignment-json-file",),
        "verify": ("reassignment-json-file",),
        "cancel": ("reassignment-json-file",),
        "list": (),
    }
)
ALLOWED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "generate": ("disable-rack-aware",),
        "execute": (
            *("additional", "throttle", "replica-alter-log-dirs-throttle"),
            *("timeout", "disallow-replication-factor-change"),
        ),
        "verify": ("preserve-throttles",),
        "cancel": ("preserve-throttles", "timeout"),
        "list": (),
    }
)


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = parse(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Parses and checks the command line. Exits if it is wrong."""
    parser = command_line()
    arguments = parser.parse_args(argv)
    _check(parser, arguments)
    return arguments


def command_line() -> ToolParser:
    parser = ToolParser("kafka-reassign-partitions", "This tool helps to move topic partitions between replicas.")
    add_bootstrap(parser, or_controllers=True)
    actions = {
        "generate": "propose an assignment of topics to brokers, without executing it",
        "execute": "start the reassignment",
        "verify": "show how far the reassignment is, and remove the throttles when it is completed",
        "cancel": "cancel the reassignment",
        "list": "list all reassignments in progress",
    }
    for action, text in actions.items():
        parser.add_argument(f"--{action}", dest="actions", action="append_const", const=action, help=text)
    parser.add_argument(
        "--reassignment-json-file",
        metavar="PATH",
        help='{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["/disk-1", "any"]}], '
        '"version": 1}; log_dirs is optional',
    )
    parser.add_argument("--topics-to-move-json-file", metavar="PATH", help='{"topics": [{"topic": "t"}], "version": 1}')
    parser.add_argument("--broker-list", metavar="1,2", help="brokers for the topics to move")
    parser.add_argument("--disable-rack-aware", action="store_true", default=None, help="do not look at racks")
    parser.add_argument("--throttle", type=int, metavar="B/S", help="rate of the replication between brokers")
    parser.add_argument(
        "--replica-alter-log-dirs-throttle", type=int, metavar="B/S", help="rate of the moves inside brokers"
    )
    parser.add_argument("--timeout", type=int, metavar="MS", help=f"wait so long for new replicas (default {TIMEOUT_MS})")
    parser.add_argument(
        "--additional", action="store_true", default=None, help="do not mind reassignments that are in progress"
    )
    parser.add_argument("--preserve-throttles", action="store_true", default=None, help="do not remove throttles")
    parser.add_argument(
        "--disallow-replication-factor-change",
        action="store_true",
        default=None,
        help="refuse to change the number of a partition's replicas",
    )
    return parser


def _check(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Exits if the options do not go together."""
    actions = arguments.actions or []
    if len(actions) != 1:
        parser.error(f"Command must include exactly one action: {', '.join(f'--{each}' for each in NEEDED)}")
    (action,) = actions
    if arguments.bootstrap_controller is not None:
        _check_controllers(parser, arguments, action)
    for option in NEEDED[action]:
        if _option(arguments, option) is None:
            parser.error(f'Missing required argument "[{option}]"')
    options = dict.fromkeys(option for table in (NEEDED, ALLOWED) for each in table.values() for option in each)
    for option in options:
        if _option(arguments, option) is not None and option not in (*NEEDED[action], *ALLOWED[action]):
            parser.error(f'Option "[{option}]" can\'t be used with action "[{action}]"')


def _check_controllers(parser: argparse.ArgumentParser, arguments: argparse.Namespace, action: str) -> None:
    """Exits if the action needs brokers. Controllers list and cancel reassignments; only brokers know the moves between
    their directories and their throttles."""
    if action not in ("cancel", "list"):
        parser.error(f'Option "[bootstrap-controller]" can\'t be used with action "[{action}]"')
    if action == "cancel" and not arguments.preserve_throttles:
        parser.error("--cancel with --bootstrap-controller needs --preserve-throttles: the throttles are the brokers'")


def _option(arguments: argparse.Namespace, option: str) -> Any:
    return getattr(arguments, option.replace("-", "_"))


def _run(arguments: argparse.Namespace) -> int:
    try:
        run_admin(
            arguments.bootstrap_server,
            work_of(arguments),
            command_config=arguments.command_config,
            bootstrap_controllers=arguments.bootstrap_controller,
        )
    except moving.TerseError:
        raise
    except ToolError as error:
        raise ToolError(f"Error: {error}") from error
    return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is not a text in UTF-8: {error}") from error


def _reassignment(arguments: argparse.Namespace) -> Reassignment:
    return parse_reassignment(_read(arguments.reassignment_json_file))


Work = Callable[[AdminClient], Coroutine[Any, Any, None]]


def work_of(arguments: argparse.Namespace) -> Work:
    """Returns what the tool does with a client, for these arguments. Raises ToolError if a file is wrong."""
    (action,) = arguments.actions
    return _ACTIONS[action](arguments)


# --- --generate ------------------------------------------------------------------------------------------------------


def _generate(arguments: argparse.Namespace) -> Work:
    broker_ids = _broker_ids(arguments.broker_list)
    topics = parse_topics(_read(arguments.topics_to_move_json_file))

    async def work(admin: AdminClient) -> None:
        current = await moving.replicas_of_topics(admin, topics)
        existing = await moving.check_brokers(admin, broker_ids)
        brokers = await _placement_brokers(admin, broker_ids, is_rack_aware=not arguments.disable_rack_aware)
        proposed = _propose(current, brokers)
        places = moving.places(current, await _log_dirs(admin, current, existing))
        print(f"Current partition replica assignment\n{format_reassignment(current, places)}\n")
        print(f"Proposed partition reassignment configuration\n{format_reassignment(proposed, {})}")

    return work


def _broker_ids(text: str) -> list[int]:
    broker_ids = []
    for part in text.split(","):
        try:
            broker_ids.append(int(part))
        except ValueError:
            raise ToolError(f'For input string: "{part}"') from None
    repeated = duplicates(broker_ids)
    if repeated:
        raise ToolError(f"Broker list contains duplicate entries: [{', '.join(map(str, repeated))}]")
    return broker_ids


async def _placement_brokers(admin: AdminClient, broker_ids: Iterable[int], *, is_rack_aware: bool) -> list[PlacementBroker]:
    nodes = [node for node in (await admin.describe_cluster()).brokers if node.broker_id in broker_ids]
    without_rack = [node for node in nodes if node.rack is None]
    if is_rack_aware and 0 < len(without_rack) < len(nodes):
        raise ToolError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment "
            "without rack information."
        )
    return [
        PlacementBroker(BrokerId(node.broker_id), node.rack if is_rack_aware else None, is_usable=True) for node in nodes
    ]


def _propose(
    current: Mapping[TopicPartition, tuple[int, ...]], brokers: list[PlacementBroker]
) -> dict[TopicPartition, tuple[int, ...]]:
    """Returns an assignment of every topic by itself, with the number of replicas of its first partition."""
    proposed: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in sorted({partition.topic for partition in current}):
        partitions = sorted(partition for partition in current if partition.topic == topic)
        size = len(current[partitions[0]])
        if size > len(brokers):
            raise ToolError(f"Replication factor: {size} larger than available brokers: {len(brokers)}.")
        placed = place_replicas(brokers, partitions=len(partitions), replication_factor=size, rng=secrets.SystemRandom())
        proposed |= zip(partitions, placed, strict=True)
    return proposed


# --- --execute -------------------------------------------------------------------------------------------------------


def _execute(arguments: argparse.Namespace) -> Work:
    reassignment = _reassignment(arguments)
    targets = reassignment.replicas

    async def work(admin: AdminClient) -> None:
        ongoing = await admin.list_partition_reassignments()
        if ongoing and not arguments.additional:
            raise moving.TerseError(ALREADY_RUNNING)
        existing = await moving.check_brokers(admin, (broker_id for replicas in targets.values() for broker_id in replicas))
        current = await moving.current_replicas(admin, targets)
        log_dirs = await _log_dirs(admin, current, existing, reassignment.log_dirs)
        moving.check_log_dirs(reassignment.log_dirs, log_dirs)
        print(f"Current partition replica assignment\n\n{format_reassignment(current, moving.places(current, log_dirs))}\n")
        print("Save this to use as the --reassignment-json-file option during rollback")
        moves = throttles.partition_moves(targets, ongoing, current)
        await _set_throttles(admin, arguments, moves, {replica.broker_id for replica in reassignment.log_dirs})
        await moving.execute_reassignment(
            admin,
            reassignment,
            allow_replication_factor_change=not arguments.disallow_replication_factor_change,
            timeout_ms=_timeout_ms(arguments),
        )

    return work


def _timeout_ms(arguments: argparse.Namespace) -> int:
    return TIMEOUT_MS if arguments.timeout is None else int(arguments.timeout)


async def _set_throttles(
    admin: AdminClient,
    arguments: argparse.Namespace,
    moves: Mapping[TopicPartition, throttles.PartitionMove],
    moving_brokers: set[int],
) -> None:
    """Sets the throttles that were asked for. As in Kafka, a negative rate stands for none."""
    between, inside = arguments.throttle, arguments.replica_alter_log_dirs_throttle
    is_between, is_inside = between is not None and between >= 0, inside is not None and inside >= 0
    if is_between or is_inside:
        print(RUN_VERIFY)
    if is_between:
        await admin.incremental_alter_configs(throttles.topic_throttles(moves)).all()
        involved = {broker_id for move in moves.values() for broker_id in move.sources | move.destinations}
        rates = (throttles.LEADER_RATE, throttles.FOLLOWER_RATE)
        await admin.incremental_alter_configs(throttles.broker_throttles(involved, rates, between)).all()
        print(f"The inter-broker throttle limit was set to {between} B/s")
    if is_inside:
        changes = throttles.broker_throttles(moving_brokers, (throttles.MOVE_RATE,), inside)
        await admin.incremental_alter_configs(changes).all()
        print(f"The replica-alter-dir throttle limit was set to {inside} B/s")


async def _log_dirs(
    admin: AdminClient,
    partitions: Mapping[TopicPartition, tuple[int, ...]],
    existing: Iterable[int],
    wishes: Iterable[TopicPartitionReplica] = (),
) -> moving.LogDirs:
    """Returns the directories of the brokers that have these partitions, and of those with wishes."""
    hosts = {broker_id for replicas in partitions.values() for broker_id in replicas}
    hosts |= {replica.broker_id for replica in wishes}
    return await admin.describe_log_dirs(sorted(hosts & set(existing))).all()


# --- --verify, --cancel and --list -----------------------------------------------------------------------------------


def _verify(arguments: argparse.Namespace) -> Work:
    reassignment = _reassignment(arguments)

    async def work(admin: AdminClient) -> None:
        ongoing = await admin.list_partition_reassignments()
        current, _missing = await moving.find_replicas(admin, {each.topic for each in reassignment.replicas})
        print("\n".join(partition_lines(reassignment.replicas, ongoing, current)))
        states = await _move_states(admin, reassignment)
        print("\n".join(move_lines(states)))
        _expect_present(states)
        if not ongoing and all(state.is_done for state in states.values()) and not arguments.preserve_throttles:
            await _clear_throttles(admin, reassignment)

    return work


async def _move_states(admin: AdminClient, reassignment: Reassignment) -> dict[TopicPartitionReplica, MoveState]:
    existing = (await admin.describe_cluster()).broker_ids
    there = [replica for replica in reassignment.log_dirs if replica.broker_id in existing]
    infos = await admin.describe_replica_log_dirs(there).all()
    return {replica: move_state(target, infos.get(replica)) for replica, target in reassignment.log_dirs.items()}


def _expect_present(states: Mapping[TopicPartitionReplica, MoveState]) -> None:
    """Raises ToolError if a broker is not there to say whether its replica moves. Kafka's tool waits for it, and fails."""
    absent = sorted({replica.broker_id for replica, state in states.items() if state.move is Move.MISSING_REPLICA})
    if absent:
        raise ToolError(f"not in the cluster: broker{_plural(absent)} {','.join(map(str, absent))}")


async def _clear_throttles(admin: AdminClient, reassignment: Reassignment) -> None:
    """Removes the throttles of all brokers: it is not known which of them this reassignment's data came from. A broker that
    is not in the cluster keeps them, because only it takes changes of its configuration. If the file names such a broker, or
    a topic that does not exist, that is an error, after the throttles of the others are gone."""
    broker_ids = (await admin.describe_cluster()).broker_ids
    topics = sorted({partition.topic for partition in reassignment.replicas})
    print(f"Clearing broker-level throttles on broker{_plural(broker_ids)} {','.join(map(str, broker_ids))}")
    await admin.incremental_alter_configs(throttles.without_broker_throttles(broker_ids)).all()
    print(f"Clearing topic-level throttles on topic{_plural(topics)} {','.join(topics)}")
    await admin.incremental_alter_configs(throttles.without_topic_throttles(topics)).all()
    absent = sorted({id_ for replicas in reassignment.replicas.values() for id_ in replicas}.difference(broker_ids))
    if absent:
        ids = ",".join(map(str, absent))
        raise ToolError(
            f"not in the cluster: broker{_plural(absent)} {ids}; to remove the throttles there, use --verify again later"
        )


def _plural(things: list[Any]) -> str:
    return "" if len(things) == 1 else "s"


def _cancel(arguments: argparse.Namespace) -> Work:
    reassignment = _reassignment(arguments)

    async def work(admin: AdminClient) -> None:
        cancelled = await moving.cancel_reassignments(admin, reassignment.replicas)
        if arguments.bootstrap_controller is not None and not reassignment.log_dirs:
            return
        states = await _move_states(admin, reassignment)
        active = {
            replica: state.info.current_log_dir
            for replica, state in states.items()
            if state.move is Move.ACTIVE and state.info.current_log_dir is not None
        }
        if active:
            await moving.execute_moves(admin, active, timeout_ms=_timeout_ms(arguments))
        # A move whose broker is away, or whose directory is offline, is not cancelled: it goes on when that is back.
        _expect_present(states)
        missing = {replica: state for replica, state in states.items() if state.move is Move.MISSING_LOG_DIR}
        offline = await _without_strangers(admin, missing, cancelled)
        if offline:
            raise ToolError(" ".join(move_lines(offline)))
        if not active:
            print("None of the specified partition moves are active.")
        if not arguments.preserve_throttles:
            await _clear_throttles(admin, reassignment)

    return work


async def _without_strangers(
    admin: AdminClient,
    states: Mapping[TopicPartitionReplica, MoveState],
    cancelled: Mapping[TopicPartition, PartitionReassignment],
) -> dict[TopicPartitionReplica, MoveState]:
    """Returns the replicas that their partition has, without those that it was to get from these reassignments: a broker
    whose metadata is a little late may still name them."""
    if not states:
        return {}
    current, _missing = await moving.find_replicas(admin, {replica.topic for replica in states})
    found = {}
    for replica, state in states.items():
        partition = TopicPartition(replica.topic, replica.partition)
        added = cancelled[partition].adding_replicas if partition in cancelled else ()
        if replica.broker_id in current.get(partition, ()) and replica.broker_id not in added:
            found[replica] = state
    return found


def _list(_arguments: argparse.Namespace) -> Work:
    async def work(admin: AdminClient) -> None:
        print("\n".join(ongoing_lines(await admin.list_partition_reassignments())))

    return work


_ACTIONS: Mapping[str, Callable[[argparse.Namespace], Work]] = MappingProxyType(
    {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}
)


if __name__ == "__main__":
    entry()
