"""AdminClient: how it finds brokers and the controller, and how it fails. Each scenario runs with simulated seeds and on
real sockets."""

import asyncio
import errno
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from admin.brokers import BrokerNode
from admin.client import AdminClient
from admin.config import AdminConfig
from admin.errors import AdminError, InvalidArgument, InvalidSetting, RequestFailed, TimedOut, UnsupportedRequest
from admin.known_nodes import Role
from admin.topics import NewTopic
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.api_versions import ApiVersion
from common.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from common.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from common.protocol.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from common.protocol.schema import VersionRange
from tests.unit.admin.cluster import QUICK, Answer, FakeCluster, unused_address
from tests.unit.common.metadata.builders import topic_id
from tests.unit.common.net.worlds import HOST, Impostor, Scenario, World, run_simulated, versions_answer

Run = Callable[[Scenario], None]

CLUSTER = DescribeClusterResponse(
    cluster_id="the-cluster",
    controller_id=1,
    brokers=[
        DescribeClusterBroker(broker_id=2, host="b", port=9093),
        DescribeClusterBroker(broker_id=1, host="a", port=9092),
    ],
)
DESCRIBE = {ApiKey.DESCRIBE_CLUSTER: lambda _: CLUSTER}
TOPIC_ID = topic_id(1)
ONE_DIRECTORY = DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="/d1")])


def created(request: CreateTopicsRequest, code: int = ErrorCode.NONE) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics])


# --- finding a node --------------------------------------------------------------------------------------------------


def test_the_first_bootstrap_server_that_answers_leads_to_the_cluster(run: Run) -> None:
    """Nothing listens at the first address. The described brokers are in the order of their ids."""

    async def scenario(world: World) -> None:
        async with (
            FakeCluster(world, [DESCRIBE]) as cluster,
            cluster.admin(unused_address(world), cluster[1].address) as admin,
        ):
            described = await admin.describe_cluster()
            assert (described.cluster_id, described.controller_id, described.broker_ids) == ("the-cluster", 1, [1, 2])
            assert described.brokers[0] == BrokerNode(1, "a", 9092, None)

    run(scenario)


VERSIONS = [ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=12)]
RUBBISH: dict[str, Callable[[int, int], bytes | None]] = {
    "closes in the middle of an answer": lambda number, id_: b"\x00\x00\x00\x20half",
    "wrong correlation id": lambda number, id_: versions_answer(id_ + 7, 3, api_keys=VERSIONS),
    "wrong correlation id after the handshake": lambda number, id_: versions_answer(id_ + number * 7, 3, api_keys=VERSIONS),
    "another protocol": lambda number, id_: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "negative length": lambda number, id_: b"\xff\xff\xff\xff",
    "a frame without a header": lambda number, id_: b"\x00\x00\x00\x02xx",
    "a refused handshake": lambda number, id_: versions_answer(id_, 3, error_code=ErrorCode.INVALID_REQUEST),
    "an answer that cannot be read": lambda number, id_: (
        versions_answer(id_, 3, api_keys=VERSIONS) if number == 0 else b"\x00\x00\x00\x06" + id_.to_bytes(4, "big") + b"xx"
    ),
    "no answer at all": lambda number, id_: None,
}


@pytest.mark.parametrize("answer", RUBBISH.values(), ids=RUBBISH)
def test_a_bootstrap_server_that_talks_rubbish_is_passed_over(run: Run, answer: Callable[[int, int], bytes | None]) -> None:
    """The peer does not speak Kafka's protocol, closes the connection within a response, sends a response to another
    request, or sends nothing. The client uses the next address and logs one warning that names the peer."""

    async def scenario(world: World) -> None:
        def breaking_off(number: int, correlation_id: int) -> bytes | None:
            given = answer(number, correlation_id)
            if given is not None and given.endswith(b"half"):
                world.node("server").call_at(world.node("server").now_ns(), impostor.peers[-1].connection.close)
            return given

        impostor = Impostor(world, breaking_off)
        address = f"{HOST}:{impostor.port}"
        async with FakeCluster(world, [DESCRIBE]) as cluster, cluster.admin(address, cluster[1].address) as admin:
            assert (await admin.describe_cluster()).cluster_id == "the-cluster"
        assert [event["address"] for event in world.logged("node_unavailable")] == [address]
        impostor.close()

    run(scenario)


