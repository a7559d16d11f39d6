"""kafka-cluster: shows the cluster id and the addresses of brokers or controllers, and unregisters brokers (shell).

Counterpart of Kafka's ClusterTool. Containers use `cluster-id` as a health check, so it must work as long as one broker
answers.
"""

import argparse
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from admin.brokers import BrokerNode
from admin.client import AdminClient
from admin.errors import RequestFailed
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, numbering_of_level
from tools.arguments import ToolParser, add_either_bootstrap, int32
from tools.errors import ToolError, run_tool
from tools.kafka.admin_run import run_admin


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    actions = {
        "cluster-id": _cluster_id,
        "unregister": _unregister,
        "list-endpoints": _list_endpoints,
        "directory-numbering": _directory_numbering,
    }
    return run_tool(lambda: actions[arguments.action](arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-cluster", "Show the cluster's id or its brokers' addresses, or unregister a broker.")
    commands = parser.add_subparsers(dest="action", required=True)
    cluster_id = commands.add_parser("cluster-id", help="show the cluster's id")
    unregister = commands.add_parser("unregister", help="remove the registration of a broker that will not come back")
    unregister.add_argument("-i", "--id", type=int32, required=True, help="the broker to unregister")
    endpoints = commands.add_parser("list-endpoints", help="show the brokers, or the controllers, with their addresses")
    endpoints.add_argument("--include-fenced-brokers", action="store_true", help="show fenced brokers too")
    numbering = commands.add_parser("directory-numbering", help="show the numbers of reserved directory ids that are used")
    for sub_parser in (cluster_id, unregister, endpoints, numbering):
        sub_parser.add_argument("-c", "--config", metavar="FILE", help="properties file with settings of the admin client")
        add_either_bootstrap(sub_parser, "-b", "-C")
    return parser


def _cluster_id(arguments: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> None:
        print(f"Cluster ID: {(await admin.describe_cluster()).cluster_id}")

    _run(arguments, work)
    return 0


def _directory_numbering(arguments: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> None:
        level = (await admin.describe_features()).finalized.get(DIRECTORY_NUMBERING_FEATURE, 0)
        print(f"Directory numbering: {numbering_of_level(level).value}")

    _run(arguments, work)
    return 0


def _list_endpoints(arguments: argparse.Namespace) -> int:
    is_controllers = arguments.bootstrap_controller is not None
    if is_controllers and arguments.include_fenced_brokers:
        raise ToolError("The option --include-fenced-brokers is only supported with --bootstrap-server option")

    async def work(admin: AdminClient) -> None:
        found = (await admin.describe_cluster(include_fenced_brokers=arguments.include_fenced_brokers)).brokers
        host_width = max(len(each.host) for each in found) if found else 0
        rack_width = max([10, *(len(each.rack or "") for each in found)])
        columns: list[tuple[str, int, Callable[[BrokerNode], str]]] = [
            ("ID", 10, lambda node: str(node.broker_id)),
            ("HOST", host_width, lambda node: node.host),
            ("PORT", 10, lambda node: str(node.port)),
            ("RACK", rack_width, lambda node: node.rack or "null"),
            ("STATE", 10, lambda node: "fenced" if node.is_fenced else "unfenced"),
            ("ENDPOINT_TYPE", 15, lambda _: "controller" if is_controllers else "broker"),
        ]
        if is_controllers:
            # A controller has no such state, and Kafka's tool has no such column.
            columns = [column for column in columns if column[0] != "STATE"]
        print(" ".join(name.ljust(width) for name, width, _ in columns))
        for node in found:
            print(" ".join(cell(node).ljust(width) for _, width, cell in columns))

    _run(arguments, work)
    return 0


def _unregister(arguments: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> None:
        try:
            await admin.unregister_broker(arguments.id)
        except RequestFailed as error:
            raise ToolError(f"broker {arguments.id} cannot be unregistered: {error}") from error
        print(f"Broker {arguments.id} is no longer registered.")

    _run(arguments, work)
    return 0


def _run(arguments: argparse.Namespace, work: Callable[[AdminClient], Coroutine[Any, Any, None]]) -> None:
    run_admin(
        arguments.bootstrap_server,
        work,
        command_config=arguments.config,
        bootstrap_controllers=arguments.bootstrap_controller,
    )


if __name__ == "__main__":
    entry()
