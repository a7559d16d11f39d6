"""kafka-producer-perf-test: writes records as fast as allowed and prints rates and latencies, with Kafka's flags (shell).

Counterpart of Kafka's ProducerPerformance. The client is librdkafka, called from Python: the figures are those of this
client, and are lower than those of Kafka's tool for small records.
"""

import argparse
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from common.time_units import NS_PER_MS
from tools.arguments import ToolParser, add_client_config
from tools.errors import ToolError
from tools.kafka.client_properties import Properties, key_values
from tools.kafka.librdkafka import new_producer, properties_file, run_client
from tools.kafka.perf_stats import ProducerStats, Throttle

TRANSACTION_MS: Final = 3_000
TRANSACTION_PREFIX: Final = "performance-producer-"
POLL_SECONDS: Final = 0.2
# The letters of a random payload are A to Z.
_LETTERS: Final = bytes(65 + each % 26 for each in range(256))


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_client(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-producer-perf-test", "Measure how fast records are written.", help_status=0)
    parser.add_argument("--topic", required=True, help="the topic to write to")
    parser.add_argument("--num-records", type=int, required=True, metavar="N", help="how many records to write")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=int, metavar="SIZE", help="bytes of a record, random letters")
    payload.add_argument(
        "--payload-file", metavar="FILE", help="a text file with payloads, one of which is chosen each time"
    )
    payload.add_argument("--payload-monotonic", action="store_true", help="the number of the record is its payload")
    parser.add_argument("--payload-delimiter", default="\\n", metavar="TEXT", help="between payloads (default a newline)")
    parser.add_argument("--throughput", type=float, required=True, metavar="N", help="records a second, -1 for no limit")
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT[,…]", help="the same as bootstrap.servers")
    parser.add_argument(
        "--producer-props",
        "--command-property",
        dest="producer_props",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="settings of the producer: bootstrap.servers and others",
    )
    add_client_config(parser, "producer")
    parser.add_argument("--print-metrics", action="store_true", help="print the producer's counters at the end")
    parser.add_argument("--transactional-id", metavar="ID", help="write in transactions with this id")
    parser.add_argument("--transaction-duration-ms", type=int, metavar="MS", help="length of a transaction (default 3000)")
    parser.add_argument("--warmup-records", type=int, default=0, metavar="N", help="records that do not count")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    properties = _check(arguments)
    payloads = _payloads(arguments)
    transactions = _Transactions(arguments, properties)
    producer = new_producer(properties)
    transactions.start(producer)
    stats = _write(producer, arguments, payloads, transactions)
    print(stats.total_line(_now_ms()))
    if arguments.print_metrics:
        print(f"records waiting in the queue: {len(producer)}")
    return 0


def _check(arguments: argparse.Namespace) -> Properties:
    """Returns the producer's properties. Raises ToolError."""
    for option, value in (
        ("--num-records", arguments.num_records),
        ("--record-size", arguments.record_size),
        ("--transaction-duration-ms", arguments.transaction_duration_ms),
    ):
        if value is not None and value <= 0:
            raise ToolError(f"{option} should be greater than zero")
    if not 0 <= arguments.warmup_records < arguments.num_records:
        raise ToolError("--warmup-records should be at least zero and fewer than --num-records")
    given = properties_file(arguments.producer_config) | key_values(arguments.producer_props, "--producer-props")
    if arguments.bootstrap_server is not None:
        given["bootstrap.servers"] = arguments.bootstrap_server
    if "bootstrap.servers" not in given:
        raise ToolError(
            "--bootstrap-server, or bootstrap.servers in --producer-props or --producer.config, must be specified."
        )
    given.setdefault("client.id", "perf-producer-client")
    return given


def _payloads(arguments: argparse.Namespace) -> Iterator[bytes]:
    """Yields the payload of each record. The sequence is the same in every run."""
    rng = random.Random(0)
    if arguments.payload_file is not None:
        choices = _payloads_of_file(arguments.payload_file, arguments.payload_delimiter)
        return (rng.choice(choices) for _ in range(arguments.num_records))
    if arguments.payload_monotonic:
        return (str(number).encode() for number in range(arguments.num_records))
    return (rng.randbytes(arguments.record_size).translate(_LETTERS) for _ in range(arguments.num_records))


