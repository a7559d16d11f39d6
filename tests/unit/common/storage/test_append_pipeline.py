"""AppendPipeline over a log directory whose appends end when the test says so."""

import asyncio
from typing import Any, cast

import pytest

from common.environment.interface import LogDir, LogDirError
from common.environment.pending_write import PendingWrite
from common.ids import Offset
from common.storage.append_pipeline import AppendPipeline
from common.storage.segment import Segment, SegmentFile

ERROR = LogDirError("/disk", "append", 5)


class Directory:
    """A LogDir that only takes appends."""

    def __init__(self) -> None:
        self.writes: list[PendingWrite] = []

    def start_append(self, file: object, position: int, buffers: object, write: PendingWrite) -> None:
        self.writes.append(write)


class Appends:
    """A pipeline, and what came of each append: its number if it was written, or the error."""

    def __init__(self) -> None:
        self.directory = Directory()
        self.failures: list[LogDirError | None] = []
        log_dir = cast(LogDir, self.directory)
        self.pipeline = AppendPipeline(log_dir, Offset(0), self.fail)
        self.segment = Segment(log_dir, "t-0", 0)
        self.segment.file = SegmentFile(log_dir, cast(Any, object()))
        self.ended: list[int | LogDirError | None] = []

    def fail(self, error: LogDirError | None) -> None:
        self.failures.append(error)
        self.pipeline.fail(error)

    def send(self, number: int, *, must_be_synced: bool = False) -> None:
        self.segment.size = number + 1
        self.pipeline.send(
            self.segment,
            number,
            [memoryview(b"x")],
            Offset(number + 1),
            must_be_synced=must_be_synced,
            on_written=lambda: self.ended.append(number),
            on_failed=self.ended.append,
        )


async def test_appends_that_are_written_together_end_together_and_in_order() -> None:
    """The callbacks run in the next step of the event loop, when the pipeline counts all of them as written."""
    appends = Appends()
    offsets: list[int] = []
    for number in range(4):
        appends.send(number)
    appends.pipeline.when_written(
        on_written=lambda: offsets.append(appends.pipeline.written_offset), on_failed=lambda _: None
    )
    for number in (2, 0, 1):
        appends.directory.writes[number].set_result(None)
    assert appends.ended == []
    assert appends.pipeline.written_offset == appends.segment.written_size == 3
    await asyncio.sleep(0)
    assert appends.ended == [0, 1, 2]
    assert offsets == []
    appends.directory.writes[3].set_result(None)
    await asyncio.sleep(0)
    assert appends.ended == [0, 1, 2, 3]
    assert offsets == [4]
    assert appends.pipeline.is_idle
    appends.pipeline.when_written(on_written=lambda: offsets.append(-1), on_failed=lambda _: None)
    assert offsets == [4]
    await asyncio.sleep(0)
    assert offsets == [4, -1]


async def test_an_append_that_must_be_synced_ends_with_the_later_of_write_and_sync() -> None:
    """The first two must be synced. Whatever comes last, the appends end in order, and a sync that ends where the first one
    does says nothing of the second."""
    appends = Appends()
    pipeline, writes = appends.pipeline, appends.directory.writes
    for number in range(3):
        appends.send(number, must_be_synced=number < 2)
    for number in (1, 2):
        writes[number].set_result(None)
    pipeline.note_synced(Offset(1))
    assert pipeline.has_unsynced
    assert pipeline.written_offset == 0
    writes[0].set_result(None)
    assert pipeline.written_offset == appends.segment.written_size == 1
    assert pipeline.is_idle
    pipeline.note_synced(Offset(2))
    assert not pipeline.has_unsynced
    assert pipeline.written_offset == 3
    assert pipeline.is_idle
    await asyncio.sleep(0)
    assert appends.ended == [0, 1, 2]


async def test_a_failure_takes_back_what_waits_for_a_sync() -> None:
    appends = Appends()
    appends.send(0, must_be_synced=True)
    appends.directory.writes[0].set_result(None)
    appends.fail(ERROR)
    assert not appends.pipeline.has_unsynced
    appends.pipeline.note_synced(Offset(1))
    await asyncio.sleep(0)
    assert appends.ended == [ERROR]
    assert appends.pipeline.written_offset == 0


@pytest.mark.parametrize("error", [ERROR, None], ids=["error", "shutdown"])
async def test_a_failure_takes_back_what_comes_after_it(error: LogDirError | None) -> None:
    """The first append is written, the second fails, the third is written behind a hole."""
    appends = Appends()
    for number in range(3):
        appends.send(number)
    first, second, third = appends.directory.writes
    first.set_result(None)
    if error is None:
        second.cancel()
    else:
        second.set_exception(error)
        # A directory may fail many appends in a row. None of them goes on in the code of its log meanwhile.
        assert appends.failures == []
    third.set_result(None)
    for _ in range(2):
        await asyncio.sleep(0)
    assert appends.failures == [error]
    assert appends.ended == [0, error, error]
    assert appends.pipeline.written_offset == 1
    assert appends.pipeline.is_idle


async def test_a_callback_that_fails_keeps_none_from_being_called() -> None:
    """An unexpected exception ends the daemon. Until then, what is written is acknowledged."""
    appends = Appends()
    seen: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.append(context["exception"]))
    appends.send(0)
    error = ZeroDivisionError()

    def fail() -> None:
        raise error

    appends.pipeline.when_written(on_written=fail, on_failed=lambda _: None)
    appends.send(1)
    for write in appends.directory.writes:
        write.set_result(None)
    for _ in range(2):
        await asyncio.sleep(0)
    assert seen == [error]
    assert appends.ended == [0, 1]
