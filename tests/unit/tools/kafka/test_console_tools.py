"""kafka-console-producer and kafka-console-consumer: their command lines, and their work on clients that are not connected.

What they write and read is tested with a cluster, in tests/interop/test_client_tools.py.
"""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, Producer

from tools.kafka import console_consumer, console_producer, librdkafka

SERVER = ("--bootstrap-server", "127.0.0.1:1")
Main = Callable[[list[str]], int]


class Stdin(io.TextIOWrapper):
    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))


def status_of(main: Main, *arguments: str) -> int:
    try:
        return main([*SERVER, *arguments])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else -1


# --- producer --------------------------------------------------------------------------------------------------------


class FakeMetadata:
    def __init__(self, topic: str, error: KafkaError | None) -> None:
        self.topics = {topic: self}
        self.error = error


class FakeProducer:
    """Delivers each record at the next flush, or refuses it: `tiny` at once, `lost` at delivery."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties
        self.sent: list[tuple[Any, ...]] = []
        self.flushes = 0
        self.unknown = 0
        self._waiting: list[tuple[Callable[..., None], KafkaError | None, FakeMessage]] = []

    def list_topics(self, topic: str, timeout: float) -> FakeMetadata:
        assert timeout > 0
        self.unknown -= 1
        return FakeMetadata(topic, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART) if self.unknown >= 0 else None)

    def produce(self, topic: str, value: Any, key: Any, *, headers: Any, on_delivery: Callable[..., None]) -> None:
        if value == b"tiny":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        error = KafkaError(KafkaError._MSG_TIMED_OUT) if value == b"lost" else None
        self.sent.append((topic, key, value, headers))
        self._waiting.append((on_delivery, error, FakeMessage(key, value)))

    def poll(self, _timeout: float) -> int:
        return 0

    def flush(self) -> int:
        self.flushes += 1
        for on_delivery, error, message in self._waiting:
            on_delivery(error, message)
        self._waiting.clear()
        return 0


class FakeMessage:
    def __init__(self, key: bytes | None, value: bytes | None) -> None:
        self._key, self._value = key, value

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


@pytest.fixture
def producers(monkeypatch: pytest.MonkeyPatch) -> list[FakeProducer]:
    """The producers that the tool makes."""
    made: list[FakeProducer] = []

    def new_producer(properties: Mapping[str, str]) -> FakeProducer:
        made.append(FakeProducer(properties))
        return made[-1]

    monkeypatch.setattr(console_producer, "new_producer", new_producer)
    return made


def produce(monkeypatch: pytest.MonkeyPatch, content: bytes, *arguments: str) -> int:
    monkeypatch.setattr(sys, "stdin", Stdin(content))
    return status_of(console_producer.main, "--topic", "t", *arguments)


def test_each_line_is_a_record(monkeypatch: pytest.MonkeyPatch, producers: list[FakeProducer]) -> None:
    """A last line without an end counts. Everything is flushed at the end."""
    assert produce(monkeypatch, b"a\n\nb\r\n\xff", "--property", "parse.key=false") == 0
    (producer,) = producers
    assert [value for _, _, value, _ in producer.sent] == [b"a", b"", b"b", b"\xff"]
    assert producer.flushes == 1


def test_no_line_is_no_record(monkeypatch: pytest.MonkeyPatch, producers: list[FakeProducer]) -> None:
    assert produce(monkeypatch, b"") == 0
    assert [producer.sent for producer in producers] == [[]]


def test_the_defaults_and_the_options(monkeypatch: pytest.MonkeyPatch, producers: list[FakeProducer], tmp_path: Any) -> None:
    """An option comes before a property, and a property before the file."""
    assert produce(monkeypatch, b"") == 0
    path = tmp_path / "producer.properties"
    path.write_text("linger.ms=1\nacks=1\nclient.id=file\n")
    given = ("--producer.config", str(path), "--producer-property", "acks=0", "--producer-property", "batch.size=1")
    assert produce(monkeypatch, b"", *given, "--compression-codec", "--max-partition-memory-bytes", "7") == 0
    first, second = (dict(producer.properties) for producer in producers)
    assert first == {
        "bootstrap.servers": "127.0.0.1:1",
        "client.id": "console-producer",
        "compression.type": "none",
        "linger.ms": "1000",
        "acks": "-1",
        "request.timeout.ms": "1500",
        "retries": "3",
        "retry.backoff.ms": "100",
        "send.buffer.bytes": "102400",
        "buffer.memory": "33554432",
        "batch.size": "16384",
        "metadata.max.age.ms": "300000",
        "max.block.ms": "60000",
    }
    assert second == first | {
        "client.id": "file",
        "compression.type": "gzip",
        "linger.ms": "1",
        "acks": "0",
        "batch.size": "7",
    }


def test_records_that_are_not_written(
    monkeypatch: pytest.MonkeyPatch, producers: list[FakeProducer], capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are. As in Kafka, that is status 0."""
    assert produce(monkeypatch, b"a\ntiny\nlost\nb\n") == 0
    assert [value for _, _, value, _ in producers[0].sent] == [b"a", b"lost", b"b"]
    error = "Error when sending message to topic t with key: null, value: 4 bytes with error: "
    assert [line.startswith(error) for line in capsys.readouterr().err.splitlines()] == [True, True]


