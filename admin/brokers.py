"""The cluster and its brokers as an AdminClient shows them (core)."""

from dataclasses import dataclass

from common.protocol.messages.describe_cluster import DescribeClusterResponse


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker and the address that clients connect to. Counterpart of Kafka's Node."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int | None
    """The broker that accepts requests for the controller; None if the cluster has no controller."""
    brokers: tuple[BrokerNode, ...]
    """In the order of their ids. Fenced brokers are there only if they were asked for."""

    @property
    def broker_ids(self) -> list[int]:
        return [broker.broker_id for broker in self.brokers]


def cluster_description(response: DescribeClusterResponse) -> ClusterDescription:
    brokers = sorted(response.brokers, key=lambda each: each.broker_id)
    return ClusterDescription(
        response.cluster_id,
        response.controller_id if response.controller_id >= 0 else None,
        tuple(BrokerNode(each.broker_id, each.host, each.port, each.rack, each.is_fenced) for each in brokers),
    )