def test_nobody_answering_is_a_timeout_that_names_call_and_reasons(run: Run) -> None:
    """As in Kafka, the client tries until the call times out. The error names the step that did not finish, and gives the
    reason why each address failed."""

    async def scenario(world: World) -> None:
        first, second = unused_address(world), unused_address(world)
        async with AdminClient(f"{first},{second}", config=QUICK, env=world.node("client")) as admin:
            with pytest.raises(TimedOut) as caught:
                await admin.describe_cluster(timeout_ms=300)
        text = str(caught.value)
        assert text.startswith("Timed out waiting for a node assignment. Call: describeCluster (")
        assert first in text and second in text and "refused" in text
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_a_cluster_that_starts_late_is_found(run: Run) -> None:
    """The bootstrap server refuses connections at first. The call succeeds once the server listens."""

    async def scenario(world: World) -> None:
        address = unused_address(world)
        async with AdminClient(address, config=QUICK, env=world.node("client")) as admin:
            asked = asyncio.ensure_future(admin.describe_cluster())
            await world.until(lambda: world.logged("node_unavailable"))
            async with FakeCluster(world, [DESCRIBE], port=int(address.rpartition(":")[2])):
                assert (await asked).cluster_id == "the-cluster"

    run(scenario)


def test_a_peer_that_serves_no_metadata_is_not_a_broker(run: Run) -> None:
    """A controller is an example of such a peer. Waiting would not help, so the call fails at once."""

    async def scenario(world: World) -> None:
        versions = [ApiVersion(api_key=ApiKey.DESCRIBE_CLUSTER, min_version=0, max_version=1)]
        impostor = Impostor(world, lambda number, id_: versions_answer(id_, 3, api_keys=versions))
        async with AdminClient(f"{HOST}:{impostor.port}", env=world.node("client")) as admin:
            with pytest.raises(UnsupportedRequest, match="does not serve METADATA; is it a broker"):
                await admin.describe_cluster()
        impostor.close()

    run(scenario)


def test_while_all_brokers_are_fenced_the_bootstrap_server_answers(run: Run) -> None:
    """The metadata lists no brokers. The bootstrap server then gets the requests that any broker can answer. A health check
    relies on this."""

    async def scenario(world: World) -> None:
        async with FakeCluster(world, [DESCRIBE]) as cluster, cluster.admin() as admin:
            cluster.hidden.add(1)
            assert (await admin.describe_cluster()).cluster_id == "the-cluster"

    run(scenario)


def test_a_request_goes_to_the_broker_that_it_is_about(run: Run) -> None:
    """Each broker describes only its own directories. The client uses one connection for each broker."""

    async def scenario(world: World) -> None:
        def held(number: int) -> Answer:
            return lambda _: DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=f"/{number}")])

        brokers = [{ApiKey.DESCRIBE_LOG_DIRS: held(number)} for number in (1, 2, 3)]
        async with FakeCluster(world, brokers) as cluster, cluster.admin() as admin:
            for _ in range(2):
                described = await admin.describe_log_dirs([3, 1, 2]).all()
                assert {id_: list(dirs) for id_, dirs in described.items()} == {3: ["/3"], 1: ["/1"], 2: ["/2"]}
            counts = [broker.server.server.connection_count for broker in cluster.brokers.values() if broker.server]
            assert counts == [1, 1, 1]
            assert cluster.metadata_requests == 1

    run(scenario)


def test_a_broker_that_is_not_known_is_waited_for(run: Run) -> None:
    """Broker 2 is fenced at first and answers later. Broker 9 does not exist, and the timeout says so."""

    async def scenario(world: World) -> None:
        answers = {ApiKey.DESCRIBE_LOG_DIRS: lambda _: ONE_DIRECTORY}
        async with FakeCluster(world, [answers, answers]) as cluster, cluster.admin() as admin:
            cluster.hidden.add(2)
            asked = admin.describe_log_dirs([2])
            await world.until(lambda: cluster.metadata_requests > 2)
            assert not asked[2].done()
            cluster.hidden.clear()
            assert list(await asked[2]) == ["/d1"]
            with pytest.raises(TimedOut) as caught:
                await admin.describe_log_dirs([9], timeout_ms=100)[9]
        assert str(caught.value) == (
            "Timed out waiting for a node assignment. Call: describeLogDirs (broker 9 is not in the cluster's metadata)"
        )

    run(scenario)


# --- retries ---------------------------------------------------------------------------------------------------------


