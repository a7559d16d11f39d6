"""kafka-console-producer: writes the lines of stdin to a topic, with Kafka's flags (shell).

Counterpart of Kafka's ConsoleProducer. As there, a record that cannot be written is an error line on stderr, and the status
is 0 unless --sync is given. A topic that stays unknown for --max-block-ms ends the tool with status 1, instead of after that
time for every line.
"""

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tools.arguments import ToolParser, add_client_config
from tools.errors import ToolError
from tools.kafka.client_properties import Properties, key_values, merged
from tools.kafka.librdkafka import new_producer, properties_file, run_client
from tools.kafka.line_reader import Line, LineReader

READER: Final = "org.apache.kafka.tools.LineMessageReader"
# Each waits at most so long at once, so that Ctrl-C is noticed.
POLL_SECONDS: Final = 0.2
METADATA_SECONDS: Final = 1.0


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    # As in Kafka, what was read is written first.
    return run_client(lambda: _run(arguments), ended_by=(signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-console-producer", "Write the lines of stdin to a topic.")
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="brokers to connect to")
    parser.add_argument("--topic", required=True, help="the topic to write to")
    parser.add_argument("--sync", action="store_true", help="wait for each record before the next line is read")
    parser.add_argument(
        "--compression-codec",
        nargs="?",
        const="gzip",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        help="compression of the records (default none; gzip without a value)",
    )
    parser.add_argument("--batch-size", type=int, metavar="SIZE", help="bytes of a batch (default 16384)")
    parser.add_argument("--max-partition-memory-bytes", type=int, metavar="SIZE", help="the same, and preferred to it")
    parser.add_argument("--max-memory-bytes", type=int, metavar="SIZE", help="memory for what waits (default 33554432)")
    parser.add_argument("--message-send-max-retries", type=int, metavar="N", help="retries of a record (default 3)")
    parser.add_argument("--retry-backoff-ms", type=int, metavar="MS", help="pause before a retry (default 100)")
    parser.add_argument("--timeout", type=int, metavar="MS", help="how long a batch waits for more records (default 1000)")
    parser.add_argument("--request-required-acks", choices=("0", "1", "-1", "all"), help="default -1")
    parser.add_argument("--request-timeout-ms", type=int, metavar="MS", help="time for the replicas (default 1500)")
    parser.add_argument("--metadata-expiry-ms", type=int, metavar="MS", help="age of metadata (default 300000)")
    parser.add_argument("--max-block-ms", type=int, metavar="MS", help="how long to wait for the topic (default 60000)")
    parser.add_argument("--socket-buffer-size", type=int, metavar="SIZE", help="send buffer (default 102400)")
    parser.add_argument("--line-reader", default=READER, metavar="CLASS", help=f"{READER}, the only one here")
    parser.add_argument(
        "--property",
        "--reader-property",
        dest="property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="for lines: parse.key, key.separator (tab), parse.headers, headers.delimiter (tab), headers.separator (,), "
        "headers.key.separator (:), null.marker, ignore.error",
    )
    parser.add_argument("--reader-config", metavar="FILE", help="properties file for the reader")
    parser.add_argument(
        "--producer-property",
        "--command-property",
        dest="producer_property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the producer",
    )
    add_client_config(parser, "producer")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.line_reader.rpartition(".")[2] != READER.rpartition(".")[2]:
        raise ToolError(f"--line-reader {arguments.line_reader} is not supported; it takes {READER}")
    reader = LineReader(properties_file(arguments.reader_config) | key_values(arguments.property, "--property"))
    properties = _producer_properties(arguments)
    max_block_ms = properties["max.block.ms"]
    if not (max_block_ms.isascii() and max_block_ms.isdecimal()):
        raise ToolError(f"max.block.ms={max_block_ms} is not a number of milliseconds")
    producer = new_producer(properties)
    sender = _Sender(producer, arguments.topic, is_sync=arguments.sync, max_block_ms=int(max_block_ms))
    try:
        for line in _lines():
            sender.send(reader.read(line))
    finally:
        # Also after a signal and after a line that cannot be read: what was accepted is written.
        producer.flush()
    return 0


def _producer_properties(arguments: argparse.Namespace) -> Properties:
    given = properties_file(arguments.producer_config) | key_values(arguments.producer_property, "--producer-property")
    batch_size = arguments.max_partition_memory_bytes
    properties = merged(
        given,
        {
            "client.id": (None, "console-producer"),
            "compression.type": (arguments.compression_codec, "none"),
            "linger.ms": (arguments.timeout, 1000),
            "acks": (arguments.request_required_acks, -1),
            "request.timeout.ms": (arguments.request_timeout_ms, 1500),
            "retries": (arguments.message_send_max_retries, 3),
            "retry.backoff.ms": (arguments.retry_backoff_ms, 100),
            "send.buffer.bytes": (arguments.socket_buffer_size, 102_400),
            "buffer.memory": (arguments.max_memory_bytes, 33_554_432),
            "batch.size": (arguments.batch_size if batch_size is None else batch_size, 16_384),
            "metadata.max.age.ms": (arguments.metadata_expiry_ms, 300_000),
            "max.block.ms": (arguments.max_block_ms, 60_000),
        },
    )
    return properties | {"bootstrap.servers": arguments.bootstrap_server}


def _lines() -> Iterator[bytes]:
    """Yields the lines of stdin without their ends. A terminal gets a prompt before each."""
    prompts = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        if prompts:
            print(">", end="", flush=True)
        try:
            line = sys.stdin.buffer.readline()
        except OSError as error:
            raise ToolError(f"stdin cannot be read: {error.strerror}") from error
        if not line:
            return
        yield line.removesuffix(b"\n").removesuffix(b"\r")


class _Sender:
    """Writes records to a topic. The first waits until the topic is known."""

    def __init__(self, producer: Producer, topic: str, *, is_sync: bool, max_block_ms: int) -> None:
        self._producer = producer
        self._topic = topic
        self._is_sync = is_sync
        self._max_block_ms = max_block_ms
        self._is_known = False
        # The error of the last record that was waited for.
        self._error: KafkaError | None = None

    def send(self, line: Line) -> None:
        """Raises ToolError if the topic is not known in time, and with --sync if the record is not written."""
        self._wait_for_topic()
        while True:
            try:
                self._producer.produce(
                    self._topic, line.value, line.key, headers=[*line.headers], on_delivery=self._delivered
                )
                break
            except BufferError:
                # The memory for waiting records is used up.
                self._producer.poll(POLL_SECONDS)
            except KafkaException as error:
                # The record was refused at once, because it is too large for one.
                self._error = error.args[0]
                if not self._is_sync:
                    self._report(error.args[0], line.key, line.value)
                    return
                break
        if not self._is_sync:
            self._producer.poll(0)
            return
        self._producer.flush()
        if self._error is not None:
            raise ToolError(self._error.str())

    def _wait_for_topic(self) -> None:
        deadline = time.monotonic() + self._max_block_ms / 1000
        reason = ""
        while not self._is_known:
            left = deadline - time.monotonic()
            if left > 0:
                try:
                    described = self._producer.list_topics(self._topic, timeout=min(left, METADATA_SECONDS))
                    error = described.topics[self._topic].error
                except KafkaException as failed:
                    error = failed.args[0]
                self._is_known = error is None
                # A topic that the broker creates on demand has no leader yet.
                reason = "" if error is None else f" ({error.str()})"
                if error is not None and error.code() == KafkaError.TOPIC_EXCEPTION:
                    raise ToolError(f"{self._topic} is not a valid topic name{reason}")
            if not self._is_known:
                if time.monotonic() >= deadline:
                    raise ToolError(f"Topic {self._topic} not present in metadata after {self._max_block_ms} ms.{reason}")
                self._producer.poll(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self._error = error
        if error is not None and not self._is_sync:
            self._report(error, message.key(), message.value())

    def _report(self, error: KafkaError, key: bytes | str | None, value: bytes | str | None) -> None:
        sizes = [f"{len(each)} bytes" if each is not None else "null" for each in (key, value)]
        print(
            f"Error when sending message to topic {self._topic} with key: {sizes[0]}, value: {sizes[1]} with error: "
            f"{error.str()}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    entry()
