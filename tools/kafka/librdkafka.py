"""What the tools that produce and consume share: clients of librdkafka and the way in which they report errors (shell).

librdkafka logs to stderr by itself and repeats what it says. Here each new error is one line there.
"""

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from admin.config import parse_bootstrap_servers
from admin.errors import AdminError
from tools.errors import ToolError, run_tool
from tools.kafka.client_properties import Properties, consumer_settings, producer_settings
from tools.node.configuration_file import parse_properties

# librdkafka's own log is off: its errors reach `_Errors`.
_NO_LOG: Final = 0
# An error that goes on is printed again after this time.
REPEAT_SECONDS: Final = 30.0
_INTERRUPTED: Final = 128 + signal.SIGINT
Client = TypeVar("Client")


def run_client(main: Callable[[], int], *, ended_by: Sequence[signal.Signals] = (signal.SIGINT,)) -> int:
    """Like `run_tool`, for a tool with a client of librdkafka. Each signal in `ended_by` is a KeyboardInterrupt in `main`,
    and the status is then 128 + signal. A signal that the tool was started to ignore, as under nohup, stays ignored."""
    came: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    heard = [number for number in ended_by if signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, interrupt) for number in heard}
    try:
        status = run_tool(partial(_interruptible, main, came))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 128 + came[-1] if came and status == _INTERRUPTED else status


def _interruptible(main: Callable[[], int], came: Sequence[int]) -> int:
    try:
        return main()
    except SystemError:
        # If a signal comes while librdkafka calls back, confluent-kafka loses the KeyboardInterrupt and raises this instead.
        if not came:
            raise
        raise KeyboardInterrupt from None


def new_producer(properties: Mapping[str, str]) -> Producer:
    """Returns a producer with these settings of the Java client. Does not connect yet. Raises ToolError."""
    return _new(Producer, producer_settings(properties), f"Producer clientId={properties['client.id']}")


def new_consumer(properties: Mapping[str, str], **settings: Any) -> Consumer:
    """Returns a consumer with these settings of the Java client, and with settings of librdkafka. Does not connect yet.
    Raises ToolError."""
    name = f"Consumer clientId={properties['client.id']}, groupId={properties['group.id']}"
    return _new(Consumer, {**consumer_settings(properties), **settings}, name)


def _new(kind: Callable[[dict[str, Any]], Client], settings: Mapping[str, Any], name: str) -> Client:
    try:
        servers = ",".join(map(str, parse_bootstrap_servers(settings["bootstrap.servers"])))
        return kind({**settings, "bootstrap.servers": servers, "error_cb": _Errors(name), "log_level": _NO_LOG})
    except AdminError as error:
        raise ToolError(str(error)) from error
    except KafkaException as error:
        raise ToolError(error.args[0].str()) from error
    except (TypeError, ValueError) as error:
        raise ToolError(str(error)) from error


class _Errors:
    """Prints the errors of a client, each kind at most once in a while."""

    def __init__(self, name: str) -> None:
        self._name = name
        # When each kind was last printed.
        self._printed: dict[int, float] = {}

    def __call__(self, error: KafkaError) -> None:
        now = time.monotonic()
        if now - self._printed.get(error.code(), -REPEAT_SECONDS) >= REPEAT_SECONDS:
            self._printed[error.code()] = now
            print(f"[{self._name}] {error.str()}", file=sys.stderr)


def properties_file(path: str | None) -> Properties:
    """Reads a properties file, an empty one if there is no path. Raises ToolError."""
    if path is None:
        return {}
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ToolError(f"cannot read the configuration {path}: {error.strerror}") from error
    return parse_properties(content, path)
