"""kafka-cluster: shows the cluster id and unregisters brokers (shell).

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
    parser = ToolParser("kafka-cluster", "Show the cluster's id, or unregister a broker.")
    commands = parser.add_subparsers(dest="action", required=True)
    cluster_id = commands.add_parser("cluster-id")
    unregister = commands.add_parser("unregister")
    unregister.add_argument("-i", "--id", type=int, required=True, help="the broker to unregister")
    for sub_parser in (cluster_id, unregister):
        sub_parser.add_argument("-c", "--config", metavar="FILE", help="properties file with settings of the admin client")
        sub_parser.add_argument("-b", "--bootstrap-server", required=True, metavar="HOST:PORT[,…]")
    arguments = parser.parse_args(argv)
    if arguments.action == "cluster-id":
        return run_tool(lambda: _cluster_id(arguments))
    return run_tool(lambda: _unregister(arguments))


def entry() -> None:
    sys.exit(main())


def _cluster_id(arguments: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> None:
        print(f"Cluster ID: {(await admin.describe_cluster()).cluster_id}")

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
