"""Each log line is one JSON object, with uuids in Kafka's text form."""

import errno
import io
import json
import logging

import pytest
import structlog

from common.ids import uuid_text
from common.logging_setup import configure_logging


@pytest.fixture(autouse=True)
def _restored_logging() -> object:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield None
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


def test_events_of_both_kinds_are_json_lines() -> None:
    """One event is logged through structlog and one through the standard library."""
    stream = io.StringIO()
    configure_logging(log_format="json", stream=stream)
    directory_id = bytes(range(16))
    structlog.get_logger().info("log_dir_offline", directory_id=directory_id)
    logging.getLogger("asyncio").error("slow %s", "callback")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["event"] == "log_dir_offline"
    assert first["directory_id"] == uuid_text(directory_id)
    assert first["level"] == "info"
    assert second["event"] == "slow callback"


def test_a_line_is_one_write() -> None:
    """A process can be killed between two writes, and after its restart it appends to the same file. The file still holds
    one event per line, because each line is a single write."""

    class Writes(io.StringIO):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def write(self, text: str) -> int:
            self.seen.append(text)
            return super().write(text)

    stream = Writes()
    configure_logging(log_format="json", stream=stream)
    structlog.get_logger().info("broker_running")
    logging.getLogger("asyncio").error("slow")
    assert [json.loads(text)["event"] for text in stream.seen] == ["broker_running", "slow"]
    assert all(text.endswith("\n") for text in stream.seen)


def test_a_line_that_cannot_be_written_is_dropped() -> None:
    """The disk under the log file is full for a while. A node logs from the tasks that serve its own disks, so no caller may
    see the error. When there is room again, new lines are written."""

    class FullDisk(io.StringIO):
        is_full = True

        def write(self, text: str) -> int:
            self._check()
            return super().write(text)

        def flush(self) -> None:
            self._check()

        def _check(self) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")

    stream = FullDisk()
    configure_logging(log_format="json", stream=stream)
    structlog.get_logger().info("lost")
    logging.getLogger("asyncio").error("lost as well")
    stream.is_full = False
    structlog.get_logger().info("broker_running")
    logging.getLogger("asyncio").error("slow")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["broker_running", "slow"]
