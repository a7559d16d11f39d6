"""Every decoder returns the right value or raises its one declared error, on valid, damaged and once harmful inputs.

The checks are those of `make fuzz`, which searches for new inputs guided by coverage. Here they run without a fuzzer.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.target import Target, check_limits
from tests.fuzz.targets import TARGETS
from tests.property.profiles import examples

INTERESTING = st.sampled_from(
    [b"\0", b"\x7f", b"\x80", b"\xff", b"\xff" * 4, b"\x7f" + b"\xff" * 3, b"\n", b"9" * 20, b"\\"]
)
# Position (as a fraction of the input), number of bytes removed, and the bytes inserted there.
CHANGES = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 6), INTERESTING | st.binary(max_size=4)), min_size=1, max_size=4
)
EXAMPLES = 100
EXAMPLES_OF_SLOW = 25


def damaged(data: bytes, changes: list[tuple[float, int, bytes]], other: bytes, splice: float | None) -> bytes:
    """Applies the changes to `data`. With `splice`, replaces all bytes after that fraction by the end of `other`."""
    result = bytearray(data)
    for where, removed, inserted in changes:
        position = int(where * len(result))
        result[position : position + removed] = inserted
    if splice is not None:
        result[int(splice * len(result)) :] = other[int(splice * len(other)) :]
    return bytes(result)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_valid_and_once_harmful_inputs_pass_within_the_limits(target: Target) -> None:
    """The fuzzer's seeds and past findings pass within the limits of memory and time."""
    inputs = [b"", *target.seeds(), *target.found()]
    for data in inputs:
        target.check(data)
    for data in inputs[:: max(1, len(inputs) // 20)]:
        check_limits(target, data)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_damaged_inputs_pass_within_the_limits(target: Target) -> None:
    """Inputs that were changed, cut, extended or spliced stay within the limits as well."""
    seeds = st.sampled_from([*target.seeds(), *target.found()])

    @examples(EXAMPLES_OF_SLOW if target.name == "segments" else EXAMPLES)
    @given(st.builds(damaged, seeds, CHANGES, seeds, st.none() | st.floats(0, 1)) | st.binary(max_size=100))
    def check(data: bytes) -> None:
        check_limits(target, data)

    check()
