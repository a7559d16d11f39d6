"""Target for kafka-dump-log, which people use on damaged files."""

import argparse
import atexit
import contextlib
import gzip
import io
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import cramjam

from common.records.record import Record, encode_batch
from tests.fuzz import records
from tests.fuzz.files import TARGETS as FILE_TARGETS
from tests.fuzz.records import put_right
from tests.fuzz.target import Target
from tools.errors import run_tool
from tools.kafka.dump_log import _dump_all, command_line

# The first byte of the input selects one of these file names and sets of flags. If the byte is odd, checksums are repaired.
_SEGMENT = "00000000000000000000.log"
_NAMES = (
    _SEGMENT,
    "00000000000000000007-0000000001.checkpoint",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
)
_FLAGS = (("--deep-iteration", "--print-data-log"), ("--cluster-metadata-decoder",))


@cache
def _folder() -> Path:
    """Returns one folder for all inputs. Creating and removing one for each input would take longer than the tool."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-dump-log-"))
    atexit.register(shutil.rmtree, folder)
    (folder / _SEGMENT).write_bytes(b"")
    return folder


@cache
def _arguments(name: str, flags: tuple[str, ...]) -> argparse.Namespace:
    return command_line().parse_args(["--files", str(_folder() / name), *flags])


def _check_dump_log(data: bytes) -> None:
    """For any content of the file, the tool exits with status 0, or with status 1 and one line on stderr."""
    first = data[0] if data else 0
    name, flags = _NAMES[first >> 1 & 3], _FLAGS[first >> 3 & 1]
    (_folder() / name).write_bytes(put_right(data[1:]) if first & 1 else data[1:])
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        status = run_tool(lambda: _dump_all(_arguments(name, flags)))
    assert status in (0, 1)
    if status == 1:
        assert len(errors.getvalue().splitlines()) == 1


def _compressed(codec: Callable[[bytes], Any], payload: bytearray) -> bytes:
    return bytes(codec(bytes(payload)))


def _seeds() -> list[bytes]:
    contents = [(0, seed[1:]) for target in records.TARGETS if target.name == "record_batches" for seed in target.seeds()]
    contents += [(8, seed[1:]) for target in records.TARGETS if target.name == "control_records" for seed in target.seeds()]
    contents += [(10, seed[1:]) for target in records.TARGETS if target.name == "snapshot" for seed in target.seeds()]
    contents += [(4, seed) for target in FILE_TARGETS if target.name == "offset_index" for seed in target.seeds()]
    contents += [(6, seed) for target in FILE_TARGETS if target.name == "time_index" for seed in target.seeds()]
    values = [Record(b"key", b"value" * 5, 1000, (("header", b"1"),))]
    codecs = ((1, gzip.compress), (2, cramjam.snappy.compress_raw), (3, cramjam.lz4.compress), (4, cramjam.zstd.compress))
    for code, codec in codecs:
        batch = encode_batch(values, attributes=code, compress=partial(_compressed, codec))
        contents.append((0, bytes(batch)))
    return [bytes((choice | odd,)) + content for choice, content in contents for odd in (0, 1)]


# One byte of zstd data can decompress to 32 KiB.
TARGETS = (
    Target(name="dump_log", check=_check_dump_log, seeds=_seeds, bytes_at_least=2_000_000, bytes_per_byte=2 * 32_768),
)
