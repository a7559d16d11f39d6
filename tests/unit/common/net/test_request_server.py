"""RequestServer: what peers may do and what responses they get, on simulated and real sockets."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from common.ids import DirectoryId, Uuid
from common.light_tasks import LightTask, LightTasks
from common.net import peer_warnings, served_connection
from common.net.frame_reader import FrameReader
from common.net.peer_warnings import INTERVAL_NS
from common.net.request_context import ConnectAgain, DirectoryWait, Handler, RequestContext
from common.net.server_limits import ServerLimits
from common.parts import FileRegion
from common.protocol.api_keys import ApiKey
from common.protocol.codec import encode
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.api_versions import ApiVersionsRequest
from common.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from common.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from common.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from common.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from common.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from common.slices import ELEMENTS_PER_SLICE, result_in_slices
from common.time_units import NS_PER_S
from tests.unit.common.net.worlds import (
    MAX_REQUEST_BYTES,
    METADATA_VERSION,
    Gate,
    Scenario,
    Server,
    SimulatedTestWorld,
    World,
    echo_name,
    metadata_request,
    name_in,
    request_bytes,
    run_on_seeds,
    run_real,
    run_simulated,
)

Run = Callable[[Scenario], None]
METADATA = {ApiKey.METADATA: echo_name}


def metadata_request_of(topics: int) -> bytes:
    """Returns a request that names so many topics, more than are decoded at once."""
    named = [MetadataRequestTopic(name=f"a-topic-with-the-number-{number}") for number in range(topics)]
    return request_bytes(MetadataRequest(topics=named), METADATA_VERSION)


def produce_request(records: bytes, *, acks: int = -1, correlation_id: int = 0) -> bytes:
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    return request_bytes(ProduceRequest(acks=acks, topic_data=[topic]), 9, correlation_id=correlation_id)


def records_in(request: ProduceRequest) -> memoryview:
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    return records


@pytest.mark.parametrize("version", range(5))
def test_api_versions_names_what_is_served(run: Run, version: int) -> None:
    # Every version of ApiVersions lists the APIs that have a handler. Produce is listed from version 0, because librdkafka
    # requires that.
    async def scenario(world: World) -> None:
        async with Server(world, {**METADATA, ApiKey.PRODUCE: lambda context, request: None}) as server:
            peer = await server.raw()
            peer.send(request_bytes(ApiVersionsRequest(client_software_name="test"), version, correlation_id=77))
            correlation_id, response = await peer.response(ApiKey.API_VERSIONS, version)
            served = [(entry.api_key, entry.min_version, entry.max_version) for entry in response.api_keys]
            assert correlation_id == 77
            assert served == [(0, 0, 13), (3, 0, 13), (18, 0, 5)]

    run(scenario)


def test_requests_that_arrive_together_leave_turns_to_others_if_they_take_long(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However little time a handler takes, here it is long. All requests are answered, and in their order.
    monkeypatch.setattr(served_connection, "TURN_NS", 0)
    happened: list[str] = []

    def handle(context: RequestContext, request: Any) -> MetadataResponse:
        happened.append("request")
        asyncio.get_running_loop().call_soon(happened.append, "turn")
        return echo_name(context, request)

    async def scenario(world: World) -> None:
        happened.clear()
        async with Server(world, {ApiKey.METADATA: handle}) as server:
            peer = await server.raw()
            peer.send(b"".join(metadata_request(f"t{number}", correlation_id=number) for number in range(10)))
            answers = [await peer.response(ApiKey.METADATA, METADATA_VERSION, number=number) for number in range(10)]
            assert [(number, response.cluster_id) for number, response in answers] == [(n, f"t{n}") for n in range(10)]
        requests_before_a_turn = happened.index("turn")
        assert requests_before_a_turn == 2

    run(scenario)


def test_a_peer_that_sends_on_leaves_turns_to_others_as_well(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # What arrives while requests wait for their turn stays in the socket: each arrival would begin requests of its own. Nor
    # is the end of the connection noticed before its requests: all of them are handled, as in Kafka.
    monkeypatch.setattr(served_connection, "TURN_NS", 0)
    happened: list[str] = []

    async def scenario(world: World) -> None:
        happened.clear()

        def handle(_context: RequestContext, _request: ProduceRequest) -> None:
            happened.append("request")
            asyncio.get_running_loop().call_soon(happened.append, "turn")

        async with Server(world, {ApiKey.PRODUCE: handle}) as server:
            peer = await server.raw()
            request = produce_request(bytes(1000), acks=0)
            for _ in range(40):
                peer.send(request * 10)
                await world.sleep(0)
            peer.connection.close()
            await world.until(lambda: server.server.connection_count == 0)
        assert happened.count("request") == 400
        in_turns = "".join(each[0] for each in happened).split("t")
        assert max(map(len, in_turns)) == 2

    run(scenario)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(run: Run) -> None:
    # A newer client learns the supported versions, and the connection stays open for its second try.
    async def scenario(world: World) -> None:
        async with Server(world, METADATA) as server:
            peer = await server.raw()
            body = encode(ApiVersionsRequest(client_software_name="future"), 4) + b"a field that nobody knows"
            header = b"\x00\x12\x00\x63" + (9).to_bytes(4, "big") + b"\xff\xff\x00"
            peer.send((len(header) + len(body)).to_bytes(4, "big"), header, body)
            correlation_id, response = await peer.response(ApiKey.API_VERSIONS, 0)
            assert correlation_id == 9
            assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert [entry.api_key for entry in response.api_keys] == [3, 18]
            peer.send(metadata_request("still here"))
            _, answer = await peer.response(ApiKey.METADATA, METADATA_VERSION, number=1)
            assert answer.cluster_id == "still here"
        assert world.logged("request_malformed") == []

    run(scenario)


def test_a_request_may_be_split_at_any_byte(run: Run) -> None:
    # A request split at every possible place, and one sent byte by byte, are answered like one that arrives whole.
    async def scenario(world: World) -> None:
        async with Server(world, METADATA) as server:
            peer = await server.raw()
            whole = metadata_request("split")
            for cut in range(1, len(whole)):
                peer.send(whole[:cut])
                await world.sleep(0.001)
                peer.send(whole[cut:])
            for position in range(len(whole)):
                peer.send(whole[position : position + 1])
                await world.sleep(0.0001)
            await world.until(lambda: len(peer.frames) == len(whole))
            _, answer = await peer.response(ApiKey.METADATA, METADATA_VERSION, number=len(whole) - 1)
            assert answer.cluster_id == "split"

    run(scenario)


def test_bytes_behind_a_request_are_ignored(run: Run) -> None:
    # When librdkafka 2.16 requests all topics, it sends a body of 7 bytes, but the message ends after 4. Apache Kafka
    # accepts this, and we must too. Otherwise `list_topics` fails in every client built on librdkafka.
    async def scenario(world: World) -> None:
        seen: list[MetadataRequest] = []

        def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
            seen.append(request)
            return MetadataResponse()

        async with Server(world, {ApiKey.METADATA: handle}) as server:
            peer = await server.raw()
            peer.send(bytes.fromhex("00000019 0003000c 00000003 0007 72646b61666b61 00  00000000 010000"))
            await peer.response(ApiKey.METADATA, 12)
        assert [request.topics for request in seen] == [None]
        assert world.logged("request_malformed") == []

    run(scenario)


def test_responses_leave_in_the_order_of_the_requests(run: Run) -> None:
    # The handlers of three pipelined requests finish in reverse order. Nothing is sent until the first request's response is
    # ready, and then all responses are sent in the order of the requests.
    async def scenario(world: World) -> None:
        gate = Gate()
        async with Server(world, {ApiKey.METADATA: gate.handle}) as server:
            peer = await server.raw()
            peer.send(b"".join(metadata_request(name, number) for number, name in enumerate("abc")))
            await world.until(lambda: len(gate.started) == 3)
            assert gate.started == ["a", "b", "c"]
            gate.open("c")
            gate.open("b")
            await world.sleep(0.02)
            assert peer.frames == []
            gate.open("a")
            await world.until(lambda: len(peer.frames) == 3)
            assert peer.correlation_ids() == [0, 1, 2]

    run(scenario)


@pytest.mark.parametrize("is_async", [False, True])
def test_offsets_are_looked_up_when_all_earlier_requests_are_answered(run: Run, is_async: bool) -> None:
    # A fetch waits for records, and the same client asks for the end of the log. If that was looked up at once, the client
    # would be told an end below what the answer to the fetch says. What follows need not wait.
    async def scenario(world: World) -> None:
        gate, looked_up = Gate(), list[ListOffsetsRequest]()

        async def later() -> ListOffsetsResponse:
            return ListOffsetsResponse()

        def look_up(context: RequestContext, request: ListOffsetsRequest) -> Any:
            looked_up.append(request)
            return later() if is_async else ListOffsetsResponse()

        async with Server(world, {ApiKey.METADATA: gate.handle, ApiKey.LIST_OFFSETS: look_up}) as server:
            peer = await server.raw()
            offsets = [request_bytes(ListOffsetsRequest(), 9, correlation_id=number) for number in (2, 3)]
            peer.send(metadata_request("a", 0), metadata_request("b", 1), *offsets, metadata_request("c", 4))
            await world.until(lambda: gate.started == ["a", "b", "c"])
            gate.open("c")
            gate.open("a")
            await world.until(lambda: len(peer.frames) == 1)
            assert looked_up == []
            gate.open("b")
            await world.until(lambda: len(peer.frames) == 5)
            assert peer.correlation_ids() == [0, 1, 2, 3, 4]
            assert len(looked_up) == 2
            peer.send(request_bytes(ListOffsetsRequest(), 9, correlation_id=5))
            await world.until(lambda: len(peer.frames) == 6)
            await world.until(lambda: server.server.memory.used_bytes == 0)

    run(scenario)


def test_offsets_are_not_looked_up_for_a_peer_that_has_gone(run: Run) -> None:
    async def scenario(world: World) -> None:
        gate, looked_up = Gate(), list[ListOffsetsRequest]()

        def look_up(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
            looked_up.append(request)
            return ListOffsetsResponse()

        async with Server(world, {ApiKey.METADATA: gate.handle, ApiKey.LIST_OFFSETS: look_up}) as server:
            peer = await server.raw()
            peer.send(metadata_request("a"), request_bytes(ListOffsetsRequest(), 9), metadata_request("b"))
            await world.until(lambda: len(gate.started) == 2)
            peer.connection.abort()
            await world.until(lambda: server.server.connection_count == 0)
            gate.open("a")
            gate.open("b")
            await world.until(lambda: server.server.memory.used_bytes == 0)
            assert looked_up == []

    run(scenario)


def test_a_slow_handler_holds_up_its_own_connection_only(run: Run) -> None:
    # While a request on one connection waits forever, another connection is served.
    async def scenario(world: World) -> None:
        gate = Gate()

        def handle(context: RequestContext, request: MetadataRequest) -> Any:
            return gate.handle(context, request) if name_in(request) == "slow" else echo_name(context, request)

        async with Server(world, {ApiKey.METADATA: handle}) as server:
            slow, quick = await server.raw(), await server.raw()
            slow.send(metadata_request("slow"))
            await world.until(lambda: gate.started)
            quick.send(metadata_request("quick"))
            _, answer = await quick.response(ApiKey.METADATA, METADATA_VERSION)
            assert answer.cluster_id == "quick"
            assert slow.frames == []
            gate.open("slow")
            await world.until(lambda: slow.frames)

    run(scenario)


def test_a_handler_answers_now_later_or_never(run: Run) -> None:
    # A handler may return a message, a coroutine, a pending or completed future, or None to send no response.
    async def scenario(world: World) -> None:
        futures: list[asyncio.Future[MetadataResponse]] = []

        def handle(context: RequestContext, request: MetadataRequest) -> Any:
            name = name_in(request)
            if name == "coroutine":
                return later(request)
            if name == "none":
                return None
            if name == "now":
                return echo_name(context, request)
            future = asyncio.get_running_loop().create_future()
            futures.append(future)
            if name == "done":
                future.set_result(echo_name(context, request))
            return future

        async def later(request: MetadataRequest) -> MetadataResponse:
            await world.sleep(0.001)
            return MetadataResponse(cluster_id=name_in(request))

        async with Server(world, {ApiKey.METADATA: handle}) as server:
            peer = await server.raw()
            names = ["now", "coroutine", "none", "future", "done"]
            peer.send(b"".join(metadata_request(name, number) for number, name in enumerate(names)))
            await world.until(lambda: len(futures) == 2)
            futures[0].set_result(MetadataResponse(cluster_id="future"))
            await world.until(lambda: len(peer.frames) == 4)
            assert peer.correlation_ids() == [0, 1, 3, 4]

    run(scenario)


@pytest.mark.parametrize("way", ["at once", "coroutine", "future"])
def test_an_api_error_becomes_an_error_response(run: Run, way: str) -> None:
    # No matter how the handler fails, the peer gets that API's error response, and the connection stays open.
    async def scenario(world: World) -> None:
        error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "elsewhere")

        def handle(context: RequestContext, request: ProduceRequest) -> Any:
            if way == "at once":
                raise error
            return fail() if way == "coroutine" else failed()

        async def fail() -> None:
            raise error

        def failed() -> asyncio.Future[None]:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(error)
            return future

        async with Server(world, {ApiKey.PRODUCE: handle, **METADATA}) as server:
            peer = await server.raw()
            peer.send(produce_request(b"x"), metadata_request("next", 1))
            _, response = await peer.response(ApiKey.PRODUCE, 9)
            partition = response.responses[0].partition_responses[0]
            assert (partition.index, partition.error_code) == (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert partition.error_message == "elsewhere"
            await world.until(lambda: len(peer.frames) == 2)

    run(scenario)


def test_a_failure_that_may_not_be_answered_closes_the_connection(run: Run) -> None:
    # A Produce with acks=0 gets no response, so the server reports an error by closing the connection.
    async def scenario(world: World) -> None:
        def handle(context: RequestContext, request: ProduceRequest) -> None:
            if bytes(records_in(request)) == b"bad":
                raise ApiError(ErrorCode.CORRUPT_MESSAGE)

        async with Server(world, {ApiKey.PRODUCE: handle, **METADATA}) as server:
            peer = await server.raw()
            peer.send(produce_request(b"good", acks=0), metadata_request("next", 5))
            await world.until(lambda: peer.frames)
            assert peer.correlation_ids() == [5]
            peer.send(produce_request(b"bad", acks=0))
            await peer.lost()
            assert len(world.logged("request_malformed")) == 1
            # The refused request must not count as memory in use for ever.
            await world.until(lambda: not server.server.memory.used_bytes)

    run(scenario)


def test_a_client_that_must_connect_again_loses_its_connection(run: Run) -> None:
    # Neither this request nor a later one of the connection is answered, and none counts as memory in use any more. Other
    # connections go on.
    async def scenario(world: World) -> None:
        async def handle(context: RequestContext, request: ProduceRequest) -> None:
            raise ConnectAgain("another controller")

        async with Server(world, {ApiKey.PRODUCE: handle, **METADATA}) as server:
            peer, other = await server.raw(), await server.raw()
            peer.send(produce_request(b"x"), metadata_request("next", 5))
            await peer.lost()
            assert peer.frames == []
            assert [line["reason"] for line in world.logged("connection_dropped")] == ["another controller"]
            await world.until(lambda: not server.server.memory.used_bytes)
            other.send(metadata_request("other"))
            await world.until(lambda: other.frames)

    run(scenario)


@pytest.mark.parametrize("ends", ["answers", "answers and a malformed request", "answers and the end of the server"])
def test_answers_that_are_ready_together_are_sent_together(run: Run, ends: str) -> None:
    # Requests that are answered at once, and futures that are done in the same step, take one send each time, in the order
    # of the requests. What closes the connection in the same step does not lose them.
    async def scenario(world: World) -> None:
        futures: list[asyncio.Future[MetadataResponse]] = []
        sends: list[int] = []

        def handle(context: RequestContext, request: MetadataRequest) -> Any:
            name = name_in(request)
            if name == "now":
                return echo_name(context, request)
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        async with Server(world, {ApiKey.METADATA: handle}) as server:
            peer = await server.raw()
            await world.until(lambda: server.server.connection_count == 1)
            [served] = server.server._connections
            connection, send = served._connection, served._connection.send

            def counted(parts: Any) -> None:
                sends.append(len(parts))
                send(parts)

            connection.send = counted  # type: ignore[method-assign]
            names = ["now", "now", "later", "now", "later", "later"]
            peer.send(b"".join(metadata_request(name, number) for number, name in enumerate(names)))
            await world.until(lambda: len(futures) == 3)
            await world.until(lambda: len(peer.frames) == 2)
            for number in (1, 0, 2):
                futures[number].set_result(MetadataResponse())
            if ends == "answers and a malformed request":
                await asyncio.sleep(0)
                served._refuse("test")
            elif ends == "answers and the end of the server":
                await asyncio.sleep(0)
                server.server.close()
            await world.until(lambda: len(peer.frames) == 6)
            assert peer.correlation_ids() == [0, 1, 2, 3, 4, 5]
            assert len(sends) == 2
            await world.until(lambda: server.server.memory.used_bytes == 0)

    run(scenario)


def test_an_unexpected_exception_ends_the_task_group(run: Run) -> None:
    # An unexpected exception in a handler ends the server's TaskGroup, whether it is raised by a coroutine or a future.
    async def scenario(world: World) -> None:
        async def fail(context: RequestContext, request: MetadataRequest) -> None:
            raise ZeroDivisionError

        def failed(context: RequestContext, request: MetadataRequest) -> asyncio.Future[None]:
            future = asyncio.get_running_loop().create_future()
            future.set_exception(ZeroDivisionError())
            return future

        async def serve(handle: Handler) -> None:
            async with Server(world, {ApiKey.METADATA: handle}) as server:
                peer = await server.raw()
                peer.send(metadata_request("x"))
                await world.sleep(5)

        for handle in (fail, failed):
            with pytest.raises(ExceptionGroup) as raised:
                await serve(handle)
            assert isinstance(raised.value.exceptions[0], ZeroDivisionError)

    run(scenario)


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


MALFORMED = {
    "longer than allowed": (MAX_REQUEST_BYTES + 1).to_bytes(4, "big"),
    "negative length": b"\xff\xff\xff\xff",
    "too short for a header": frame(b"\x00\x12\x00"),
    "unknown api": frame(b"\x03\xe8\x00\x00" + bytes(10)),
    "api without a handler": frame(b"\x00\x01\x00\x0c" + bytes(10)),
    "unknown version": frame(b"\x00\x03\x00\x63" + bytes(10)),
    "negative version": frame(b"\x00\x03\xff\xff" + bytes(10)),
    "header that ends early": frame(b"\x00\x03\x00\x0c" + bytes(4) + b"\x00\x09x"),
    "body of garbage": frame(b"\x00\x03\x00\x0c" + bytes(4) + b"\xff\xff\x00" + b"\xfe\xff\xff\xff\xff\xff"),
    "somebody else's protocol": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_input_costs_one_line_and_its_own_connection(run: Run, content: bytes) -> None:
    # Malformed input is logged in one line and closes its connection. Later requests on it are not answered. Another
    # connection is not affected.
    async def scenario(world: World) -> None:
        async with Server(world, METADATA) as server:
            good, bad = await server.raw(), await server.raw()
            bad.send(metadata_request("before", 3), content, metadata_request("after", 4))
            await bad.lost()
            assert bad.correlation_ids() in ([3], [])
            (line,) = world.logged("request_malformed")
            assert line["peer"]
            assert line["reason"]
            assert line["listener"] == "TEST"
            good.send(metadata_request("unaffected"))
            await world.until(lambda: good.frames)
            assert server.server.connection_count == 1

    run(scenario)


def test_rubbish_in_a_loop_does_not_flood_the_log(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # A client of another protocol connects again and again. The first lines are logged, then one a second, which says how
    # many are missing.
    burst = 20
    monkeypatch.setattr(peer_warnings, "BURST", burst)

    async def scenario(world: World) -> None:
        async with Server(world, METADATA) as server:

            async def send_rubbish() -> None:
                bad = await server.raw()
                bad.send(MALFORMED["somebody else's protocol"])
                await bad.lost()

            for _ in range(3 * burst):
                await send_rubbish()
            lines = world.logged("request_malformed")
            assert burst <= len(lines) < 2 * burst
            await world.sleep(2 * INTERVAL_NS / NS_PER_S)
            await send_rubbish()
            (line,) = world.logged("request_malformed")[len(lines) :]
            assert line["unlogged"] == 3 * burst - len(lines)

    run(scenario)


def test_a_frame_that_never_ends_costs_one_line(run: Run) -> None:
    # A peer that disconnects in the middle of a request is logged in one line.
    async def scenario(world: World) -> None:
        async with Server(world, METADATA) as server:
            peer = await server.raw()
            peer.send(metadata_request("cut off")[:-3])
            peer.connection.close()
            await world.until(lambda: server.server.connection_count == 0)
            assert len(world.logged("request_malformed")) == 1

    run(scenario)


def test_a_peer_may_go_while_its_requests_are_handled(run: Run) -> None:
    # Responses to a peer that is gone cause no error, and their memory is released.
    async def scenario(world: World) -> None:
        gate = Gate()
        async with Server(world, {ApiKey.METADATA: gate.handle}) as server:
            peer = await server.raw()
            peer.send(metadata_request("a"), metadata_request("b"))
            await world.until(lambda: len(gate.started) == 2)
            peer.connection.abort()
            await world.until(lambda: server.server.connection_count == 0)
            gate.open("a")
            gate.open("b")
            await world.until(lambda: server.server.memory.used_bytes == 0)

    run(scenario)


@pytest.mark.parametrize("is_waiting", [False, True], ids=["idle", "a request waits"])
def test_a_lost_connection_leaves_no_half_received_request(monkeypatch: pytest.MonkeyPatch, is_waiting: bool) -> None:
    # The bytes of a request that will never be complete are freed when the connection is lost, not when the garbage
    # collector runs. That also holds while an earlier request of the connection is still being handled; without one,
    # nothing of the connection stays.
    partial: list[weakref.ref[bytearray]] = []
    readers: list[weakref.ref[FrameReader]] = []

    class Bytes(bytearray):
        """Unlike a bytearray, it can be referred to weakly."""

    class Watched(FrameReader):
        def keep_rest(self) -> None:
            super().keep_rest()
            readers[:] = [weakref.ref(self)]
            if self._partial:
                self._partial = Bytes(self._partial)
                partial.append(weakref.ref(self._partial))

    monkeypatch.setattr("common.net.served_connection.FrameReader", Watched)

    async def scenario(world: World) -> None:
        gate = Gate()
        async with Server(world, {ApiKey.METADATA: gate.handle}) as server:
            peer = await server.raw()
            half = metadata_request("half")[:-3]
            peer.send(metadata_request("waits") + half if is_waiting else half)
            await world.until(lambda: partial)
            peer.connection.abort()
            await world.until(lambda: server.server.connection_count == 0)
            assert [each() for each in partial] == [None]
            assert (readers[0]() is not None) == is_waiting
            if is_waiting:
                gate.open("waits")
                await world.until(lambda: server.server.memory.used_bytes == 0)

    gc.disable()
    try:
        run_real(scenario)
    finally:
        gc.enable()


def test_connections_are_limited_in_all_and_per_host(run: Run) -> None:
    # A connection above the limit is closed at once with one log line. After an accepted connection ends, a new one is
    # accepted.
    async def scenario(world: World) -> None:
        async def try_three(limits: ServerLimits) -> None:
            async with Server(world, METADATA, limits=limits) as server:
                first, second = await server.raw(), await server.raw()
                third = await server.raw()
                await third.lost()
                second.connection.close()
                await world.until(lambda: server.server.connection_count == 1)
                fourth = await server.raw()
                first.send(metadata_request("served"))
                fourth.send(metadata_request("served"))
                await world.until(lambda: first.frames and fourth.frames)

        await try_three(ServerLimits(connections_max=2))
        await try_three(ServerLimits(connections_per_host_max=2))
        assert len(world.logged("connection_limit_reached")) == 2
        # A host may have a limit of its own.
        refused = world.logged("connection_limit_reached")[-1]
        host = refused["peer"].rpartition(":")[0]
        await try_three(ServerLimits(connections_per_host_max=1, connections_of_hosts_max={host: 2, "another": 9}))
        assert len(world.logged("connection_limit_reached")) == 3

    run(scenario)


def test_requests_in_flight_are_limited(run: Run) -> None:
    # Only a limited number of pipelined requests is started. Each response lets one more start.
    async def scenario(world: World) -> None:
        gate = Gate()
        async with Server(world, {ApiKey.METADATA: gate.handle}) as server:
            peer = await server.raw()
            names = [str(number) for number in range(200)]
            peer.send(b"".join(metadata_request(name, int(name)) for name in names))
            await world.until(lambda: len(gate.started) == 64)
            await world.sleep(0.02)
            assert len(gate.started) == 64
            while names != gate.started or gate.waiting:
                await world.until(lambda: gate.waiting)
                gate.open(min(gate.waiting, key=int))
            await world.until(lambda: len(peer.frames) == 200)
            assert gate.started == names
            assert peer.correlation_ids() == list(range(200))
            assert server.server.memory.used_bytes == 0

    run(scenario)


@pytest.mark.slow
def test_a_peer_that_does_not_read_is_not_served_and_then_dropped() -> None:
    # A peer sends requests but does not read its responses of 30 kB. Once the limit of queued bytes is reached, no further
    # request is started. A peer that reads nothing for too long is disconnected.
    async def scenario(world: World) -> None:
        started: list[int] = []

        def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
            started.append(context.correlation_id)
            return MetadataResponse(cluster_id="x" * 30_000)

        async with Server(world, {ApiKey.METADATA: handle}) as server:
            peer = await server.raw()
            peer.connection.pause_reading()
            peer.send(b"".join(metadata_request("x", number) for number in range(1000)))
            await world.sleep(1)
            assert 30 < len(started) < 60
            peer.connection.resume_reading()
            await world.until(lambda: len(peer.frames) == 1000)
            peer.connection.pause_reading()
            peer.send(b"".join(metadata_request("x", number) for number in range(1000)))
            await world.sleep(20)
            assert server.server.connection_count == 1
            await world.sleep(15)
            assert server.server.connection_count == 0
            (line,) = world.logged("connection_dropped")
            assert "takes none" in line["reason"]

    run_on_seeds(scenario)


def test_responses_that_wait_for_an_earlier_one_are_limited() -> None:
    # Responses of 30 kB must wait for the response to a long poll. Once they reach the limit of queued bytes, no further
    # request is started. After the long poll ends, all responses are sent.
    async def scenario(world: World) -> None:
        gate = Gate()
        started: list[int] = []

        def handle(context: RequestContext, request: MetadataRequest) -> Any:
            started.append(context.correlation_id)
            return gate.handle(context, request) if name_in(request) == "slow" else MetadataResponse(cluster_id="x" * 30_000)

        async with Server(world, {ApiKey.METADATA: handle}) as server:
            peer = await server.raw()
            peer.send(metadata_request("slow", 0), b"".join(metadata_request("x", number) for number in range(1, 60)))
            await world.sleep(1)
            assert 30 < len(started) < 40
            gate.open("slow")
            await world.until(lambda: len(peer.frames) == 60)
            assert peer.correlation_ids() == list(range(60))

    run_on_seeds(scenario)


def test_a_big_response_does_not_stop_the_connection(run: Run) -> None:
    # After a single response that exceeds the limit of queued bytes, the next pipelined request must still be started.
    async def scenario(world: World) -> None:
        def handle(context: RequestContext, request: ProduceRequest) -> FetchResponse:
            partition = PartitionData(partition_index=0, records=bytes(3_000_000))
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

        async with Server(world, {ApiKey.FETCH: handle}) as server:
            peer = await server.raw()
            peer.send(b"".join(request_bytes(FetchRequest(), 12, correlation_id=number) for number in range(4)))
            await world.until(lambda: len(peer.frames) == 4)
            _, response = await peer.response(ApiKey.FETCH, 12, number=3)
            assert len(response.responses[0].partitions[0].records) == 3_000_000

    run(scenario)


def test_a_response_with_very_many_elements_is_encoded_in_slices(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Counts the turns of the event loop while the response is encoded, at least one for each slice. The response of the next
    # request waits for it.
    slices = 5
    entries = [DescribeConfigsResourceResult(name=f"key-{number}") for number in range(slices * ELEMENTS_PER_SLICE)]
    long = DescribeConfigsResponse(results=[DescribeConfigsResult(configs=entries)])
    turns: list[int] = []

    async def counting(work: Any, *, items: int) -> Any:
        encoding = asyncio.ensure_future(result_in_slices(work, items=items))
        turns.append(0)
        while not encoding.done():
            await asyncio.sleep(0)
            turns[-1] += 1
        return encoding.result()

    async def describe(_context: RequestContext, _request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        return long

    async def scenario(world: World) -> None:
        handlers: dict[ApiKey, Any] = {ApiKey.DESCRIBE_CONFIGS: describe, ApiKey.METADATA: echo_name}
        async with Server(world, handlers) as server:
            peer = await server.raw()
            peer.send(request_bytes(DescribeConfigsRequest(), 4), metadata_request("next", 1))
            _, answer = await peer.response(ApiKey.DESCRIBE_CONFIGS, 4)
            assert answer == long
            await world.until(lambda: len(peer.frames) == 2)
            assert peer.correlation_ids() == [0, 1]

    monkeypatch.setattr(served_connection, "result_in_slices", counting)
    run(scenario)
    assert min(turns) >= slices


@pytest.mark.parametrize("way", ["at once", "coroutine", "future", "error"])
def test_a_long_request_is_decoded_and_answered_in_slices(run: Run, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Counts the turns of the event loop while the request is decoded, and while the response is encoded, at least one for
    # each slice. The next request of the connection does not overtake it, although that one has arrived as well.
    slices = 6
    wanted = [OffsetForLeaderPartition(partition=number) for number in range(slices * ELEMENTS_PER_SLICE)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=wanted)])
    turns: list[int] = []
    order: list[int] = []

    async def counting(work: Any, *, items: int) -> Any:
        decoding = asyncio.ensure_future(result_in_slices(work, items=items))
        turns.append(0)
        while not decoding.done():
            await asyncio.sleep(0)
            turns[-1] += 1
        return decoding.result()

    def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> Any:
        order.append(context.correlation_id)
        if way == "error":
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        results = [EpochEndOffset(partition=each.partition) for topic in request.topics for each in topic.partitions]
        response = OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=results)])
        if way == "at once":
            return response
        answering = asyncio.sleep(0, response)
        return answering if way == "coroutine" else asyncio.ensure_future(answering)

    async def scenario(world: World) -> None:
        order.clear()
        turns.clear()
        async with Server(world, {ApiKey.OFFSET_FOR_LEADER_EPOCH: handle}) as server:
            peer = await server.raw()
            peer.send(request_bytes(request, 4), request_bytes(OffsetForLeaderEpochRequest(), 4, correlation_id=1))
            await world.until(lambda: len(peer.frames) == 2)
            assert peer.correlation_ids() == order == [0, 1]
            _, answer = await peer.response(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4)
            assert [each.partition for each in answer.topics[0].partitions] == [each.partition for each in wanted]
            await world.until(lambda: not server.server.memory.used_bytes)
        decoding, encoding = turns
        assert min(decoding, encoding) >= slices

    monkeypatch.setattr(served_connection, "result_in_slices", counting)
    run(scenario)


def test_a_long_request_that_is_malformed_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is refused as a short one is, and does not count as memory in use for ever. Nor does one whose peer has gone before
    # it is decoded, and nobody has to hear of what such a peer has sent.
    request = bytearray(metadata_request_of(2 * ELEMENTS_PER_SLICE))
    request[-20:] = b"\xff" * 20

    async def scenario(world: World) -> None:
        may_decode = asyncio.Event()

        async def later(work: Any, *, items: int) -> Any:
            await may_decode.wait()
            return await result_in_slices(work, items=items)

        monkeypatch.setattr(served_connection, "result_in_slices", later)
        async with Server(world, METADATA) as server:
            peer, gone, gone_too = [await server.raw() for _ in range(3)]
            for sender in (peer, gone_too):
                sender.send(bytes(request))
            gone.send(metadata_request_of(2 * ELEMENTS_PER_SLICE))
            await world.until(lambda: server.server.memory.used_bytes == 3 * 10 * (len(request) - 4))
            for sender in (gone, gone_too):
                sender.connection.abort()
            await world.until(lambda: server.server.connection_count == 1)
            assert not world.logged("request_malformed")
            may_decode.set()
            await peer.lost()
            await world.until(lambda: not server.server.memory.used_bytes)
            assert len(world.logged("request_malformed")) == 1

    run_simulated(scenario)


def test_no_long_response_is_encoded_for_a_peer_that_has_gone(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # A client that gives up and asks again must not make the broker encode the same thousands of elements over and over.
    monkeypatch.delattr(served_connection, "encode_response_frame_in_slices")

    async def scenario(world: World) -> None:
        started, may_answer = asyncio.Event(), asyncio.Event()

        async def describe(_context: RequestContext, _request: DescribeConfigsRequest) -> DescribeConfigsResponse:
            started.set()
            await may_answer.wait()
            return DescribeConfigsResponse()

        async with Server(world, {ApiKey.DESCRIBE_CONFIGS: describe}) as server:
            peer = await server.raw()
            peer.send(request_bytes(DescribeConfigsRequest(), 4))
            await started.wait()
            peer.connection.abort()
            await world.until(lambda: server.server.connection_count == 0)
            may_answer.set()
            await world.until(lambda: server.server.memory.used_bytes == 0)

    run(scenario)


@pytest.mark.parametrize(
    ("partitions", "replica_id", "started_at_once"),
    [(ELEMENTS_PER_SLICE, -1, 8), (ELEMENTS_PER_SLICE + 1, -1, 1), (ELEMENTS_PER_SLICE + 1, 3, 8)],
)
def test_a_fetch_that_takes_slices_counts_as_what_it_may_answer(
    partitions: int, replica_id: int, started_at_once: int
) -> None:
    # A consumer that reads no answers pipelines fetches of very many partitions. They are not answered at once, so only what
    # they may answer keeps all of them from being started. A follower does not pipeline.
    async def scenario(world: World) -> None:
        started: list[int] = []
        may_answer = asyncio.Event()

        async def handle(context: RequestContext, _request: FetchRequest) -> FetchResponse:
            started.append(context.correlation_id)
            await may_answer.wait()
            return FetchResponse()

        topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=number) for number in range(partitions)])
        request = FetchRequest(replica_id=replica_id, max_bytes=50 << 20, topics=[topic])
        async with Server(world, {ApiKey.FETCH: handle}) as server:
            peer = await server.raw()
            peer.send(*[request_bytes(request, 12, correlation_id=number) for number in range(8)])
            await world.sleep(1)
            assert len(started) == started_at_once
            may_answer.set()
            await world.until(lambda: len(peer.frames) == 8)
            assert peer.correlation_ids() == [*range(8)]

    run_simulated(scenario)


def test_requests_with_large_responses_are_not_started_together() -> None:
    # A peer that reads no answers pipelines requests of a few bytes. Their handlers say how large the answers will be, and
    # take a while.
    async def scenario(world: World) -> None:
        started: list[int] = []
        may_answer = asyncio.Event()

        def handle(context: RequestContext, request: MetadataRequest) -> Awaitable[MetadataResponse]:
            started.append(context.correlation_id)
            context.memory.expect_response(400_000)
            return answer(request)

        async def answer(request: MetadataRequest) -> MetadataResponse:
            await may_answer.wait()
            return MetadataResponse(cluster_id=name_in(request))

        async with Server(world, {ApiKey.METADATA: handle}) as server:
            peer = await server.raw()
            peer.send(*[metadata_request(str(number), number) for number in range(8)])
            await world.sleep(1)
            assert started == [0, 1, 2]
            may_answer.set()
            await world.until(lambda: len(peer.frames) == 8)
            assert peer.correlation_ids() == [*range(8)]

    run_simulated(scenario)


def test_a_long_fetch_may_end_after_the_tasks_of_a_daemon_that_stops(run: Run) -> None:
    # The server is closed, then the TaskGroup ends, which takes no further task. What a fetch of very many partitions waits
    # for may be done after that. An error then would make an orderly end a failure.
    async def scenario(world: World) -> None:
        started, may_answer = asyncio.Event(), asyncio.Event()
        light_tasks = LightTasks()
        ended: list[FetchResponse] = []

        async def fetch() -> FetchResponse:
            started.set()
            await may_answer.wait()
            partitions = [PartitionData(partition_index=number) for number in range(ELEMENTS_PER_SLICE + 1)]
            ended.append(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)]))
            return ended[0]

        def handle(_context: RequestContext, _request: FetchRequest) -> FetchResponse | LightTask[FetchResponse]:
            return light_tasks.start(fetch())

        async with Server(world, {ApiKey.FETCH: handle}) as server:
            peer = await server.raw()
            peer.send(request_bytes(FetchRequest(), 12))
            await started.wait()
        may_answer.set()
        await world.until(lambda: ended)
        await peer.lost()
        assert peer.frames == []

    run(scenario)


def test_idle_and_slow_peers_are_dropped_at_their_deadlines() -> None:
    # An idle connection is closed after ten minutes, without a warning. A connection with an unfinished request is closed
    # 30 s after the request began, with a warning.
    async def scenario(world: World) -> None:
        gate = Gate()
        async with Server(world, {ApiKey.METADATA: gate.handle}) as server:
            idle, busy, slow = await server.raw(), await server.raw(), await server.raw()
            busy.send(metadata_request("long poll"))
            whole = metadata_request("slow")
            slow.send(whole[:10])
            await world.sleep(28)
            slow.send(whole[10:11])
            assert not slow.is_lost
            await world.sleep(4)
            assert slow.is_lost
            (line,) = world.logged("connection_dropped")
            assert line["reason"] == "a request was begun and not finished"
            await world.sleep(560)
            assert not idle.is_lost
            await world.sleep(20)
            assert idle.is_lost
            assert not busy.is_lost
            gate.open("long poll")
            await world.until(lambda: busy.frames)
            await world.sleep(590)
            assert not busy.is_lost
            await world.sleep(20)
            assert busy.is_lost

    run_simulated(scenario)


def test_a_negative_idle_time_means_for_ever() -> None:
    # With connections.max.idle.ms=-1 the server never closes an idle connection, as in Apache Kafka.
    async def scenario(world: World) -> None:
        async with Server(world, METADATA, limits=ServerLimits(idle_ns=-1_000_000)) as server:
            peer = await server.raw()
            await world.sleep(3000)
            peer.send(metadata_request("still here"))
            await world.until(lambda: peer.frames or peer.is_lost)
            assert not peer.is_lost

    run_simulated(scenario)


def test_memory_for_requests_is_limited() -> None:
    # Ten peers each send half a request, together more than the memory limit. When the other halves are sent, all requests
    # are answered. The memory in use never exceeds the limit by more than one frame and one receive window of 128 KiB.
    async def scenario(world: World) -> None:
        limit, size = 500_000, 200_000
        most = 0

        def handle(context: RequestContext, request: ProduceRequest) -> ProduceResponse:
            nonlocal most
            most = max(most, server.server.memory.used_bytes)
            assert records_in(request) == bytes([context.correlation_id]) * size
            return ProduceResponse()

        limits = ServerLimits(request_memory_bytes=limit)
        async with Server(world, {ApiKey.PRODUCE: handle}, limits=limits) as server:
            peers = [await server.raw() for _ in range(10)]
            for number, peer in enumerate(peers):
                peer.send(produce_request(bytes([number]) * size, correlation_id=number)[: size // 2])
            await world.sleep(1)
            most = max(most, server.server.memory.used_bytes)
            for number, peer in enumerate(peers):
                peer.send(produce_request(bytes([number]) * size, correlation_id=number)[size // 2 :])
            await world.until(lambda: all(peer.frames for peer in peers))
            assert most < limit + size + 128 * 1024
            assert server.server.memory.used_bytes == 0

    run_on_seeds(scenario)


SLOW_DISK = DirectoryId(Uuid(b"slow".rjust(16, b"-")))


class Disk:
    """A Produce handler whose requests wait for one directory, until the test ends the waits."""

    def __init__(self) -> None:
        self.waits: list[DirectoryWait] = []
        self.answers: list[asyncio.Future[ProduceResponse]] = []

    def handle(self, context: RequestContext, request: ProduceRequest) -> asyncio.Future[ProduceResponse]:
        self.waits.append(context.memory.wait_for(SLOW_DISK))
        self.answers.append(asyncio.get_running_loop().create_future())
        return self.answers[-1]

    def answer(self, number: int) -> None:
        self.answers[number].set_result(ProduceResponse())

    async def write(self, world: World, number: int) -> None:
        """Waits for the request with this number, ends its wait and answers it."""
        await world.until(lambda: len(self.waits) > number)
        self.waits[number].end()
        self.answer(number)


@pytest.mark.parametrize("how", ["end", "give_up"])
def test_a_connection_that_waits_for_a_full_directory_does_not_read(how: str) -> None:
    # A peer sends ten requests for one directory without waiting. When these take more than is free, the peer is not read
    # any more, but another one is. The peer is read again when its requests do not wait any more, whether they have been
    # written or given up. Those that were given up still count.
    async def scenario(world: World) -> None:
        disk, size = Disk(), 50_000
        limits = ServerLimits(request_memory_bytes=10 * size)
        async with Server(world, {ApiKey.PRODUCE: disk.handle, **METADATA}, limits=limits) as server:
            memory = server.server.memory
            peer, other = await server.raw(), await server.raw()
            peer.send(b"".join(produce_request(bytes(size), correlation_id=number) for number in range(10)))
            await world.until(lambda: memory.is_over_share(SLOW_DISK))
            await world.sleep(1)
            started = len(disk.waits)
            assert started in (4, 5)
            assert memory.used_bytes < 8 * size
            for number in range(20):
                other.send(metadata_request("other", number))
            await world.until(lambda: len(other.frames) == 20)
            for number in range(started):
                getattr(disk.waits[number], how)()
                disk.answer(number)
            await world.until(lambda: len(disk.waits) > started)
            if how == "give_up":
                assert memory.is_over_share(SLOW_DISK)
                for wait in disk.waits[:started]:
                    wait.end()
            for number in range(started, 10):
                await disk.write(world, number)
            await world.until(lambda: peer.correlation_ids() == list(range(10)))
            assert memory.used_bytes == 0
            assert not memory.is_over_share(SLOW_DISK)

    run_on_seeds(scenario)


@pytest.mark.parametrize("version", [12, 17])
def test_followers_are_read_although_the_memory_is_full(version: int) -> None:
    # A request that takes all memory waits for followers. A consumer's fetch is not read any more. A follower's is, if the
    # connection is known as a follower's by an earlier fetch and itself holds little.
    async def scenario(world: World) -> None:
        fetched: list[int] = []

        def fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
            fetched.append(context.correlation_id)
            return FetchResponse()

        def fetch_of(replica_id: int, number: int) -> bytes:
            state = ReplicaState(replica_id=replica_id) if version >= 15 else ReplicaState()
            wanted = FetchRequest(replica_id=replica_id if version < 15 else -1, replica_state=state)
            return request_bytes(wanted, version, correlation_id=number)

        disk, size = Disk(), 50_000
        limits = ServerLimits(request_memory_bytes=size, follower_request_bytes_max=size)
        async with Server(world, {ApiKey.PRODUCE: disk.handle, ApiKey.FETCH: fetch}, limits=limits) as server:
            peer, consumer, follower = await server.raw(), await server.raw(), await server.raw()
            consumer.send(fetch_of(-1, 1))
            follower.send(fetch_of(2, 2))
            await world.until(lambda: len(fetched) == 2)
            peer.send(produce_request(bytes(size)))
            await world.until(lambda: disk.answers)
            consumer.send(fetch_of(-1, 3))
            for number in range(4, 24):
                follower.send(fetch_of(2, number))
            await world.until(lambda: len(follower.frames) == 21)
            await world.sleep(1)
            assert 3 not in fetched
            await disk.write(world, 0)
            await world.until(lambda: 3 in fetched)

    run_on_seeds(scenario)


def test_a_follower_that_asks_for_offsets_is_read_on_although_the_memory_is_full() -> None:
    # A follower whose offset is out of range asks for the leader's offsets on the same connection, and fetches on.
    async def scenario(world: World) -> None:
        def fetch_of(replica_id: int, number: int) -> bytes:
            return request_bytes(FetchRequest(replica_state=ReplicaState(replica_id=replica_id)), 17, correlation_id=number)

        disk, size = Disk(), 50_000
        limits = ServerLimits(request_memory_bytes=size, follower_request_bytes_max=size)
        handlers: dict[ApiKey, Any] = {
            ApiKey.PRODUCE: disk.handle,
            ApiKey.FETCH: lambda context, request: FetchResponse(),
            ApiKey.LIST_OFFSETS: lambda context, request: ListOffsetsResponse(),
        }
        async with Server(world, handlers, limits=limits) as server:
            peer, follower = await server.raw(), await server.raw()
            follower.send(fetch_of(2, 1))
            await world.until(lambda: len(follower.frames) == 1)
            peer.send(produce_request(bytes(size)))
            await world.until(lambda: disk.answers)
            follower.send(request_bytes(ListOffsetsRequest(replica_id=2), 9, correlation_id=2))
            await world.until(lambda: len(follower.frames) == 2)
            follower.send(fetch_of(2, 3))
            await world.until(lambda: len(follower.frames) == 3)

    run_on_seeds(scenario)


def test_a_handler_may_give_back_the_memory_of_a_request_before_its_answer() -> None:
    # When a handler releases a request before answering it, the records are freed and the request counts almost nothing
    # toward the memory limit, so the request of another peer is read. A second release has no effect.
    async def scenario(world: World) -> None:
        size = 100_000
        releases: list[Callable[[], None]] = []
        requests: list[Any] = []
        answers: list[asyncio.Future[ProduceResponse]] = []

        def handle(context: RequestContext, request: ProduceRequest) -> asyncio.Future[ProduceResponse]:
            releases.append(context.memory.release)
            requests.append(weakref.ref(records_in(request)))
            answers.append(asyncio.get_running_loop().create_future())
            return answers[-1]

        async with Server(world, {ApiKey.PRODUCE: handle}, limits=ServerLimits(request_memory_bytes=size)) as server:
            first, second = await server.raw(), await server.raw()
            first.send(produce_request(bytes(size)))
            await world.until(lambda: releases)
            second.send(produce_request(bytes(size)))
            await world.sleep(1)
            assert len(releases) == 1
            assert requests[0]() is not None
            releases[0]()
            releases[0]()
            await world.until(lambda: len(releases) == 2)
            assert requests[0]() is None
            assert size < server.server.memory.used_bytes < size + 3000
            for answer in answers:
                answer.set_result(ProduceResponse())
            await world.until(lambda: first.frames and second.frames)
            releases[1]()
            assert server.server.memory.used_bytes == 0

    run_on_seeds(scenario)


def test_a_handler_may_keep_the_memory_of_a_request_beyond_its_answer() -> None:
    # A produce request with acks=0 has its answer, none, before its records are written. They count until they are, even if
    # the client has gone meanwhile.
    async def scenario(world: World) -> None:
        size = 100_000
        releases: list[Callable[[], None]] = []

        def handle(context: RequestContext, request: ProduceRequest) -> ProduceResponse:
            context.memory.keep()
            releases.append(context.memory.release)
            return ProduceResponse()

        async with Server(world, {ApiKey.PRODUCE: handle}, limits=ServerLimits(request_memory_bytes=size)) as server:
            first, second = await server.raw(), await server.raw()
            first.send(produce_request(bytes(size)))
            await world.until(lambda: first.frames)
            assert size < server.server.memory.used_bytes < size + 3000
            second.send(produce_request(bytes(size)))
            first.connection.abort()
            await world.sleep(1)
            assert len(releases) == 1
            releases[0]()
            releases[0]()
            await world.until(lambda: len(releases) == 2)
            releases[1]()
            assert server.server.memory.used_bytes == 0

    run_on_seeds(scenario)


def test_requests_keep_their_memory(run: Run) -> None:
    # The record views of large and small pipelined Produce requests are not overwritten by later requests.
    async def scenario(world: World) -> None:
        kept: list[tuple[int, memoryview]] = []

        def handle(context: RequestContext, request: ProduceRequest) -> ProduceResponse:
            kept.append((context.correlation_id, records_in(request)))
            partition = PartitionProduceResponse(index=0)
            return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])

        async with Server(world, {ApiKey.PRODUCE: handle}) as server:
            peer = await server.raw()
            sizes = [1, 100, 70_000, 65_536, 3, 300_000, 64_000, 900_000, 50] * 3
            for number, size in enumerate(sizes):
                peer.send(produce_request(bytes([number]) * size, correlation_id=number))
            await world.until(lambda: len(peer.frames) == len(sizes))
            assert [number for number, _ in kept] == list(range(len(sizes)))
            for (number, records), size in zip(kept, sizes, strict=True):
                assert records == bytes([number]) * size

    run(scenario)


def test_a_handler_knows_the_context(run: Run) -> None:
    # The context names the sender, the listener and the version, and holds the request bytes for forwarding.
    async def scenario(world: World) -> None:
        contexts: list[RequestContext] = []

        def handle(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
            contexts.append(context)
            return MetadataResponse()

        async with Server(world, {ApiKey.METADATA: handle}) as server:
            peer = await server.raw()
            sent = metadata_request("x", 42)
            peer.send(sent)
            await world.until(lambda: peer.frames)
            (context,) = contexts
            assert (context.api_key, context.api_version) == (ApiKey.METADATA, METADATA_VERSION)
            assert (context.correlation_id, context.client_id) == (42, "test")
            assert (context.listener_name, str(context.principal)) == ("TEST", "User:ANONYMOUS")
            assert context.peer_host in ("127.0.0.1", "client")
            assert context.local_host == "127.0.0.1"
            assert context.request_bytes == sent[4:]

    run(scenario)


def test_authorize_comes_before_the_handler(run: Run) -> None:
    # A request that `authorize` refuses gets an error response and never reaches the handler.
    async def scenario(world: World) -> None:
        def authorize(context: RequestContext, request: Any) -> None:
            if context.api_key is ApiKey.PRODUCE:
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

        def never(context: RequestContext, request: Any) -> None:
            raise AssertionError("the handler was called")

        handlers = {**METADATA, ApiKey.PRODUCE: never}
        async with Server(world, handlers, authorize=authorize) as server:
            peer = await server.raw()
            peer.send(produce_request(b"x"), metadata_request("allowed"))
            _, response = await peer.response(ApiKey.PRODUCE, 9)
            code = response.responses[0].partition_responses[0].error_code
            assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            await world.until(lambda: len(peer.frames) == 2)

    run(scenario)


def test_file_regions_are_part_of_responses() -> None:
    # A Fetch response whose records are a range of a log file arrives like any other response.
    async def scenario(world: World) -> None:
        assert isinstance(world, SimulatedTestWorld)
        log_dir = world.node("server").log_dir("/d", operation_timeout_ns=NS_PER_S)
        await log_dir.attach(create=True)
        file = await log_dir.open("log", create=True)
        await log_dir.append(file, 0, [bytes(range(256)) * 1000])

        def handle(context: RequestContext, request: FetchRequest) -> FetchResponse:
            region: FileRegion = log_dir.region(file, 256, 200_000)
            partition = PartitionData(partition_index=0, records=[region, b"end"])
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])

        async with Server(world, {ApiKey.FETCH: handle}) as server:
            peer = await server.raw()
            peer.send(request_bytes(FetchRequest(), 12, correlation_id=1), request_bytes(FetchRequest(), 12))
            for number in range(2):
                _, response = await peer.response(ApiKey.FETCH, 12, number=number)
                records = response.responses[0].partitions[0].records
                assert records == (bytes(range(256)) * 1000)[256:200_256] + b"end"

    run_on_seeds(scenario)


def test_closing_the_server_ends_its_connections(run: Run) -> None:
    # After close no peer is connected and none can connect.
    async def scenario(world: World) -> None:
        async with Server(world, METADATA) as server:
            peer = await server.raw()
            peer.send(metadata_request("x"))
            await world.until(lambda: peer.frames)
            server.server.close()
            await peer.lost()
            with pytest.raises(Exception, match="connect"):
                await server.raw()

    run(scenario)


def test_decoded_requests_count_as_what_they_take_in_memory() -> None:
    # Small frames can decode into large objects, so a waiting request counts as several times its size. Here a single one
    # exceeds the memory limit, and the server reads no other request until it is answered. Records are not decoded and count
    # at their actual size.
    async def scenario(world: World) -> None:
        gate = Gate()
        limits = ServerLimits(request_memory_bytes=50_000)
        handlers: dict[ApiKey, Handler] = {ApiKey.METADATA: gate.handle, ApiKey.PRODUCE: lambda context, request: None}
        async with Server(world, handlers, limits=limits) as server:
            first, second, third = await server.raw(), await server.raw(), await server.raw()
            third.send(produce_request(bytes(20_000), acks=0))
            first.send(metadata_request("a" * 10_000))
            await world.until(lambda: gate.waiting)
            assert server.server.memory.used_bytes > 100_000
            second.send(metadata_request("b"))
            await world.sleep(1)
            assert len(gate.waiting) == 1
            gate.open("a" * 10_000)
            await world.until(lambda: first.frames and gate.waiting)
            gate.open("b")
            await world.until(lambda: second.frames)
            assert server.server.memory.used_bytes == 0

    run_on_seeds(scenario)
