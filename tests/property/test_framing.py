"""The framer finds the same frames however the stream is split into chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.protocol.errors import FrameTooLarge
from common.protocol.framing import RequestFramer
from tests.property.profiles import examples

MAX_SIZE = 64
FRAMES = st.lists(st.binary(max_size=MAX_SIZE), max_size=6)


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


def cut_into(stream: bytes, chunks: list[bytes]) -> list[bytes]:
    """Returns the frames of a stream that arrives in these chunks, up to the first framing error."""
    framer = RequestFramer(MAX_SIZE)
    found = []
    for chunk in chunks:
        framer.receive_data(chunk)
        assert framer.buffered_bytes <= len(stream)
        while (frame := framer.next_frame()) is not None:
            found.append(frame)
    return [bytes(frame) for frame in found]


@examples(200)
@given(FRAMES, st.lists(st.integers(1, 40), max_size=20))
def test_any_cut_gives_the_same_frames(frames: list[bytes], sizes: list[int]) -> None:
    """Whole, byte by byte or in any chunks: the same frames in the same order, and earlier frames stay valid."""
    stream = stream_of(frames)
    chunks, position = [], 0
    for size in sizes:
        chunks.append(stream[position : position + size])
        position += size
    chunks.append(stream[position:])
    assert cut_into(stream, [stream]) == frames
    assert cut_into(stream, [stream[index : index + 1] for index in range(len(stream))]) == frames
    assert cut_into(stream, chunks) == frames


@examples(200)
@given(FRAMES, st.integers(-(2**31), -1) | st.integers(MAX_SIZE + 1, 2**31 - 1))
def test_a_bad_length_is_refused_after_the_good_frames(frames: list[bytes], length: int) -> None:
    """A negative or excessive length raises once its four bytes have arrived, and on every later call."""
    framer = RequestFramer(MAX_SIZE)
    framer.receive_data(stream_of(frames) + length.to_bytes(4, "big", signed=True))
    for frame in frames:
        found = framer.next_frame()
        assert found is not None
        assert bytes(found) == frame
    for _ in range(2):
        with pytest.raises(FrameTooLarge):
            framer.next_frame()
