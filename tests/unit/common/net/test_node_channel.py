"""NodeChannel: versions, concurrent requests, and every way in which a response can fail to arrive."""

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from common.net.node_channel import BACKOFF_MAX_NS, ChannelError, NotServed
from common.net.request_context import RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.errors import EncodeError, ErrorCode
from common.protocol.framing import encode_response_frame
from common.protocol.messages.api_versions import ApiVersion
from common.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from common.protocol.messages.produce import ProduceRequest
from common.protocol.schema import VersionRange
from common.time_units import NS_PER_S
from tests.unit.common.net.worlds import (
    HOST,
    Channel,
    Gate,
    Impostor,
    RawPeer,
    Scenario,
    Server,
    World,
    echo_name,
    run_simulated,
    versions_answer,
)

Run = Callable[[Scenario], None]
METADATA = {ApiKey.METADATA: echo_name}


ALL_KEYS = [ApiVersion(api_key=ApiKey.METADATA, min_version=0, max_version=12)]


def test_requests_are_answered_whatever_their_order(run: Run) -> None:
    # Many requests at once on one connection; each gets its own response.
    async def scenario(world: World) -> None:
        connections = 0

        def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
            assert context.client_id == "test"
            return echo_name(context, request)

        async with Server(world, {ApiKey.METADATA: handle}) as server, Channel(world, server.port) as channel:
            assert not channel.channel.is_connected
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(channel.ask(f"name {number}")) for number in range(50)]
            assert [task.result() for task in asked] == [f"name {number}" for number in range(50)]
            assert channel.channel.is_connected
            assert channel.channel.version_of(ApiKey.METADATA) == 13
            connections = server.server.connection_count
        assert connections == 1

    run(scenario)


def test_the_highest_common_version_is_used(run: Run) -> None:
    # A request uses the highest version that both sides support, or the version that the caller asks for. A version that
    # the server does not serve raises NotServed.
    async def scenario(world: World) -> None:
        used: list[int] = []

        def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
            used.append(context.api_version)
            return MetadataResponse()

        advertised = {
            ApiKey.API_VERSIONS: VersionRange(0, 4),
            ApiKey.METADATA: VersionRange(0, 9),
            ApiKey.FETCH: VersionRange(19, 20),
        }
        async with (
            Server(world, {ApiKey.METADATA: handle}, advertised=advertised) as server,
            Channel(world, server.port) as channel,
        ):
            await channel.send(MetadataRequest())
            await channel.send(MetadataRequest(topics=None), version=4)
            assert used == [9, 4]
            for request, version in ((MetadataRequest(), 12), (FetchRequest(), None), (ProduceRequest(), None)):
                with pytest.raises(NotServed, match="does not serve"):
                    await channel.send(request, version=version)

    run(scenario)


def test_an_older_node_is_asked_again_in_its_version(run: Run) -> None:
    # An older server refuses ApiVersions version 3 and lists only ApiVersions, up to version 2. The channel repeats the
    # request in version 2 and gets the list of all APIs.
    async def scenario(world: World) -> None:
        def answer(number: int, correlation_id: int) -> bytes:
            if number == 0:
                entry = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)
                code = ErrorCode.UNSUPPORTED_VERSION
                return versions_answer(correlation_id, 0, error_code=code, api_keys=[entry])
            if number == 1:
                return versions_answer(correlation_id, 2, api_keys=ALL_KEYS)
            parts = encode_response_frame(correlation_id, MetadataResponse(cluster_id="old"), 12)
            return b"".join(part for part in parts if isinstance(part, bytes))

        impostor = Impostor(world, answer)
        async with Channel(world, impostor.port) as channel:
            assert await channel.ask("x") == "old"
        assert [int.from_bytes(request[2:4], "big") for request in impostor.requests] == [3, 2, 12]
        impostor.close()

    run(scenario)


