"""What a fuzzer needs for one decoder: a check that any bytes must pass, valid inputs to start with, and limits.

A check returns if the decoder returned a correct value or raised its one declared error. If the check raises anything, that
is a finding. Nothing here depends on a fuzzer: `make fuzz` runs the checks under atheris, the property tests run them under
Hypothesis.
"""

import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOUND: Final = Path(__file__).parent / "found"
SECONDS_MAX: Final = 2.0


class LimitExceeded(AssertionError):
    """A decoder took more memory or time than its input justifies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One decoder. Its memory is limited to `bytes_at_least` plus `bytes_per_byte` of input, whatever the input claims."""

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Sequence[bytes]]
    size_max: int = 4096
    bytes_at_least: int = 500_000
    # A byte on the wire can become an object with a dictionary and a list.
    bytes_per_byte: int = 150

    def found(self) -> list[bytes]:
        """Returns inputs that once broke the decoder, kept as `tests/fuzz/found/<target>/<what happened>`."""
        return [path.read_bytes() for path in sorted((FOUND / self.name).glob("*"))]


def check_limits(target: Target, data: bytes) -> None:
    """Runs the check, and raises LimitExceeded if it takes too much memory or time."""
    # Run once before measuring: message decoders are compiled on first use.
    target.check(data)
    tracemalloc.start()
    started = time.process_time()
    try:
        target.check(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    seconds = time.process_time() - started
    allowed = target.bytes_at_least + target.bytes_per_byte * len(data)
    if peak > allowed:
        raise LimitExceeded(f"{target.name}: {len(data)} bytes of input took {peak} bytes of memory, {allowed} are allowed")
    if seconds > SECONDS_MAX:
        raise LimitExceeded(f"{target.name}: {len(data)} bytes of input took {seconds:.1f} s")
