"""structlog for the daemons: one event name per kind of event, JSON unless the output is a terminal (shell).

`LOG_FORMAT` (json or console) overrides the terminal check. Events from standard library loggers get the same format, so
that one query finds everything. Only an entry point calls `configure_logging`, once; library modules never do. Each node's
environment binds that node's own logger. A line that cannot be written is dropped.
"""

import contextlib
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

from common.ids import uuid_text


def configure_logging(*, log_format: str | None, stream: TextIO = sys.stderr) -> None:
    """Makes structlog and the standard library's root logger write to `stream`."""
    json_lines = log_format == "json" or (log_format != "console" and not stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _uuids_as_text,
    ]
    lenient = cast(TextIO, _BestEffort(stream))
    renderer: structlog.typing.Processor
    renderer = structlog.processors.JSONRenderer() if json_lines else structlog.dev.ConsoleRenderer(colors=stream.isatty())
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, renderer] if json_lines else [*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        # Write the line and its newline in one call: a process killed between two calls would merge two events into one
        # line.
        logger_factory=structlog.WriteLoggerFactory(lenient),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )
    handler = logging.StreamHandler(lenient)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)


class _BestEffort:
    """Drops lines that cannot be written, as log4j does in Kafka. If the disk of the log is full, or the process that reads
    the log has ended, a node whose own disks work must go on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def _uuids_as_text(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    # A uuid is 16 raw bytes in memory. Log it in the form that people and files use.
    for key, value in event.items():
        if isinstance(value, bytes) and len(value) == 16:
            event[key] = uuid_text(value)
    return event