def _payloads_of_file(path: str, delimiter: str) -> list[bytes]:
    print(f"Reading payloads from: {Path(path).absolute()}")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ToolError(f"File does not exist or empty file provided: {path}: {error.strerror}") from error
    if not content:
        raise ToolError(f"File does not exist or empty file provided: {path}")
    separator = b"\n" if delimiter == "\\n" else delimiter.encode()
    payloads = content.split(separator) if separator else [content]
    while len(payloads) > 1 and not payloads[-1]:
        # As in Java, nothing behind the last delimiter is no payload.
        payloads.pop()
    print(f"Number of messages read: {len(payloads)}")
    return payloads


class _Transactions:
    """Begins and commits the transactions of a test, if it has any."""

    def __init__(self, arguments: argparse.Namespace, properties: Properties) -> None:
        self._duration_ms = arguments.transaction_duration_ms or TRANSACTION_MS
        self._start_ms: int | None = None
        self._producer: Producer | None = None
        given = arguments.transactional_id or properties.get("transactional.id")
        self._is_wanted = given is not None or arguments.transaction_duration_ms is not None
        if self._is_wanted:
            properties["transactional.id"] = given or f"{TRANSACTION_PREFIX}{uuid.uuid4()}"

    def start(self, producer: Producer) -> None:
        """Raises ToolError."""
        if self._is_wanted:
            self._producer = producer
            _checked(producer.init_transactions)

    def before(self, now_ms: int) -> None:
        if self._producer is not None and self._start_ms is None:
            _checked(self._producer.begin_transaction)
            self._start_ms = now_ms

    def after(self, now_ms: int, *, is_last: bool) -> None:
        if self._producer is None or self._start_ms is None:
            return
        if is_last or now_ms - self._start_ms >= self._duration_ms:
            _checked(self._producer.commit_transaction)
            self._start_ms = None


def _checked(call: Callable[[], Any]) -> None:
    try:
        call()
    except KafkaException as error:
        raise ToolError(error.args[0].str()) from error


def _write(
    producer: Producer, arguments: argparse.Namespace, payloads: Iterator[bytes], transactions: _Transactions
) -> ProducerStats:
    start_ms = _now_ms()
    stats = ProducerStats(arguments.num_records - arguments.warmup_records, start_ms)
    throttle = Throttle(arguments.throughput, start_ms)
    reports = _Reports(stats, warmup=arguments.warmup_records)
    try:
        for number, payload in enumerate(payloads, 1):
            sent_ms = _now_ms()
            transactions.before(sent_ms)
            _send(producer, arguments.topic, payload, reports.callback(sent_ms, len(payload)))
            transactions.after(sent_ms, is_last=False)
            delay_ms = throttle.delay_ms(number, sent_ms)
            while delay_ms > 0:
                producer.poll(min(delay_ms / 1000, POLL_SECONDS))
                delay_ms = throttle.delay_ms(number, _now_ms())
                if arguments.throughput == 0:
                    break
        transactions.after(_now_ms(), is_last=True)
    finally:
        producer.flush()
    return stats


def _send(producer: Producer, topic: str, payload: bytes, on_delivery: Callable[..., None]) -> None:
    while True:
        try:
            producer.produce(topic, payload, on_delivery=on_delivery)
            producer.poll(0)
            return
        except BufferError:
            # Also limits the memory: there is room again when records were acknowledged.
            producer.poll(POLL_SECONDS)
        except KafkaException as error:
            raise ToolError(error.args[0].str()) from error


class _Reports:
    """Notes acknowledged records and prints the lines of the windows. Each kind of error is printed once."""

    def __init__(self, stats: ProducerStats, *, warmup: int) -> None:
        self._stats = stats
        self._warmup = warmup
        self._errors: set[int] = set()

    def callback(self, sent_ms: int, size: int) -> Callable[..., None]:
        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                self._report(error)
                return
            if self._warmup > 0:
                self._warmup -= 1
                if self._warmup == 0:
                    self._stats.restart(_now_ms())
                return
            now_ms = _now_ms()
            line = self._stats.note(now_ms - sent_ms, size, now_ms)
            if line is not None:
                print(line, flush=True)

        return delivered

    def _report(self, error: KafkaError) -> None:
        if error.code() not in self._errors:
            self._errors.add(error.code())
            print(error.str(), file=sys.stderr)


def _now_ms() -> int:
    return time.monotonic_ns() // NS_PER_MS


if __name__ == "__main__":
    entry()
