"""kafka-consumer-perf-test: reads a topic as fast as it can and prints rates, with Kafka's flags and output (shell).

Counterpart of Kafka's ConsumerPerformance. The client is librdkafka, called from Python: the figures are those of this
client.
"""

import argparse
import random
import re
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from common.time_units import NS_PER_MS
from tools.arguments import ToolParser, add_client_config
from tools.errors import ToolError
from tools.kafka.client_properties import Properties, key_values
from tools.kafka.librdkafka import new_consumer, properties_file, run_client
from tools.kafka.perf_stats import (
    CONSUMER_DETAILED_HEADER,
    CONSUMER_HEADER,
    Consumed,
    consumer_line,
    progress_line,
)

DATE_FORMAT: Final = "yyyy-MM-dd HH:mm:ss:SSS"
POLL_SECONDS: Final = 0.1
RECORDS_PER_POLL: Final = 500
# The fields of java.text.SimpleDateFormat that have a counterpart in strftime.
_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {"y": "%Y", "M": "%m", "d": "%d", "H": "%H", "h": "%I", "m": "%M", "s": "%S", "a": "%p", "E": "%a", "Z": "%z"}
)
_FIELD: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_client(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-consumer-perf-test", "Measure how fast records are read.")
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="brokers to connect to")
    parser.add_argument("--topic", required=True, help="the topic to read")
    parser.add_argument(
        "--messages", "--num-records", dest="messages", type=int, required=True, metavar="N", help="how many"
    )
    parser.add_argument("--group", help="the consumer group (default a new one)")
    parser.add_argument("--fetch-size", type=int, default=1_048_576, metavar="SIZE", help="bytes per partition and request")
    parser.add_argument("--from-latest", action="store_true", help="begin at the end, if the group has no offsets")
    parser.add_argument("--socket-buffer-size", type=int, default=2_097_152, metavar="SIZE", help="receive buffer")
    add_client_config(parser, "consumer")
    parser.add_argument(
        "--command-property", action="append", default=[], metavar="KEY=VALUE", help="a setting of the consumer"
    )
    parser.add_argument("--timeout", type=int, default=10_000, metavar="MS", help="end if no record arrives for this time")
    parser.add_argument("--show-detailed-stats", action="store_true", help="print a line in each interval")
    parser.add_argument("--reporting-interval", type=int, default=5_000, metavar="MS", help="length of the interval")
    parser.add_argument("--date-format", default=DATE_FORMAT, metavar="FORMAT", help=f"of the times (default {DATE_FORMAT})")
    parser.add_argument("--hide-header", action="store_true", help="leave out the names of the columns")
    parser.add_argument("--print-metrics", action="store_true", help="print the partitions that were read at the end")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.reporting_interval <= 0:
        raise ToolError("Reporting interval must be greater than 0.")
    if arguments.messages < 0:
        raise ToolError("--messages must not be negative")
    _date_text(0, arguments.date_format)
    consumer = new_consumer(_properties(arguments))
    if not arguments.hide_header:
        print(CONSUMER_DETAILED_HEADER if arguments.show_detailed_stats else CONSUMER_HEADER)
    test = _Test(consumer, arguments)
    try:
        begin, end = test.run()
        positions = consumer.position(consumer.assignment()) if arguments.print_metrics else []
    except KafkaException as error:
        raise ToolError(error.args[0].str()) from error
    finally:
        consumer.close()
    if not arguments.show_detailed_stats:
        times = [_date_text(each.time_ms, arguments.date_format) for each in (begin, end)]
        print(consumer_line(begin, end, *times))
    for each in positions:
        print(f"{each.topic}-{each.partition}: position {each.offset}")
    return 0