@pytest.mark.parametrize("bad", [b"tiny", b"lost"])
def test_with_sync_the_first_error_ends_the_tool(
    bad: bytes, monkeypatch: pytest.MonkeyPatch, producers: list[FakeProducer], capsys: pytest.CaptureFixture[str]
) -> None:
    assert produce(monkeypatch, b"a\n" + bad + b"\nb\n", "--sync") == 1
    assert b"b" not in [value for _, _, value, _ in producers[0].sent]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_was_read_before_a_wrong_line_is_written(
    monkeypatch: pytest.MonkeyPatch, producers: list[FakeProducer], capsys: pytest.CaptureFixture[str]
) -> None:
    assert produce(monkeypatch, b"k\tv\nwrong\n", "--property", "parse.key=true") == 1
    assert producers[0].sent == [("t", b"k", b"v", [])]
    assert producers[0].flushes == 1
    assert capsys.readouterr().err == "No key separator found on line number 2: 'wrong'\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_writes_what_was_read(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, producers: list[FakeProducer]
) -> None:
    """The status is that of a process that the signal ends. Afterwards, the signal does what it did before."""

    def lines() -> Iterator[bytes]:
        yield b"one"
        os.kill(os.getpid(), number)
        yield b"two"

    # Without the tool's handler, the tests would end here.
    previous = signal.signal(number, lambda *_: None)
    ours = signal.getsignal(number)
    monkeypatch.setattr(console_producer, "_lines", lines)
    try:
        assert produce(monkeypatch, b"") == 128 + number
        assert signal.getsignal(number) is ours
    finally:
        signal.signal(number, previous)
    assert [value for _, _, value, _ in producers[0].sent] == [b"one"]
    assert producers[0].flushes == 1


def test_under_nohup_a_producer_goes_on(monkeypatch: pytest.MonkeyPatch, producers: list[FakeProducer]) -> None:
    def lines() -> Iterator[bytes]:
        yield b"one"
        os.kill(os.getpid(), signal.SIGHUP)
        yield b"two"

    monkeypatch.setattr(console_producer, "_lines", lines)
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert produce(monkeypatch, b"") == 0
    finally:
        signal.signal(signal.SIGHUP, previous)
    assert [value for _, _, value, _ in producers[0].sent] == [b"one", b"two"]


def test_a_topic_that_stays_unknown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The wait ends after --max-block-ms. Nothing was sent."""
    producer = FakeProducer({})
    producer.unknown = 1_000_000
    monkeypatch.setattr(console_producer, "new_producer", lambda _: producer)
    assert produce(monkeypatch, b"a\n", "--max-block-ms", "20") == 1
    assert producer.sent == []
    assert capsys.readouterr().err.startswith("Topic t not present in metadata after 20 ms. (")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--line-reader com.example.Reader", "--line-reader com.example.Reader is not supported"),
        ("--property x", "--property x is not KEY=VALUE"),
        ("--producer-property x", "--producer-property x is not KEY=VALUE"),
        ("--producer-property foo=bar", 'No such configuration property: "foo"'),
        ("--producer-property batch.size=x", 'Invalid value for configuration property "batch.size"'),
        ("--producer-property max.block.ms=x", "max.block.ms=x is not a number of milliseconds"),
        ("--producer.config /nowhere", "cannot read the configuration /nowhere: No such file or directory"),
        ("--request-required-acks 7", "kafka-console-producer: argument --request-required-acks: invalid choice: '7'"),
        ("--compression-codec foo", "kafka-console-producer: argument --compression-codec: invalid choice: 'foo'"),
        ("--bootstrap-server nowhere", "bootstrap server 'nowhere' is not host:port"),
    ],
)
def test_wrong_arguments_of_the_producer(
    options: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr, with the usage if argparse refuses, and status 1."""
    assert produce(monkeypatch, b"", *options.split()) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].startswith(text)


def test_a_bootstrap_server_may_name_its_protocol() -> None:
    servers = "PLAINTEXT://127.0.0.1:1,plaintext://[::1]:1"
    assert isinstance(librdkafka.new_producer({"client.id": "x", "bootstrap.servers": servers}), Producer)


# --- consumer --------------------------------------------------------------------------------------------------------


