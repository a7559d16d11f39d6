"""Any bytes in any chunks give whole, unchanged frames or raise the declared protocol error.

The frame readers must pass the check of their fuzz target. A server receives mutated requests on one connection, and a
healthy connection beside it must not be affected.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.protocol.api_keys import ApiKey
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.fuzz.targets import TARGETS
from tests.fuzz.wire import FRAME_MAX
from tests.property.profiles import examples
from tests.unit.common.net.worlds import Server, World, echo_name, metadata_request, request_bytes, run_simulated

LENGTHS_REFUSED = st.integers(-(2**31), -1) | st.integers(FRAME_MAX + 1, 2**31 - 1)


@pytest.mark.slow
@given(
    sizes=st.lists(st.integers(0, 300) | st.integers(60_000, 140_000), max_size=6),
    cuts=st.binary(max_size=31),
    end=LENGTHS_REFUSED.map(lambda length: length.to_bytes(4, "big", signed=True)) | st.binary(max_size=200),
)
@examples(250)
def test_any_stream_gives_the_same_frames_however_it_is_cut(sizes: list[int], cuts: bytes, end: bytes) -> None:
    # The stream has frames of any size, followed by a length that must be refused or by any bytes.
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    TARGETS["frames"].check(bytes((len(cuts),)) + cuts + stream + end)


def requests() -> list[bytes]:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"records")])]
    return [metadata_request("name"), request_bytes(ProduceRequest(acks=1, topic_data=data), 9)]


@pytest.mark.slow
@given(
    which=st.integers(0, 1),
    changes=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 255)), max_size=4),
    tail=st.binary(max_size=12),
)
@examples(120)
def test_mutated_requests_hurt_nobody_else(which: int, changes: list[tuple[int, int]], tail: bytes) -> None:
    # The server answers a valid request with a few changed bytes, or closes its connection. Nothing in the server raises an
    # unexpected exception.
    mutated = bytearray(requests()[which])
    for position, value in changes:
        mutated[position % len(mutated)] = value

    async def scenario(world: World) -> None:
        handlers = {ApiKey.METADATA: echo_name, ApiKey.PRODUCE: lambda context, request: None}
        async with Server(world, handlers) as server:
            good, bad = await server.raw(), await server.raw()
            bad.send(bytes(mutated), tail)
            good.send(metadata_request("well"))
            await world.until(lambda: good.frames)
            await world.sleep(40)
            bad.connection.close()
            await world.until(lambda: server.server.connection_count == 1)
            assert server.server.memory.used_bytes == 0

    run_simulated(scenario)