def test_the_controller_is_found_again_when_it_has_moved(run: Run) -> None:
    """Broker 1 answers NOT_CONTROLLER and does nothing else. The client fetches new metadata and sends the request to the
    controller that it names."""

    async def scenario(world: World) -> None:
        def refuse(request: CreateTopicsRequest) -> CreateTopicsResponse:
            cluster.controller_id = 2
            return created(request, ErrorCode.NOT_CONTROLLER)

        answers: list[dict[ApiKey, Answer]] = [{ApiKey.CREATE_TOPICS: refuse}, {ApiKey.CREATE_TOPICS: created}]
        async with FakeCluster(world, answers) as cluster, cluster.admin() as admin:
            await admin.create_topics([NewTopic("t")]).all()
            assert [len(broker.asked) for broker in cluster.brokers.values()] == [1, 1]

    run(scenario)


def test_a_cluster_without_a_controller_is_waited_for(run: Run) -> None:
    """The metadata names no controller for a while. The first call times out, the second one succeeds."""

    async def scenario(world: World) -> None:
        async with FakeCluster(world, [{ApiKey.CREATE_TOPICS: created}]) as cluster, cluster.admin() as admin:
            cluster.controller_id = -1
            with pytest.raises(TimedOut, match=r"node assignment\. Call: createTopics \(the cluster has no controller"):
                await admin.create_topics([NewTopic("t")], timeout_ms=100).all()
            asked = admin.create_topics([NewTopic("t")])
            cluster.controller_id = 1
            await asked.all()

    run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE])
def test_a_retriable_error_leads_to_another_attempt(run: Run, code: ErrorCode) -> None:
    """The first two attempts fail with the retriable error, the third one succeeds."""

    async def scenario(world: World) -> None:
        codes = [code, code, ErrorCode.NONE]
        answers: dict[ApiKey, Answer] = {
            ApiKey.UNREGISTER_BROKER: lambda _: UnregisterBrokerResponse(error_code=codes.pop(0))
        }
        async with FakeCluster(world, [answers]) as cluster, cluster.admin() as admin:
            await admin.unregister_broker(3)
            assert cluster[1].asked == [UnregisterBrokerRequest(broker_id=3)] * 3

    run(scenario)


def test_a_final_error_is_raised_with_its_code_and_message(run: Run) -> None:
    """The client tries only once. The error message gives the number of a code that the client does not know."""

    async def scenario(world: World) -> None:
        response = UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message="no broker 3")
        answers: dict[ApiKey, Answer] = {ApiKey.UNREGISTER_BROKER: lambda _: response}
        async with FakeCluster(world, [answers]) as cluster, cluster.admin() as admin:
            with pytest.raises(RequestFailed) as caught:
                await admin.unregister_broker(3)
            assert (caught.value.code, str(caught.value)) == (ErrorCode.BROKER_ID_NOT_REGISTERED, "no broker 3")
            response.error_code, response.error_message = 4711, None
            with pytest.raises(RequestFailed, match="error 4711") as caught:
                await admin.unregister_broker(3)
            assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
            assert len(cluster[1].asked) == 2

    run(scenario)


def test_a_lost_connection_leads_to_another_attempt(run: Run) -> None:
    """The broker closes the connection twice instead of answering. The third attempt gets an answer."""

    async def scenario(world: World) -> None:
        def answer(_request: Any) -> Any:
            if len(cluster[1].asked) < 3:
                cluster[1].drop_connections()
                return cluster.no_answer(_request)
            return ONE_DIRECTORY

        async with FakeCluster(world, [{ApiKey.DESCRIBE_LOG_DIRS: answer}]) as cluster, cluster.admin() as admin:
            assert list(await admin.describe_log_dirs([1])[1]) == ["/d1"]
            assert len(cluster[1].asked) == 3

    run(scenario)


def test_a_slow_broker_is_asked_again_until_the_time_is_over(run: Run) -> None:
    """Each attempt ends when the request timeout expires. The error gives the broker's address and the number of
    attempts."""

    async def scenario(world: World) -> None:
        def answer(request: Any) -> Any:
            return cluster.no_answer(request)

        async with FakeCluster(world, [{ApiKey.DESCRIBE_LOG_DIRS: answer}]) as cluster, cluster.admin() as admin:
            env = world.node("client")
            start_ns = env.now_ns()
            with pytest.raises(TimedOut) as caught:
                await admin.describe_log_dirs([1], timeout_ms=400)[1]
            assert env.now_ns() - start_ns >= 400_000_000
            said = re.match(
                rf"Timed out waiting for an answer of {cluster[1].address} after (\d+) attempts?\. Call: describeLogDirs \(",
                str(caught.value),
            )
            assert said is not None, caught.value
            # The last attempt may end in its handshake, before the broker has read a request.
            assert int(said[1]) - len(cluster[1].asked) in (0, 1)
            assert cluster[1].asked

    run(scenario)