class FakeConsumer:
    """A consumer of a topic without records."""

    def __init__(self, properties: Mapping[str, str], settings: Mapping[str, str]) -> None:
        self.properties, self.settings = dict(properties), dict(settings)
        self.subscribed: list[str] = []
        self.assigned: list[tuple[str, int, int]] = []
        self.is_closed = False

    def subscribe(self, topics: list[str]) -> None:
        self.subscribed = topics

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = [(each.topic, each.partition, each.offset) for each in partitions]

    def poll(self, _timeout: float) -> None:
        return None

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[FakeConsumer]:
    """The consumers that the tool makes."""
    made: list[FakeConsumer] = []

    def new_consumer(properties: Mapping[str, str], **settings: str) -> FakeConsumer:
        made.append(FakeConsumer(properties, settings))
        return made[-1]

    monkeypatch.setattr(console_consumer, "new_consumer", new_consumer)
    return made


def test_a_consumer_without_records_times_out(consumers: list[FakeConsumer], capsys: pytest.CaptureFixture[str]) -> None:
    """As in Kafka, that is status 0. The group name is made up, and nothing is committed."""
    assert status_of(console_consumer.main, "--topic", "t", "--timeout-ms", "0") == 0
    (consumer,) = consumers
    assert (consumer.subscribed, consumer.assigned, consumer.is_closed) == (["t"], [], True)
    assert consumer.properties.pop("group.id").startswith("console-consumer-")
    assert consumer.properties == {
        "auto.offset.reset": "latest",
        "bootstrap.servers": "127.0.0.1:1",
        "client.id": "console-consumer",
        "enable.auto.commit": "false",
    }
    assert capsys.readouterr().err.splitlines() == [
        "Error processing message, terminating consumer process: ",
        "org.apache.kafka.common.errors.TimeoutException: null",
        "Processed a total of 0 messages",
    ]


def test_a_consumer_of_a_group(consumers: list[FakeConsumer]) -> None:
    """It commits. A pattern leaves out the internal topics and matches whole names."""
    given = ("--include", "a.*|b", "--group", "g", "--from-beginning", "--isolation-level", "read_committed")
    assert status_of(console_consumer.main, *given, "--max-messages", "0") == 0
    (consumer,) = consumers
    assert consumer.subscribed == ["^(a.*|b)$"]
    assert "^__consumer_offsets$" in consumer.settings["topic.blacklist"]
    wanted = {"group.id": "g", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    assert consumer.properties.items() >= wanted.items()
    assert "enable.auto.commit" not in consumer.properties


@pytest.mark.parametrize(
    ("options", "offset"),
    [
        ("", OFFSET_END),
        ("--offset latest", OFFSET_END),
        ("--offset EARLIEST", OFFSET_BEGINNING),
        ("--from-beginning", OFFSET_BEGINNING),
        ("--offset 7", 7),
    ],
)
def test_where_a_partition_is_begun(options: str, offset: int, consumers: list[FakeConsumer]) -> None:
    given = ("--topic", "t", "--partition", "3", "--max-messages", "0")
    assert status_of(console_consumer.main, *given, *options.split()) == 0
    assert consumers[0].assigned == [("t", 3, offset)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("", "Exactly one of --include/--topic is required. "),
        ("--topic t --include t", "Exactly one of --include/--topic is required. "),
        ("--include t --partition 1", "The topic is required when partition is specified."),
        ("--topic t --offset 1", "The partition is required when offset is specified."),
        (
            "--topic t --partition 1 --offset 1 --from-beginning",
            "Options from-beginning and offset cannot be specified together.",
        ),
        ("--topic t --partition 1 --offset x", "The provided offset value 'x' is incorrect. Valid values are 'earliest', "),
        ("--topic t --partition 1 --offset -1", "The provided offset value '-1' is incorrect. "),
        ("--topic t --partition -1", "--partition -1 is not a partition"),
        ("--include (", "--include ( is not a regular expression"),
        ("--topic t --partition 1 --group g", "Options group and partition cannot be specified together."),
        ("--topic t --group g --consumer-property group.id=h", "The group ids provided in different places (directly using"),
        (
            "--topic t --from-beginning --consumer-property auto.offset.reset=latest",
            "Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please remove one option",
        ),
        ("--topic t --consumer-property foo=bar", 'No such configuration property: "foo"'),
        ("--topic t --formatter foo", "--formatter foo is not supported"),
        ("--topic t --value-deserializer foo", "value.deserializer=foo is not supported"),
        ("--topic t --property x", "--property x is not KEY=VALUE"),
        ("--topic t --max-messages x", "kafka-console-consumer: argument --max-messages: invalid int value: 'x'"),
        ("--topic t --bootstrap-server nowhere", "bootstrap server 'nowhere' is not host:port"),
    ],
)
def test_wrong_arguments_of_the_consumer(options: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One line on stderr, with the usage if argparse refuses, and status 1."""
    assert status_of(console_consumer.main, *options.split()) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[0].startswith(text)
