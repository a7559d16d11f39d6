"""`diskraft disks`: the disks of a cluster, moves between them, and loop-mounted disks for trying out failures (shell).

`list` and `move` ask the brokers. The ids of directories are in no answer of a broker, so `list` reads them from the
meta.properties of those directories that are on this machine. `move` is a kafka-reassign-partitions of one replica that
needs no file.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from admin.brokers import ClusterDescription
from admin.client import AdminClient
from admin.errors import AdminError, InvalidArgument
from admin.log_dirs import LogDirInfo
from admin.partitions import TopicPartition, TopicPartitionReplica
from admin.topics import TopicDescription, leaders_of
from common.ids import uuid_text
from common.protocol.errors import ErrorCode
from common.storage.meta_properties import MalformedMetaProperties, parse_meta_properties
from common.storage.names import META_PROPERTIES_FILE
from tools import disk_overview
from tools.arguments import add_bootstrap, seconds
from tools.errors import ToolError
from tools.kafka import reassignment as moving
from tools.kafka.admin_run import run_admin
from tools.kafka.reassignment_json import Reassignment
from tools.lab import disks as lab
from tools.text_table import text_table

TIMEOUT_MS: Final = 10_000
# How long one broker may keep the list of all disks waiting.
ANSWER_MS: Final = 10_000
WATCH_SECONDS: Final = 2.0
CLEAR_SCREEN: Final = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = commands.add_parser("list", help="show the disks of all brokers, and what moves between them")
    add_bootstrap(listing)
    listing.add_argument("--format", choices=("text", "json"), default="text", help="json: one line (default text)")
    listing.add_argument(
        "--watch", type=seconds, nargs="?", const=WATCH_SECONDS, metavar="S", help="again every S seconds (2), until Ctrl-C"
    )
    move = commands.add_parser("move", help="move a replica to a disk of the same or of another broker")
    add_bootstrap(move)
    move.add_argument("partition", metavar="TOPIC-PARTITION", help="such as orders-0")
    move.add_argument("place", metavar="BROKER:DIR", help="the broker's id and one of its log.dirs")
    move.add_argument(
        "--from",
        dest="giver",
        type=int,
        metavar="BROKER",
        help="whose replica moves, if BROKER has none and there are several",
    )
    move.add_argument(
        "--timeout",
        type=int,
        default=TIMEOUT_MS,
        metavar="MS",
        help=f"wait so long for a new replica (default {TIMEOUT_MS})",
    )
    lab.add_commands(commands)


def run(arguments: argparse.Namespace) -> int:
    """Runs one subcommand. Raises ToolError."""
    match arguments.action:
        case "list":
            return _list(arguments)
        case "move":
            return _move(arguments)
        case _:
            return lab.run(arguments)


# --- list ------------------------------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    show = _print_json if arguments.format == "json" else _print_table

    async def work(admin: AdminClient) -> None:
        while True:
            show(await _disks(admin), arguments.watch is not None)
            if arguments.watch is None:
                return
            await asyncio.sleep(arguments.watch)

    run_admin(arguments.bootstrap_server, work, command_config=arguments.command_config)
    return 0


async def _disks(admin: AdminClient) -> list[disk_overview.Disk]:
    cluster = await _cluster(admin)
    for broker in cluster.brokers:
        if broker.is_fenced:
            print(f"broker {broker.broker_id} is down or fenced, so its disks are not shown", file=sys.stderr)
    in_service = [broker.broker_id for broker in cluster.brokers if not broker.is_fenced]
    described = admin.describe_log_dirs(in_service, timeout_ms=ANSWER_MS)
    leaders = leaders_of(await _topics(admin))
    log_dirs = {}
    for broker_id, future in described.items():
        try:
            log_dirs[broker_id] = await future
        except AdminError as error:
            # The other brokers' disks are worth a look all the same, perhaps more than ever.
            print(f"broker {broker_id} does not describe its log directories: {error}", file=sys.stderr)
    return disk_overview.disks(log_dirs, leaders, _directory_ids(cluster.cluster_id, log_dirs))


async def _cluster(admin: AdminClient) -> ClusterDescription:
    try:
        return await admin.describe_cluster(include_fenced_brokers=True)
    except InvalidArgument:
        # A broker of Apache Kafka before 4.1 does not say which are fenced.
        return await admin.describe_cluster()


async def _topics(admin: AdminClient) -> list[TopicDescription]:
    found = []
    for future in admin.describe_topics([topic.name for topic in await admin.list_topics()]).values():
        try:
            found.append(await future)
        except AdminError as error:
            # The topic was deleted meanwhile.
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
    return found


def _directory_ids(cluster_id: str, log_dirs: Mapping[int, Mapping[str, LogDirInfo]]) -> dict[tuple[int, str], str]:
    """Returns the ids of the online directories that are on this machine."""
    found = {}
    for broker_id, paths in log_dirs.items():
        for path, log_dir in paths.items():
            directory_id = _directory_id(path, cluster_id, broker_id) if log_dir.is_online else None
            if directory_id is not None:
                found[broker_id, path] = directory_id
    return found


def _directory_id(path: str, cluster_id: str, broker_id: int) -> str | None:
    try:
        properties = parse_meta_properties((Path(path) / META_PROPERTIES_FILE).read_bytes())
    except (OSError, MalformedMetaProperties):
        return None
    # Another machine's broker may have the same path as a broker of this one.
    if (properties.cluster_id, properties.node_id) != (cluster_id, broker_id) or properties.directory_id is None:
        return None
    return uuid_text(properties.directory_id)


def _print_json(disks: Iterable[disk_overview.Disk], _is_watched: bool) -> None:
    print(json.dumps(disk_overview.as_json(disks), separators=(",", ":")), flush=True)


def _print_table(disks: Iterable[disk_overview.Disk], is_watched: bool) -> None:
    if is_watched and sys.stdout.isatty():
        print(CLEAR_SCREEN, end="")
    rows = [disk_overview.COLUMNS, *map(disk_overview.as_row, disks)]
    sizes = [disk_overview.COLUMNS.index(column) for column in ("total", "used")]
    print(text_table(rows, right=sizes), end="", flush=True)


# --- move ------------------------------------------------------------------------------------------------------------


def _move(arguments: argparse.Namespace) -> int:
    partition, (broker_id, path) = _partition(arguments.partition), _place(arguments.place)

    async def work(admin: AdminClient) -> None:
        await moving.check_brokers(admin, [broker_id])
        replicas = (await moving.current_replicas(admin, [partition]))[partition]
        wishes = {TopicPartitionReplica(partition.topic, partition.partition, broker_id): path}
        target = _target(partition, replicas, broker_id, arguments.giver)
        moving.check_log_dirs(wishes, await admin.describe_log_dirs([broker_id]).all())
        if target == replicas:
            await moving.execute_moves(admin, wishes, timeout_ms=arguments.timeout)
            return
        if await admin.list_partition_reassignments([partition]):
            raise ToolError(f"{partition} is already being reassigned; wait, or cancel it with kafka-reassign-partitions")
        await moving.execute_reassignment(
            admin,
            Reassignment({partition: target}, wishes),
            allow_replication_factor_change=False,
            timeout_ms=arguments.timeout,
        )

    run_admin(arguments.bootstrap_server, work, command_config=arguments.command_config)
    return 0


def _partition(text: str) -> TopicPartition:
    match = re.fullmatch(r"(.+)-([0-9]{1,9})", text, re.ASCII)
    if match is None:
        raise ToolError(f"{text} is not a partition; it takes TOPIC-PARTITION, such as orders-0")
    return TopicPartition(match[1], int(match[2]))


def _place(text: str) -> tuple[int, str]:
    match = re.fullmatch(r"([0-9]{1,9}):(/.*)", text, re.ASCII)
    if match is None:
        raise ToolError(f"{text} is not a disk; it takes BROKER:DIR with an absolute path, such as 1:/disk-2")
    return int(match[1]), match[2]


def _target(partition: TopicPartition, replicas: Sequence[int], broker_id: int, giver: int | None) -> tuple[int, ...]:
    """Returns the replicas with this broker among them, in place of the one that gives its replica away."""
    listed = ",".join(map(str, replicas))
    if broker_id in replicas:
        if giver not in (None, broker_id):
            raise ToolError(f"broker {broker_id} already has a replica of {partition}, which is on brokers {listed}")
        return tuple(replicas)
    if giver is None and len(replicas) > 1:
        raise ToolError(f"{partition} is on brokers {listed}; --from says which of them moves to broker {broker_id}")
    leaving = replicas[0] if giver is None else giver
    if leaving not in replicas:
        raise ToolError(f"broker {leaving} has no replica of {partition}, which is on brokers {listed}")
    return tuple(broker_id if each == leaving else each for each in replicas)