def test_nobody_there_is_an_error_and_coming_back_heals(run: Run) -> None:
    # While no server listens, all waiting requests are refused at once. When the server starts, the same channel works.
    async def scenario(world: World) -> None:
        listener = world.node("server").listen(HOST, 0, lambda connection: RawPeer(world, connection))
        port = listener.port
        listener.close()
        async with Channel(world, port) as channel:
            failed = await asyncio.gather(*(channel.ask("x") for _ in range(5)), return_exceptions=True)
            assert all(isinstance(error, ChannelError) for error in failed)
            assert "refused" in str(failed[0])
            server = Server(world, METADATA, port=port)
            async with server:
                assert await channel.ask("back") == "back"

    run(scenario)


def test_losing_the_connection_fails_what_is_in_flight(run: Run) -> None:
    # All unanswered requests fail with a reason, and the next request reconnects.
    async def scenario(world: World) -> None:
        gate = Gate()
        async with Server(world, {ApiKey.METADATA: gate.handle}) as server, Channel(world, server.port) as channel:
            asked = [asyncio.ensure_future(channel.ask(name)) for name in "abc"]
            await world.until(lambda: len(gate.started) == 3)
            for connection in list(server.server._connections):
                connection.close()
            failed = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(error) for error in failed] == [ChannelError] * 3
            assert "connection lost" in str(failed[0])
            again = asyncio.ensure_future(channel.ask("d"))
            await world.until(lambda: "d" in gate.waiting)
            for name in "abcd":
                gate.open(name)
            assert await again == "d"

    run(scenario)


def test_a_request_that_times_out_costs_the_connection(run: Run) -> None:
    # A request that is not answered by its deadline fails, and so do the other requests on its connection. The channel
    # then opens a new connection.
    async def scenario(world: World) -> None:
        gate = Gate()
        async with Server(world, {ApiKey.METADATA: gate.handle}) as server, Channel(world, server.port) as channel:
            long = asyncio.ensure_future(channel.ask("long"))
            start_ns = channel.env.now_ns()
            with pytest.raises(ChannelError, match="METADATA was not answered in time"):
                await channel.ask("short", seconds=0.1)
            assert channel.env.now_ns() - start_ns >= NS_PER_S // 10
            with pytest.raises(ChannelError, match="given up, for METADATA was not answered in time"):
                await long
            again = asyncio.ensure_future(channel.ask("again"))
            await world.until(lambda: "again" in gate.waiting)
            for name in ("long", "short", "again"):
                gate.open(name)
            assert await again == "again"

    run(scenario)


def test_each_request_keeps_its_own_deadline() -> None:
    # One timer watches all requests of a connection: it must not fire for a request that was answered, not miss one that was
    # sent later, and not wait for one with a later deadline.
    async def scenario(world: World) -> None:
        gate = Gate()
        async with Server(world, {ApiKey.METADATA: gate.handle}) as server, Channel(world, server.port) as channel:
            for first_seconds, second_seconds in ((1, 3), (3, 1), (2, 2)):
                first = asyncio.ensure_future(channel.ask("first", seconds=first_seconds))
                await world.until(lambda: "first" in gate.waiting)
                start_ns = channel.env.now_ns()
                second = asyncio.ensure_future(channel.ask("second", seconds=second_seconds))
                await world.until(lambda: "second" in gate.waiting)
                gate.open("first")
                assert await first == "first"
                with pytest.raises(ChannelError, match="METADATA was not answered in time"):
                    await second
                assert second_seconds <= (channel.env.now_ns() - start_ns) / NS_PER_S < second_seconds + 0.1
                gate.open("second")

    run_simulated(scenario)


def test_a_posted_request_is_answered_by_a_call(run: Run) -> None:
    # With and without a connection. A request with a version that the node does not serve, and one on a closed channel, get
    # the error in a call, too.
    async def scenario(world: World) -> None:
        answers: list[Any] = []

        def post(name: str, version: int = 12) -> None:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            deadline_ns = channel.env.now_ns() + 5 * NS_PER_S
            channel.channel.post(request, version=version, deadline_ns=deadline_ns, on_answer=answers.append)

        async with Server(world, METADATA) as server, Channel(world, server.port) as channel:
            for name in "ab":
                before = len(answers)
                post(name)
                assert len(answers) == before
                await world.until(lambda: answers and answers[-1].cluster_id == name)  # noqa: B023 (awaited in the loop)
            post("c", version=99)
            await world.until(lambda: len(answers) == 3)
            assert isinstance(answers[2], NotServed)
            post("d")
            channel.channel.close()
            await world.until(lambda: len(answers) == 4)
            assert isinstance(answers[3], ChannelError)
            post("e")
            await world.until(lambda: len(answers) == 5)
            assert isinstance(answers[4], ChannelError)

    run(scenario)


