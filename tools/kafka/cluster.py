"""kafka-cluster: shows the cluster id and unregisters brokers (shell).

Counterpart of Kafka's ClusterTool. Containers use `cluster-id` as a health check, so it needs nothing but brokers and
imports little. Any broker can answer, even if another broker is to be unregistered.
"""

import sys

from common.protocol.messages.metadata import MetadataResponse
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from tools.arguments import ToolParser
from tools.errors import run_tool
from tools.kafka.admin_client import AdminClient, check


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    parser = ToolParser("kafka-cluster", "Show the cluster's id, or unregister a broker.")
    commands = parser.add_subparsers(dest="action", required=True)
    cluster_id = commands.add_parser("cluster-id")
    unregister = commands.add_parser("unregister")
    unregister.add_argument("-i", "--id", type=int, required=True, help="the broker to unregister")
    for sub_parser in (cluster_id, unregister):
        sub_parser.add_argument("-b", "--bootstrap-server", required=True, metavar="HOST:PORT[,…]")
    arguments = parser.parse_args(argv)
    if arguments.action == "cluster-id":
        return run_tool(lambda: _cluster_id(arguments.bootstrap_server))
    return run_tool(lambda: _unregister(arguments.bootstrap_server, arguments.id))


def entry() -> None:
    sys.exit(main())


def _cluster_id(bootstrap: str) -> int:
    with AdminClient(bootstrap) as client:
        metadata: MetadataResponse = client.metadata([])
    print(f"Cluster ID: {metadata.cluster_id}")
    return 0


def _unregister(bootstrap: str, broker_id: int) -> int:
    with AdminClient(bootstrap) as client:
        response: UnregisterBrokerResponse = client.send(UnregisterBrokerRequest(broker_id=broker_id))
    check(response.error_code, response.error_message, f"broker {broker_id} cannot be unregistered")
    print(f"Broker {broker_id} is no longer registered.")
    return 0


if __name__ == "__main__":
    entry()
