"""kafka-console-consumer: writes the records of topics to stdout, with Kafka's flags and output (shell).

Counterpart of Kafka's ConsoleConsumer. Without --group, the consumer has a group name of its own and commits nothing. The
number of records goes to stderr at the end, also after Ctrl-C. If the reader of the output closes the pipe, the tool leaves
its group and says nothing.
"""

import argparse
import random
import re
import signal
import sys
import time
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

from tools.arguments import ToolParser, add_client_config
from tools.errors import ToolError
from tools.kafka.client_properties import Properties, key_values
from tools.kafka.librdkafka import new_consumer, properties_file, run_client
from tools.kafka.message_formatters import PACKAGE, ConsumedRecord, Formatter, new_formatter

# Waits at most so long at once, so that Ctrl-C is noticed.
POLL_SECONDS: Final = 0.2
SIGTERM_STATUS: Final = 143
EARLIEST, LATEST = "earliest", "latest"
# Java's consumers leave these out of a pattern.
INTERNAL_TOPICS: Final = "^__consumer_offsets$,^__transaction_state$,^__share_group_state$"
_SPECIAL_OFFSETS: Final = {EARLIEST: OFFSET_BEGINNING, LATEST: OFFSET_END}


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_client(lambda: _run(arguments))


def entry() -> None:
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(main())


def _terminate(_number: int, _frame: Any) -> None:
    # Like Ctrl-C: the consumer leaves its group, and the number of records is printed.
    raise SystemExit(SIGTERM_STATUS)


def command_line() -> ToolParser:
    parser = ToolParser("kafka-console-consumer", "Write the records of topics to stdout.")
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="brokers to connect to")
    parser.add_argument("--topic", help="the topic to read")
    parser.add_argument("--include", metavar="REGEX", help="a regular expression: the topics to read")
    parser.add_argument("--partition", type=int, help="the partition to read, from its end unless --offset is given")
    parser.add_argument("--offset", help="where to begin: a number, earliest or latest (default latest)")
    parser.add_argument("--from-beginning", action="store_true", help="begin with the first record, not with the next")
    parser.add_argument("--group", help="the consumer group")
    parser.add_argument("--max-messages", type=int, default=-1, metavar="N", help="end after N records")
    parser.add_argument("--timeout-ms", type=int, default=-1, metavar="MS", help="end if no record arrives for this time")
    parser.add_argument("--isolation-level", choices=("read_uncommitted", "read_committed"), help="default read_uncommitted")
    parser.add_argument(
        "--property",
        "--formatter-property",
        dest="property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="for the output: print.timestamp, print.partition, print.offset, print.epoch, print.headers, print.key, "
        "print.value (true or false), key.separator (tab), line.separator, headers.separator (,), null.literal, "
        "key.deserializer, value.deserializer, headers.deserializer",
    )
    parser.add_argument("--formatter", default=f"{PACKAGE}DefaultMessageFormatter", metavar="CLASS", help="the formatter")
    parser.add_argument("--formatter-config", metavar="FILE", help="properties file for the formatter")
    parser.add_argument("--key-deserializer", metavar="CLASS", help="the same as the property key.deserializer")
    parser.add_argument("--value-deserializer", metavar="CLASS", help="the same as the property value.deserializer")
    parser.add_argument("--skip-message-on-error", action="store_true", help="go on after a record that cannot be written")
    parser.add_argument(
        "--consumer-property",
        "--command-property",
        dest="consumer_property",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the consumer",
    )
    add_client_config(parser, "consumer")
    return parser


# --- the command line ------------------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> None:
    """Checks what argparse cannot. Raises ToolError in the words of Kafka's tool."""
    if (arguments.topic is None) == (arguments.include is None):
        raise ToolError("Exactly one of --include/--topic is required. ")
    if arguments.partition is not None:
        if arguments.topic is None:
            raise ToolError("The topic is required when partition is specified.")
        if arguments.from_beginning and arguments.offset is not None:
            raise ToolError("Options from-beginning and offset cannot be specified together.")
    elif arguments.offset is not None:
        raise ToolError("The partition is required when offset is specified.")
    if arguments.partition is not None and not 0 <= arguments.partition < 2**31:
        raise ToolError(f"--partition {arguments.partition} is not a partition; it takes a number from 0")
    if arguments.include is not None:
        try:
            re.compile(arguments.include)
        except re.error as error:
            raise ToolError(f"--include {arguments.include} is not a regular expression: {error}") from None