def test_nothing_is_taken_from_a_connection_after_its_owner_has_dropped_it(run: Run) -> None:
    # Two responses arrive together, and the owner closes the channel when it gets the first one. The second one belongs to a
    # request that has failed by then, and is no malformed response.
    async def scenario(world: World) -> None:
        answers: list[Any] = []

        def answered(answer: Any) -> None:
            answers.append(answer)
            channel.channel.close()

        gate = Gate()
        async with Server(world, {ApiKey.METADATA: gate.handle}) as server, Channel(world, server.port) as channel:
            waiting = asyncio.ensure_future(channel.ask("connects"))
            await world.until(lambda: "connects" in gate.waiting)
            for name in "ab":
                request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
                deadline_ns = channel.env.now_ns() + 5 * NS_PER_S
                channel.channel.post(request, version=12, deadline_ns=deadline_ns, on_answer=answered)
            await world.until(lambda: {"a", "b"} <= gate.waiting.keys())
            # Both leave with the first one, in one piece.
            for name in ("b", "a", "connects"):
                gate.open(name)
            assert await waiting == "connects"
            await world.until(lambda: len(answers) == 2)
            assert answers[0].cluster_id == "a"
            assert isinstance(answers[1], ChannelError)
        assert not world.logged("response_malformed")

    run(scenario)


def test_what_an_owner_cannot_send_next_is_no_malformed_response() -> None:
    # The owner sends its next request from the call that brings the answer, and that request does not fit its version. The
    # error must not get lost with the connection: it ends the daemon.
    async def scenario(world: World) -> None:
        failures: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))

        def answered(answer: Any) -> None:
            raise EncodeError("does not fit")

        async with Server(world, METADATA) as server, Channel(world, server.port) as channel:
            assert await channel.ask("connects") == "connects"
            request = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
            deadline_ns = channel.env.now_ns() + 5 * NS_PER_S
            channel.channel.post(request, version=12, deadline_ns=deadline_ns, on_answer=answered)
            await world.until(lambda: failures)
            assert isinstance(failures[0], EncodeError)
        assert not world.logged("response_malformed")

    run_simulated(scenario)


def test_nobody_answering_the_handshake_is_an_error_at_the_deadline(run: Run) -> None:
    # The other side accepts the connection but sends nothing. Each waiting request fails at its own deadline.
    async def scenario(world: World) -> None:
        impostor = Impostor(world, lambda number, correlation_id: None)
        async with Channel(world, impostor.port) as channel:
            with pytest.raises(ChannelError, match="no connection within the request's deadline"):
                await channel.ask("x", seconds=0.1)
        impostor.close()

    run(scenario)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x02xx",
        b"\x00\x00\x00\x08\x00\x00\x00\x63abcd",
        b"\x00\x00\x00\x08\x00\x00\x00\x01\xff\xff\xff\xff",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["negative length", "too long", "too short", "unknown correlation id", "garbage", "somebody else's protocol"],
)
def test_nonsense_closes_the_connection(run: Run, nonsense: bytes) -> None:
    # Malformed bytes from the server are logged in one line. The waiting request fails, and the connection is closed.
    async def scenario(world: World) -> None:
        def answer(number: int, correlation_id: int) -> bytes:
            return versions_answer(correlation_id, 3, api_keys=ALL_KEYS) if number == 0 else nonsense

        impostor = Impostor(world, answer)
        async with Channel(world, impostor.port) as channel:
            with pytest.raises(ChannelError, match="nonsense"):
                await channel.ask("x")
            await impostor.peers[0].lost()
            assert len(world.logged("response_malformed")) == 1
            assert not channel.channel.is_connected
        impostor.close()

    run(scenario)