def test_a_slow_call_logs_what_it_waits_for() -> None:
    """A broker that waits for the controller is silent for as long as the call may take. After five seconds the client logs
    one warning with the broker and its errand, and repeats it in the error. A quick call logs nothing."""

    async def scenario(world: World) -> None:
        config = AdminConfig(default_api_timeout_ms=20_000, request_timeout_ms=12_000)

        def answer(request: Any) -> Any:
            return cluster.no_answer(request)

        answers = {ApiKey.UNREGISTER_BROKER: answer, **DESCRIBE}
        async with FakeCluster(world, [answers]) as cluster, cluster.admin(config=config) as admin:
            await admin.describe_cluster()
            env = world.node("client")
            start_ns = env.now_ns()
            call = asyncio.ensure_future(admin.unregister_broker(1))
            await world.until(lambda: world.logged("call_waiting"))
            assert env.now_ns() - start_ns < 6_000_000_000
            with pytest.raises(TimedOut) as caught:
                await call
        waiting_for = f"an answer of {cluster[1].address} (it asks the controller)"
        assert [(event["call"], event["waiting_for"]) for event in world.logged("call_waiting")] == [
            ("unregisterBroker", waiting_for)
        ]
        assert str(caught.value).startswith(
            f"Timed out waiting for {waiting_for} after 2 attempts. Call: unregisterBroker ("
        )

    run_simulated(scenario)


def test_another_broker_answers_for_one_that_died(run: Run) -> None:
    """Broker 1, the bootstrap server, dies, and its connection is closed. Broker 2 answers requests that any broker can
    answer."""

    async def scenario(world: World) -> None:
        async with FakeCluster(world, [DESCRIBE, DESCRIBE]) as cluster, cluster.admin() as admin:
            await admin.describe_cluster()
            assert cluster[1].server is not None
            cluster[1].server.server.close()
            cluster[1].drop_connections()
            assert (await admin.describe_cluster()).cluster_id == "the-cluster"
            assert len(cluster[2].asked) >= 1

    run(scenario)


def test_pauses_between_attempts_double_up_to_their_limit() -> None:
    """The pauses follow Kafka's retry.backoff.ms and retry.backoff.max.ms, with a jitter of 20 %."""

    async def scenario(world: World) -> None:
        at_ns: list[int] = []

        def answer(_request: Any) -> UnregisterBrokerResponse:
            at_ns.append(world.node("client").now_ns())
            return UnregisterBrokerResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)

        async with (
            FakeCluster(world, [{ApiKey.UNREGISTER_BROKER: answer}]) as cluster,
            cluster.admin(config=AdminConfig()) as admin,
        ):
            with pytest.raises(TimedOut, match="Call: unregisterBroker"):
                await admin.unregister_broker(1)
        assert at_ns[-1] - at_ns[0] > 58_000_000_000
        pauses_ms = [(later - earlier) / 1e6 for earlier, later in pairwise(at_ns)]
        for pause_ms, expected in zip(pauses_ms[:7], (100, 200, 400, 800, 1000, 1000, 1000), strict=True):
            assert 0.8 * expected <= pause_ms <= 1.25 * expected

    run_simulated(scenario)


# --- what cannot be sent ---------------------------------------------------------------------------------------------


def test_an_api_or_a_version_that_the_broker_lacks_is_an_error_at_once(run: Run) -> None:
    """The error names the broker and the API. Deleting topics by id, for example, needs a version that the broker may not
    have."""

    async def scenario(world: World) -> None:
        advertised = {
            ApiKey.API_VERSIONS: VersionRange(0, 4),
            ApiKey.METADATA: VersionRange(0, 12),
            ApiKey.DELETE_TOPICS: VersionRange(1, 5),
        }
        cluster = FakeCluster(world, [{ApiKey.DELETE_TOPICS: lambda _: None}], advertised=advertised)
        async with cluster, cluster.admin() as admin:
            with pytest.raises(UnsupportedRequest, match=r"does not serve DESCRIBE_CLUSTER \(Call: describeCluster\)"):
                await admin.describe_cluster()
            with pytest.raises(UnsupportedRequest, match="does not serve version 6 of DELETE_TOPICS"):
                await admin.delete_topics([TOPIC_ID]).all()

    run(scenario)


def test_a_number_that_does_not_fit_its_field_is_the_callers_mistake(run: Run) -> None:
    """Nothing is sent, and the connection remains usable."""

    async def scenario(world: World) -> None:
        async with FakeCluster(world, [DESCRIBE | {ApiKey.CREATE_TOPICS: created}]) as cluster, cluster.admin() as admin:
            with pytest.raises(InvalidArgument, match="cannot encode the request: CreateTopicsRequest"):
                await admin.create_topics([NewTopic("t", replication_factor=70_000)]).all()
            assert (await admin.describe_cluster()).cluster_id == "the-cluster"
            assert [type(request).__name__ for request in cluster[1].asked] == ["DescribeClusterRequest"]

    run(scenario)


