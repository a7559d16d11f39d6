"""kafka-cluster: shows the cluster id and the brokers' addresses, and unregisters brokers (shell).

Counterpart of Kafka's ClusterTool. Containers use `cluster-id` as a health check, so it must work as long as one broker
answers.
"""

import argparse
import sys

from admin.client import AdminClient
from admin.errors import RequestFailed
from tools.arguments import ToolParser
from tools.errors import ToolError, run_tool
from tools.kafka.admin_run import run_admin


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    actions = {"cluster-id": _cluster_id, "unregister": _unregister, "list-endpoints": _list_endpoints}
    return run_tool(lambda: actions[arguments.action](arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-cluster", "Show the cluster's id or its brokers' addresses, or unregister a broker.")
    commands = parser.add_subparsers(dest="action", required=True)
    cluster_id = commands.add_parser("cluster-id", help="show the cluster's id")
    unregister = commands.add_parser("unregister", help="remove the registration of a broker that will not come back")
    unregister.add_argument("-i", "--id", type=int, required=True, help="the broker to unregister")
    endpoints = commands.add_parser("list-endpoints", help="show the brokers with their addresses")
    endpoints.add_argument("--include-fenced-brokers", action="store_true", help="show fenced brokers too")
    for sub_parser in (cluster_id, unregister, endpoints):
        sub_parser.add_argument("-c", "--config", metavar="FILE", help="properties file with settings of the admin client")
        sub_parser.add_argument("-b", "--bootstrap-server", required=True, metavar="HOST:PORT[,…]")
    return parser


def _cluster_id(arguments: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> None:
        print(f"Cluster ID: {(await admin.describe_cluster()).cluster_id}")

    run_admin(arguments.bootstrap_server, work, command_config=arguments.config)
    return 0


def _list_endpoints(arguments: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> None:
        found = (await admin.describe_cluster(include_fenced_brokers=arguments.include_fenced_brokers)).brokers
        rows = [
            ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"),
            *(
                (
                    str(each.broker_id),
                    each.host,
                    str(each.port),
                    each.rack or "null",
                    "fenced" if each.is_fenced else "unfenced",
                    "broker",
                )
                for each in found
            ),
        ]
        host_width = max(len(each.host) for each in found) if found else 0
        widths = (10, host_width, 10, max([10, *(len(each.rack or "") for each in found)]), 10, 15)
        for row in rows:
            print(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))

    run_admin(arguments.bootstrap_server, work, command_config=arguments.config)
    return 0


def _unregister(arguments: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> None:
        try:
            await admin.unregister_broker(arguments.id)
        except RequestFailed as error:
            raise ToolError(f"broker {arguments.id} cannot be unregistered: {error}") from error
        print(f"Broker {arguments.id} is no longer registered.")

    run_admin(arguments.bootstrap_server, work, command_config=arguments.config)
    return 0


if __name__ == "__main__":
    entry()
