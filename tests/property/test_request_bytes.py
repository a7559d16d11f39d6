"""Any bytes in any chunks give whole, unchanged frames or the one protocol error.

The frame reader is compared with a simple splitter of the same bytes. The server receives mutated requests beside a healthy
connection, which must not be affected.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.net.frame_reader import FrameReader
from common.protocol.api_keys import ApiKey
from common.protocol.errors import RemoteProtocolError
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.property.profiles import examples
from tests.unit.common.net.worlds import Server, World, echo_name, metadata_request, request_bytes, run_simulated

SIZE_MAX = 400_000


def cut(stream: bytes, sizes: list[int]) -> list[bytes]:
    """Splits the stream into pieces of these sizes and one piece with the rest."""
    pieces, position = [], 0
    for size in sizes:
        pieces.append(stream[position : position + size])
        position += size
    return [piece for piece in [*pieces, stream[position:]] if piece]


def read(pieces: list[bytes], pauses: list[bool]) -> list[bytes]:
    """Returns the frames that a FrameReader finds. Overwrites buffers that it did not take, as a connection would."""
    taken: list[bool] = []
    reader = FrameReader(size_min=1, size_max=SIZE_MAX, take_buffer=lambda: taken.append(True))
    frames: list[memoryview] = []
    for piece, pause in zip(pieces, pauses + [False] * len(pieces), strict=False):
        taken.clear()
        buffer = bytearray(piece)
        reader.receive(memoryview(buffer))
        while not pause and (frame := reader.next_frame()) is not None:
            frames.append(frame)
        reader.keep_rest()
        if not taken:
            buffer[:] = b"\xdd" * len(buffer)
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    return [bytes(frame) for frame in frames]


@given(
    sizes=st.lists(st.one_of(st.integers(1, 300), st.integers(60_000, 140_000)), max_size=6),
    pieces=st.lists(st.one_of(st.integers(1, 40), st.integers(1, 200_000)), max_size=12),
    pauses=st.lists(st.booleans(), max_size=12),
)
@examples(150)
def test_frames_are_what_was_sent(sizes: list[int], pieces: list[int], pauses: list[bool]) -> None:
    # Any frames, cut anywhere, read at once or later.
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    assert read(cut(stream, pieces), pauses) == frames


@given(stream=st.binary(max_size=200), pieces=st.lists(st.integers(1, 20), max_size=10))
@examples(150)
def test_any_bytes_give_frames_or_the_error(stream: bytes, pieces: list[int]) -> None:
    # Where the stream is cut makes no difference, even byte by byte.
    def outcome(cuts: list[bytes]) -> list[bytes] | str:
        try:
            return read(cuts, [])
        except RemoteProtocolError as error:
            return str(error)

    assert outcome(cut(stream, pieces)) == outcome([stream] if stream else []) == outcome(cut(stream, [1] * len(stream)))


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
    # A valid request with a few bytes changed is answered or costs its connection. Nothing else is raised anywhere.
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