def _start(arguments: argparse.Namespace) -> int:
    """Returns the offset with which the partition is begun."""
    if arguments.offset is None:
        return OFFSET_BEGINNING if arguments.from_beginning else OFFSET_END
    special = _SPECIAL_OFFSETS.get(arguments.offset.lower())
    if special is not None:
        return special
    if not (arguments.offset.isascii() and arguments.offset.isdecimal() and int(arguments.offset) < 2**63):
        raise ToolError(
            f"The provided offset value '{arguments.offset}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )
    return int(arguments.offset)


def _consumer_properties(arguments: argparse.Namespace) -> Properties:
    from_file = properties_file(arguments.consumer_config)
    given = key_values(arguments.consumer_property, "--consumer-property")
    named = [arguments.group, from_file.get("group.id"), given.get("group.id")]
    groups = list(dict.fromkeys(each for each in named if each is not None))
    if len(groups) > 1:
        names = ", ".join(f"'{each}'" for each in groups)
        raise ToolError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer.config') do not match. Detected group ids: {names}"
        )
    if groups and arguments.partition is not None:
        raise ToolError("Options group and partition cannot be specified together.")
    properties = from_file | given
    reset = properties.setdefault("auto.offset.reset", EARLIEST if arguments.from_beginning else LATEST)
    if arguments.from_beginning and reset != EARLIEST:
        raise ToolError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    if arguments.isolation_level is not None:
        properties["isolation.level"] = arguments.isolation_level
    properties.setdefault("client.id", "console-consumer")
    if groups:
        properties["group.id"] = groups[0]
    else:
        properties["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        # Nobody will ask for the offsets of a group with this name.
        properties.setdefault("enable.auto.commit", "false")
    return properties | {"bootstrap.servers": arguments.bootstrap_server}


def _formatter(arguments: argparse.Namespace) -> Formatter:
    properties = properties_file(arguments.formatter_config)
    for key, name in (("key", arguments.key_deserializer), ("value", arguments.value_deserializer)):
        if name:
            properties[f"{key}.deserializer"] = name
    return new_formatter(arguments.formatter, properties | key_values(arguments.property, "--property"))


# --- the work --------------------------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    _check(arguments)
    start, properties, formatter = _start(arguments), _consumer_properties(arguments), _formatter(arguments)
    excludes = properties.get("exclude.internal.topics", "true").lower() != "false"
    hidden = {"topic.blacklist": INTERNAL_TOPICS} if excludes and arguments.include is not None else {}
    consumer = new_consumer(properties, **hidden)
    printer = _Printer(consumer, formatter, skips_errors=arguments.skip_message_on_error)
    is_heard = True
    try:
        if arguments.partition is not None:
            consumer.assign([TopicPartition(arguments.topic, arguments.partition, start)])
        else:
            # librdkafka takes a name that begins with ^ as a regular expression, which need not match the whole name.
            consumer.subscribe([arguments.topic if arguments.topic is not None else f"^({arguments.include})$"])
        printer.run(arguments.max_messages, arguments.timeout_ms)
    except BrokenPipeError:
        is_heard = False
        raise
    except KafkaException as error:
        raise ToolError(error.args[0].str()) from error
    finally:
        consumer.close()
        if is_heard:
            print(f"Processed a total of {printer.count} messages", file=sys.stderr)
    return 0


class _Printer:
    """Writes records to stdout. `count` is how many there were, those included that could not be written."""

    def __init__(self, consumer: Consumer, formatter: Formatter, *, skips_errors: bool) -> None:
        self._consumer = consumer
        self._formatter = formatter
        self._skips_errors = skips_errors
        self._warned: set[int] = set()
        self.count = 0

    def run(self, max_messages: int, timeout_ms: int) -> None:
        """Ends after so many records, or if none arrives for so long; -1 means never."""
        try:
            last = time.monotonic()
            while max_messages < 0 or self.count < max_messages:
                message = self._next()
                if message is not None:
                    self._write(message)
                    last = time.monotonic()
                elif 0 <= timeout_ms <= (time.monotonic() - last) * 1000:
                    print("Error processing message, terminating consumer process: ", file=sys.stderr)
                    print("org.apache.kafka.common.errors.TimeoutException: null", file=sys.stderr)
                    return
        finally:
            sys.stdout.buffer.flush()

    def _next(self) -> Message | None:
        """Returns the next record, None if there is none for a while."""
        message = self._consumer.poll(0)
        if message is None:
            # What was written is read before the wait for more.
            sys.stdout.buffer.flush()
            message = self._consumer.poll(POLL_SECONDS)
        if message is None:
            return None
        error = message.error()
        if error is None:
            return message
        self._handle(error)
        return None

    def _handle(self, error: KafkaError) -> None:
        """Raises ToolError for an error that waiting does not cure, and prints any other once."""
        if error.fatal() or error.code() in _FINAL_ERRORS:
            raise ToolError(error.str())
        if error.code() not in self._warned:
            self._warned.add(error.code())
            print(error.str(), file=sys.stderr)

    def _write(self, message: Message) -> None:
        self.count += 1
        try:
            sys.stdout.buffer.write(self._formatter(_record(message)))
        except ValueError as error:
            text = f"Error processing message: {error}"
            if not self._skips_errors:
                raise ToolError(text) from error
            print(text, file=sys.stderr)


# A consumer that asks again would get the same answer.
_FINAL_ERRORS: Final = frozenset(
    {
        KafkaError.INVALID_GROUP_ID,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.GROUP_MAX_SIZE_REACHED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._INVALID_ARG,
    }
)


def _record(message: Message) -> ConsumedRecord:
    timestamp_type, timestamp_ms = message.timestamp()
    return ConsumedRecord(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp_type,
        timestamp_ms,
        _bytes(message.key()),
        _bytes(message.value()),
        _headers(message),
        message.leader_epoch(),
    )


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers = message.headers() or []
    # A consumer always returns a list.
    assert isinstance(headers, list)
    return [(name, _bytes(value)) for name, value in headers]


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


if __name__ == "__main__":
    entry()