def test_any_request_can_be_sent(run: Run) -> None:
    """`send` returns the response unchanged, even if it contains errors."""

    async def scenario(world: World) -> None:
        response = UnregisterBrokerResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
        async with (
            FakeCluster(world, [{ApiKey.UNREGISTER_BROKER: lambda _: response}]) as cluster,
            cluster.admin() as admin,
        ):
            assert await admin.send(UnregisterBrokerRequest(broker_id=2), Role.CONTROLLER) == response

    run(scenario)


# --- closing the client ----------------------------------------------------------------------------------------------


def test_closing_fails_what_is_still_waiting(run: Run) -> None:
    """Closing the client fails the futures of a call for several brokers, and a coroutine that another task awaits. Both
    fail at once with the name of the call."""

    async def scenario(world: World) -> None:
        def answer(request: Any) -> Any:
            return cluster.no_answer(request)

        answers = {ApiKey.DESCRIBE_LOG_DIRS: answer, ApiKey.UNREGISTER_BROKER: answer}
        async with FakeCluster(world, [answers]) as cluster:
            async with cluster.admin(config=AdminConfig()) as admin:
                described = admin.describe_log_dirs([1])
                other = asyncio.ensure_future(admin.unregister_broker(7))
                await world.until(lambda: len(cluster[1].asked) == 2)
                unstarted = admin.describe_log_dirs([1])
            for future, name in ((described[1], "describeLogDirs"), (unstarted[1], "describeLogDirs")):
                with pytest.raises(TimedOut, match=rf"^The AdminClient was closed\. Call: {name}$"):
                    await future
            with pytest.raises(TimedOut, match=r"^The AdminClient was closed\. Call: unregisterBroker$"):
                await other

    run(scenario)


def test_an_exception_of_the_block_comes_out_as_it_is(run: Run) -> None:
    """The exception is not wrapped into an exception group, although the client has a task group and calls are in
    progress."""

    async def scenario(world: World) -> None:
        def answer(request: Any) -> Any:
            return cluster.no_answer(request)

        async with FakeCluster(world, [{ApiKey.DESCRIBE_LOG_DIRS: answer}]) as cluster:

            async def program() -> None:
                async with cluster.admin() as admin:
                    admin.describe_log_dirs([1])
                    await world.until(lambda: cluster[1].asked)
                    raise OSError(errno.EIO, "of the program")

            with pytest.raises(OSError, match="of the program"):
                await program()

    run(scenario)


def test_a_client_cannot_be_used_outside_of_its_block() -> None:
    """Using the client outside its `async with` block is a programming error, so it raises RuntimeError."""

    async def scenario(world: World) -> None:
        admin = AdminClient("h:1", env=world.node("client"))
        with pytest.raises(RuntimeError, match="inside its `async with` block only"):
            await admin.describe_cluster()
        with pytest.raises(RuntimeError, match="inside its `async with` block only"):
            admin.describe_log_dirs([1])

    run_simulated(scenario)


def test_all_results_or_the_first_error(run: Run) -> None:
    """`all` raises the error of the first key that failed. If no caller looks at a key, asyncio does not log the key's
    error."""

    async def scenario(world: World) -> None:
        def answer(request: CreateTopicsRequest) -> CreateTopicsResponse:
            response = created(request)
            response.topics[1].error_code, response.topics[1].error_message = ErrorCode.TOPIC_ALREADY_EXISTS, "b exists"
            response.topics[2].error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
            return response

        async with FakeCluster(world, [{ApiKey.CREATE_TOPICS: answer}]) as cluster, cluster.admin() as admin:
            results = admin.create_topics([NewTopic("a"), NewTopic("b"), NewTopic("c")])
            assert list(results) == ["a", "b", "c"]
            assert len(results) == 3
            with pytest.raises(AdminError, match="b exists"):
                await results.all()
            assert (await results["a"]).num_partitions == -1

    run(scenario)


@pytest.mark.parametrize("servers", ["", ",", "host", "host:port", "host:99999", "::1:9092", ":9092", "host:0", []])
def test_bootstrap_servers_that_are_none(servers: str | list[str]) -> None:
    """The error explains what is wrong. It is raised before the client connects."""
    with pytest.raises(InvalidSetting, match="bootstrap server") as caught:
        AdminClient(servers)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
