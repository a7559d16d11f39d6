"""kafka-metadata-quorum: shows the controllers and the followers of the metadata log, with Kafka's output (shell).

Counterpart of Kafka's MetadataQuorumCommand. A cluster has one controller in this version, so there are no commands to add
or remove one.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable

from admin.client import AdminClient
from admin.quorum import QuorumDescription, QuorumReplica
from common.ids import ZERO_UUID, uuid_text
from common.time_units import NS_PER_MS
from tools.arguments import ToolParser, add_bootstrap
from tools.errors import run_tool
from tools.kafka.admin_run import run_admin

COLUMNS = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")
UNKNOWN_TIME = -1


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    parser = command_line()
    arguments = parser.parse_args(argv)
    if arguments.human_readable and arguments.status:
        parser.error("--human-readable is for describe --replication")
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-metadata-quorum", "Show the state of the metadata quorum.")
    add_bootstrap(parser, or_controllers=True)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    describe = actions.add_parser("describe", help="show the leader, the voters and the observers")
    what = describe.add_mutually_exclusive_group(required=True)
    what.add_argument("--status", action="store_true", help="the leader, the high watermark and who takes part")
    what.add_argument("--replication", action="store_true", help="how far each node has followed the metadata log")
    describe.add_argument(
        "-hr", "--human-readable", action="store_true", help="with --replication: times as how long ago they were"
    )
    return parser


def _run(arguments: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> None:
        quorum = await admin.describe_metadata_quorum()
        if arguments.status:
            _print_status((await admin.describe_cluster()).cluster_id, quorum)
        else:
            now_ms = time.time_ns() // NS_PER_MS if arguments.human_readable else None
            _print_replication(quorum, now_ms)

    run_admin(
        arguments.bootstrap_server,
        work,
        command_config=arguments.command_config,
        bootstrap_controllers=arguments.bootstrap_controller,
    )
    return 0


# --- status ----------------------------------------------------------------------------------------------------------


def _print_status(cluster_id: str, quorum: QuorumDescription) -> None:
    lag, lag_ms = _follower_lag(quorum)
    for name, value in (
        ("ClusterId", cluster_id),
        ("LeaderId", quorum.leader_id),
        ("LeaderEpoch", quorum.leader_epoch),
        ("HighWatermark", quorum.high_watermark),
        ("MaxFollowerLag", lag),
        ("MaxFollowerLagTimeMs", lag_ms),
        ("CurrentVoters", _members(quorum.voters)),
        ("CurrentObservers", _members(quorum.observers)),
    ):
        print(f"{name + ':':<23} {value}")


def _follower_lag(quorum: QuorumDescription) -> tuple[int, int]:
    """Returns how many records, and how many milliseconds, the slowest voter is behind the leader."""
    leader = quorum.leader
    if leader is None:
        return UNKNOWN_TIME, UNKNOWN_TIME
    slowest = min(quorum.voters, key=lambda each: each.log_end_offset)
    lag = leader.log_end_offset - slowest.log_end_offset
    if slowest == leader:
        return lag, 0
    if leader.last_caught_up_ms is None or slowest.last_caught_up_ms is None:
        return lag, UNKNOWN_TIME
    return lag, leader.last_caught_up_ms - slowest.last_caught_up_ms


def _members(replicas: Iterable[QuorumReplica]) -> str:
    members = []
    for replica in replicas:
        directory_id = None if replica.directory_id == ZERO_UUID else uuid_text(replica.directory_id)
        member: dict[str, object] = {"id": replica.replica_id, "directoryId": directory_id}
        if replica.endpoints:
            member["endpoints"] = replica.endpoints
        members.append(member)
    return json.dumps(members)


# --- replication -----------------------------------------------------------------------------------------------------


def _print_replication(quorum: QuorumDescription, now_ms: int | None) -> None:
    rows = [COLUMNS]
    end_offset = quorum.high_watermark if quorum.leader is None else quorum.leader.log_end_offset
    leader = [replica for replica in quorum.voters if replica.replica_id == quorum.leader_id]
    followers = [replica for replica in quorum.voters if replica.replica_id != quorum.leader_id]
    for status, replicas in (("Leader", leader), ("Follower", followers), ("Observer", quorum.observers)):
        rows += (
            (
                str(replica.replica_id),
                uuid_text(replica.directory_id),
                str(replica.log_end_offset),
                str(end_offset - replica.log_end_offset),
                _time(replica.last_fetch_ms, now_ms),
                _time(replica.last_caught_up_ms, now_ms),
                status,
            )
            for replica in replicas
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)))


def _time(when_ms: int | None, now_ms: int | None) -> str:
    if when_ms is None:
        return str(UNKNOWN_TIME)
    return str(when_ms) if now_ms is None else f"{now_ms - when_ms} ms ago"


if __name__ == "__main__":
    entry()