def _properties(arguments: argparse.Namespace) -> Properties:
    given = properties_file(arguments.consumer_config) | key_values(arguments.command_property, "--command-property")
    given.setdefault("client.id", "perf-consumer-client")
    return given | {
        "bootstrap.servers": arguments.bootstrap_server,
        "group.id": arguments.group or given.get("group.id") or f"perf-consumer-{random.randrange(100_000)}",
        "receive.buffer.bytes": str(arguments.socket_buffer_size),
        "max.partition.fetch.bytes": str(arguments.fetch_size),
        "auto.offset.reset": "latest" if arguments.from_latest else "earliest",
        "check.crcs": "false",
    }


class _Test:
    """Reads until there were enough records, or none came for the timeout."""

    def __init__(self, consumer: Consumer, arguments: argparse.Namespace) -> None:
        self._consumer = consumer
        self._arguments = arguments
        self._count = 0
        self._bytes = 0
        self._rebalance_ms = 0
        self._join_start_ms = 0
        self._warned: set[int] = set()

    def run(self) -> tuple[Consumed, Consumed]:
        """Returns what had been read at the start, and at the end. Raises ToolError and KafkaException."""
        begin = Consumed(_now_ms())
        self._join_start_ms = begin.time_ms
        self._consumer.subscribe([self._arguments.topic], on_assign=self._assigned, on_revoke=self._revoked)
        reported, last_record_ms, now_ms = begin, begin.time_ms, begin.time_ms
        while self._count < self._arguments.messages and now_ms - last_record_ms <= self._arguments.timeout:
            if self._poll():
                last_record_ms = _now_ms()
            now_ms = _now_ms()
            if now_ms - reported.time_ms >= self._arguments.reporting_interval:
                current = self._read(now_ms)
                if self._arguments.show_detailed_stats:
                    text = _date_text(now_ms, self._arguments.date_format)
                    print(progress_line(reported, current, text), flush=True)
                reported = current
        if self._count < self._arguments.messages:
            print(
                "WARNING: Exiting before consuming the expected number of messages: timeout "
                f"({self._arguments.timeout} ms) exceeded. You can use the --timeout option to increase the timeout."
            )
        return begin, self._read(_now_ms())

    def _read(self, now_ms: int) -> Consumed:
        return Consumed(now_ms, self._count, self._bytes, self._rebalance_ms)

    def _poll(self) -> int:
        """Reads some records and returns how many."""
        wanted = min(RECORDS_PER_POLL, self._arguments.messages - self._count)
        count = 0
        for message in self._consumer.consume(wanted, POLL_SECONDS):
            error = message.error()
            if error is not None:
                self._handle(error)
                continue
            count += 1
            self._bytes += len(message.key() or b"") + len(message.value() or b"")
        self._count += count
        return count

    def _handle(self, error: KafkaError) -> None:
        if error.fatal():
            raise ToolError(error.str())
        if error.code() not in self._warned:
            self._warned.add(error.code())
            print(error.str(), file=sys.stderr)

    def _assigned(self, _consumer: Consumer, _partitions: list[Any]) -> None:
        self._rebalance_ms += _now_ms() - self._join_start_ms

    def _revoked(self, _consumer: Consumer, _partitions: list[Any]) -> None:
        self._join_start_ms = _now_ms()


def _date_text(time_ms: int, form: str) -> str:
    """Formats a time in the fields of java.text.SimpleDateFormat. Raises ToolError for a field that is not known here."""
    seconds, ms = divmod(time_ms, 1000)
    when = datetime.fromtimestamp(seconds).astimezone()
    parts = []
    for match in _FIELD.finditer(form):
        text, letter = match.group(0), match.group(2)
        if letter is None:
            quoted = match.group(1)
            parts.append(text if quoted is None else quoted.replace("''", "'") or "'")
        elif letter == "S":
            parts.append(f"{ms:0{len(text)}d}")
        elif letter in _FIELDS:
            value = when.strftime(_FIELDS[letter])
            parts.append(value[-2:] if letter == "y" and len(text) == 2 else value)
        else:
            raise ToolError(f"--date-format {form}: the field {text} is not supported; it takes {''.join(_FIELDS)}S")
    return "".join(parts)


def _now_ms() -> int:
    return time.time_ns() // NS_PER_MS


if __name__ == "__main__":
    entry()
