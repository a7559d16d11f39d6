"""An AdminClient of the controllers (KIP-919): it finds the active one by DescribeCluster, and never asks a broker."""

from collections.abc import Callable

import pytest

from admin.client import AdminClient
from admin.errors import AdminError, InvalidArgument, RequestFailed, UnsupportedRequest
from common.configuration.endpoints import HostPort
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    EndpointType,
)
from common.protocol.messages.unregister_broker import UnregisterBrokerResponse
from tests.unit.admin.cluster import QUICK, Answer, FakeCluster
from tests.unit.common.net.worlds import Scenario, World

Run = Callable[[Scenario], None]


def described(cluster: FakeCluster, controller_id: int) -> Answer:
    """Answers DescribeCluster with the nodes 1 and 2 of the cluster as controllers."""

    def answer(request: DescribeClusterRequest) -> DescribeClusterResponse:
        assert request.endpoint_type == EndpointType.CONTROLLER
        addresses = {number: cluster[number].address.rpartition(":") for number in (1, 2)}
        return DescribeClusterResponse(
            endpoint_type=EndpointType.CONTROLLER,
            cluster_id="the-cluster",
            controller_id=controller_id,
            brokers=[
                DescribeClusterBroker(broker_id=number, host=host, port=int(port))
                for number, (host, _, port) in addresses.items()
            ],
        )

    return answer


def client(world: World, *addresses: str) -> AdminClient:
    return AdminClient(",".join(addresses), config=QUICK, env=world.node("client"), endpoint_type=EndpointType.CONTROLLER)


def test_requests_go_to_the_active_controller(run: Run) -> None:
    """The bootstrap controller is a standby, which names the other one. A request for a certain controller goes there."""

    async def scenario(world: World) -> None:
        def taken(_request: object) -> UnregisterBrokerResponse:
            return UnregisterBrokerResponse()

        cluster = FakeCluster(world, [{ApiKey.DESCRIBE_CLUSTER: taken, ApiKey.UNREGISTER_BROKER: taken} for _ in range(2)])
        async with cluster:
            for number in (1, 2):
                cluster[number].answers[ApiKey.DESCRIBE_CLUSTER] = described(cluster, controller_id=2)
            async with client(world, cluster[1].address) as admin:
                await admin.unregister_broker(7)
                found = await admin.describe_cluster()
            assert (found.cluster_id, found.controller_id, found.broker_ids) == ("the-cluster", 2, [1, 2])
            assert [type(each).__name__ for each in cluster[1].asked] == ["DescribeClusterRequest"]
            assert [type(each).__name__ for each in cluster[2].asked] == [
                "UnregisterBrokerRequest",
                "DescribeClusterRequest",
            ]

    run(scenario)


def test_a_broker_is_no_controller(run: Run) -> None:
    """A broker answers MISMATCHED_ENDPOINT_TYPE. The call fails at once, with the address in the message."""

    async def scenario(world: World) -> None:
        refused = DescribeClusterResponse(error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message="a broker")
        cluster = FakeCluster(world, [{ApiKey.DESCRIBE_CLUSTER: lambda _: refused}])
        async with cluster, client(world, cluster[1].address) as admin:
            with pytest.raises(
                RequestFailed, match=f"{cluster[1].address} does not name the controllers: a broker"
            ) as caught:
                await admin.describe_cluster()
            assert caught.value.code is ErrorCode.MISMATCHED_ENDPOINT_TYPE
            assert len(cluster[1].asked) == 1

    run(scenario)


def test_an_old_controller_does_not_know_the_request(run: Run) -> None:
    """Controllers before Kafka 3.7 do not serve DescribeCluster."""

    async def scenario(world: World) -> None:
        cluster = FakeCluster(world, [{ApiKey.UNREGISTER_BROKER: lambda _: UnregisterBrokerResponse()}])
        async with cluster, client(world, cluster[1].address) as admin:
            with pytest.raises(UnsupportedRequest, match="does not serve DESCRIBE_CLUSTER; is it a controller"):
                await admin.unregister_broker(7)

    run(scenario)


def test_some_calls_need_brokers(run: Run) -> None:
    """They fail before anything is sent."""

    async def scenario(world: World) -> None:
        async with client(world, str(HostPort("nowhere", 1))) as admin:
            with pytest.raises(
                AdminError, match=r"controllers do not take this call; ask brokers \(Call: listTopics\)"
            ) as caught:
                await admin.list_topics()
            assert caught.value.code is ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            with pytest.raises(InvalidArgument, match="do not describe fenced brokers"):
                await admin.describe_cluster(include_fenced_brokers=True)

    run(scenario)