def test_a_closed_channel_fails_at_once(run: Run) -> None:
    # When a channel is closed, requests in flight, requests waiting for a connection, and later requests all fail.
    async def scenario(world: World) -> None:
        gate = Gate()
        impostor = Impostor(world, lambda number, correlation_id: None)
        async with (
            Server(world, {ApiKey.METADATA: gate.handle}) as server,
            Channel(world, server.port) as channel,
            Channel(world, impostor.port) as connecting,
        ):
            in_flight = asyncio.ensure_future(channel.ask("a"))
            waiting = asyncio.ensure_future(connecting.ask("b"))
            await world.until(lambda: gate.started and impostor.requests)
            channel.channel.close()
            connecting.channel.close()
            for failing in (in_flight, waiting, channel.ask("c")):
                with pytest.raises(ChannelError, match="is closed"):
                    await failing
            gate.open("a")
        impostor.close()

    run(scenario)


def test_a_cancelled_request_disturbs_nobody(run: Run) -> None:
    # The response to a cancelled request is dropped, and the other requests get theirs.
    async def scenario(world: World) -> None:
        gate = Gate()
        async with Server(world, {ApiKey.METADATA: gate.handle}) as server, Channel(world, server.port) as channel:
            first, second = (asyncio.ensure_future(channel.ask(name)) for name in "ab")
            await world.until(lambda: len(gate.started) == 2)
            first.cancel()
            gate.open("a")
            gate.open("b")
            assert await second == "b"
            assert first.cancelled()
            assert channel.channel.is_connected

    run(scenario)


def test_records_of_a_response_stay_valid(run: Run) -> None:
    # The record views of small and large Fetch responses are not overwritten by later responses.
    async def scenario(world: World) -> None:
        def handle(context: RequestContext, request: FetchRequest) -> FetchResponse:
            records = bytes([request.min_bytes % 251]) * request.min_bytes
            partition = PartitionData(partition_index=0, records=records)
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

        async with Server(world, {ApiKey.FETCH: handle}) as server, Channel(world, server.port) as channel:
            sizes = [1, 1000, 70_000, 66_000, 500_000, 3, 1_000_000]
            asked = [channel.send(FetchRequest(min_bytes=size), version=12) for size in sizes]
            responses = await asyncio.gather(*asked)
            for size, response in zip(sizes, responses, strict=True):
                records = response.responses[0].partitions[0].records
                assert isinstance(records, memoryview)
                assert records == bytes([size % 251]) * size

    run(scenario)


def test_attempts_grow_rarer_up_to_a_second() -> None:
    # No server listens. The pauses between connection attempts double from 50 ms up to one second, with 20 % jitter.
    async def scenario(world: World) -> None:
        async with Channel(world, 9) as channel:
            at_ns = []
            for _ in range(12):
                with pytest.raises(ChannelError):
                    await channel.ask("x")
                at_ns.append(channel.env.now_ns())
            pauses = [later - earlier for earlier, later in pairwise(at_ns)]
            assert 30_000_000 < pauses[0] < 70_000_000
            assert pauses[0] < pauses[1] < pauses[2] < pauses[3]
            assert all(BACKOFF_MAX_NS // 2 < pause < BACKOFF_MAX_NS * 1.3 for pause in pauses[6:])

    run_simulated(scenario)


def test_a_deadline_before_the_next_attempt_is_kept() -> None:
    # While the channel backs off, a request with an earlier deadline fails at that deadline, not later.
    async def scenario(world: World) -> None:
        async with Channel(world, 9) as channel:
            for _ in range(8):
                with pytest.raises(ChannelError):
                    await channel.ask("x")
            start_ns = channel.env.now_ns()
            with pytest.raises(ChannelError, match="no connection within"):
                await channel.ask("x", seconds=0.1)
            assert channel.env.now_ns() - start_ns == NS_PER_S // 10
            with pytest.raises(ChannelError):
                await channel.ask("x", seconds=-1)

    run_simulated(scenario)
