"""Our tools for groups and records beside Apache Kafka's, on the same cluster: each reads what the other wrote.

Skipped like tests/interop/test_apache_kafka.py where Java or the jars are missing. The lines of both are compared word by
word and in sorted order: the order of Kafka's rows is that of a hash table, and the width of some columns depends on the
release.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.apache_kafka_tools import TOOL_SECONDS_MAX, Kafka
from tests.interop.our_tools import ROOT, Done, run_tool
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalCluster

pytestmark = pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + 3 * TOOL_SECONDS_MAX)

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
SECONDS_MAX = 60.0
# Longer than the first rebalance of a group takes on a busy machine.
TIMEOUT = ("--timeout-ms", "8000")
ALL_PARTS = [
    word for part in ("timestamp", "partition", "offset", "headers", "key") for word in ("--property", f"print.{part}=true")
]


def kafka_writes(kafka: Kafka, *arguments: str, given: str) -> None:
    """Runs Kafka's console producer."""
    done = kafka.run(PRODUCER, *arguments, given=given)
    assert done.status == 0, done


def words(lines: list[str]) -> list[list[str]]:
    return sorted(line.split() for line in lines if line)


def write(bootstrap: str, topic: str, count: int = 9) -> None:
    """Writes records to the three partitions of a topic in turn."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, f"value {number}", f"key {number}", partition=number % 3)
    assert producer.flush(SECONDS_MAX) == 0


@pytest.fixture
def member(bootstrap: str, new_topic_name: Callable[[], str]) -> Iterator[tuple[str, str]]:
    """A group with a member that owns the three partitions of a topic and has committed what it read. Returns both names."""
    topic, group = create_topic(bootstrap, new_topic_name()), f"group-{new_topic_name()}"
    write(bootstrap, topic)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    try:
        deadline = time.monotonic() + SECONDS_MAX
        read = 0
        while read < 9:
            assert time.monotonic() < deadline, f"{read} of 9 records were read"
            read += len(consumer.consume(9 - read, 0.5))
        consumer.commit(asynchronous=False)
        yield topic, group
    finally:
        consumer.close()


# --- groups ----------------------------------------------------------------------------------------------------------


def test_both_describe_a_group_with_a_member(kafka: Kafka, bootstrap: str, member: tuple[str, str]) -> None:
    """The offsets, the members and the state of a group, and the errors for an unknown one."""
    _, group = member
    server = ("--bootstrap-server", bootstrap)
    reports: tuple[tuple[str, ...], ...] = ((), ("--members",), ("--state",))
    for flags in reports:
        theirs = kafka.run(GROUPS, *server, "--describe", "--group", group, *flags)
        ours = run_tool("consumer_groups", *server, "--describe", "--group", group, *flags)
        assert (theirs.status, ours.status) == (0, 0), (theirs, ours)
        assert words(ours.lines) == words(theirs.lines)
        assert ours.errors == []
    theirs = kafka.run(GROUPS, *server, "--list", "--state")
    ours = run_tool("consumer_groups", *server, "--list", "--state")
    assert [group, "Stable"] in words(ours.lines)
    assert [group, "Stable"] in words(theirs.lines)
    deletions: tuple[tuple[str, ...], ...] = (("--delete-offsets", "--topic", member[0]), ("--delete",))
    for flags in deletions:
        theirs = kafka.run(GROUPS, *server, "--group", group, *flags)
        ours = run_tool("consumer_groups", *server, "--group", group, *flags)
        assert (theirs.status, ours.status) == (0, 0)
        # The text of the heading differs between releases; the reasons of the rows do not.
        assert [line.rpartition("Exception: ")[2] for line in ours.lines[-1:]] == [
            line.rpartition(": ")[2].removeprefix(":") for line in theirs.lines[-1:]
        ]


def test_offsets_that_one_tool_exports_are_reset_by_the_other(
    kafka: Kafka, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    """Each reads the other's file, and shows the offsets that the other committed. Then the group is deleted."""
    write(bootstrap, topic)
    server, group, path = ("--bootstrap-server", bootstrap), f"group-{topic}", tmp_path / "plan.csv"
    reset = (*server, "--reset-offsets", "--group", group)
    ours = run_tool("consumer_groups", *reset, "--execute", "--export", "--topic", topic, "--to-offset", "2")
    assert (ours.status, ours.errors) == (0, [])
    path.write_text("".join(f"{line}\n" for line in ours.lines if line).replace(f"{topic},1,2", f"{topic},1,1"))
    theirs = kafka.run(GROUPS, *reset, "--execute", "--from-file", str(path))
    assert theirs.status == 0, theirs
    described = run_tool("consumer_groups", *server, "--describe", "--group", group)
    rows = [[topic, str(number), offset, "3"] for number, offset in ((0, "2"), (1, "1"), (2, "2"))]
    assert [row[1:5] for row in words(described.lines)[1:]] == rows
    assert words(described.lines) == words(kafka.run(GROUPS, *server, "--describe", "--group", group).lines)
    for scenario in (("--to-current",), ("--shift-by", "-5"), ("--to-latest",), ("--by-duration", "PT1H")):
        dry_run = (*reset, "--dry-run", "--all-topics", *scenario)
        ours, theirs = run_tool("consumer_groups", *dry_run), kafka.run(GROUPS, *dry_run)
        # Kafka 3.9 forgets the ends of lines here.
        assert sorted(" ".join(ours.lines).split()) == sorted(" ".join(theirs.lines).split())
    theirs = kafka.run(GROUPS, *reset, "--dry-run", "--export", "--all-topics", "--to-latest")
    path.write_text("".join(f"{line}\n" for line in theirs.lines))
    ours = run_tool("consumer_groups", *reset, "--execute", "--from-file", str(path))
    assert sorted(row[1:] for row in words(ours.lines) if row[0] == group) == [[topic, str(n), "3"] for n in range(3)]
    deleted = run_tool("consumer_groups", *server, "--delete", "--group", group)
    assert deleted.lines == [f"Deletion of requested consumer groups ('{group}') was successful."]
    assert group not in kafka.run(GROUPS, *server, "--list").lines


# --- records ---------------------------------------------------------------------------------------------------------


def test_both_consoles_write_and_read_the_same(kafka: Kafka, bootstrap: str, topic: str) -> None:
    """Records with keys, headers and nulls, written by both and read by both. A group goes on where the other tool
    stopped."""
    server, given = ("--bootstrap-server", bootstrap, "--topic", topic), "h:1,n:NULL\tk{0}\tgrün {0}\nh:2\tNULL\tNULL\n"
    options = ("--property", "parse.key=true", "--property", "parse.headers=true", "--property", "null.marker=NULL")
    ours = run_tool("console_producer", *server, *options, "--compression-codec", "zstd", given=given.format(1))
    assert (ours.status, ours.lines, ours.errors) == (0, [], [])
    kafka_writes(kafka, *server, *options, "--compression-codec", "zstd", given=given.format(2))
    read = ("--from-beginning", *TIMEOUT, *ALL_PARTS)
    with ThreadPoolExecutor() as both:
        of_kafka = both.submit(kafka.run, CONSUMER, *server, *read)
        ours, theirs = run_tool("console_consumer", *server, *read), of_kafka.result()
    assert (ours.status, theirs.status) == (0, 0)
    assert sorted(ours.lines) == sorted(theirs.lines)
    contents = sorted(line.split("\t")[3:] for line in ours.lines)
    assert contents == sorted([["h:1,n:null", f"k{n}", f"grün {n}"] for n in (1, 2)] + [["h:2", "null", "null"]] * 2)
    assert (
        ours.errors
        == theirs.errors
        == [
            "Error processing message, terminating consumer process: ",
            "org.apache.kafka.common.errors.TimeoutException: null",
            "Processed a total of 4 messages",
        ]
    )
    group = ("--group", f"group-{topic}", "--from-beginning")
    first = run_tool("console_consumer", *server, *group, "--max-messages", "1", *ALL_PARTS)
    assert first.errors == ["Processed a total of 1 messages"]
    second = kafka.run(CONSUMER, *server, *group, "--max-messages", "1", *ALL_PARTS)
    third = run_tool("console_consumer", *server, *group, "--max-messages", "2", *ALL_PARTS)
    assert sorted(first.lines + second.lines + third.lines) == sorted(ours.lines)


def test_the_same_key_has_the_same_partition(kafka: Kafka, bootstrap: str, new_topic_name: Callable[[], str]) -> None:
    """The partitioner of our console producer is that of Java's."""
    topic = create_topic(bootstrap, new_topic_name(), partitions=6)
    server = ("--bootstrap-server", bootstrap, "--topic", topic)
    given = "".join(f"key {number}\t{number}\n" for number in range(20))
    assert run_tool("console_producer", *server, "--property", "parse.key=true", given=given).status == 0
    kafka_writes(kafka, *server, "--property", "parse.key=true", given=given)
    options = ("--from-beginning", "--max-messages", "40", "--property", "print.key=true")
    lines = run_tool("console_consumer", *server, *options, "--property", "print.partition=true").lines
    partitions = {tuple(line.split("\t")) for line in lines}
    assert len(lines) == 40
    assert len(partitions) == 20


def test_committed_offsets_are_read_from_their_topic(
    kafka: Kafka, cluster: LocalCluster, bootstrap: str, member: tuple[str, str]
) -> None:
    """By the formatters of the console consumers, and by both dump tools in the segments."""
    _, group = member
    server = ("--bootstrap-server", bootstrap, "--topic", "__consumer_offsets", "--from-beginning", *TIMEOUT)
    formatters = [
        f"org.apache.kafka.tools.consumer.{name}" for name in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")
    ]
    with ThreadPoolExecutor() as both:
        runs = [both.submit(run_tool, "console_consumer", *server, "--formatter", formatter) for formatter in formatters]
    for done in (run.result() for run in runs):
        assert done.status == 0
        assert any(f'"group":"{group}"' in line for line in done.lines)
    (log,) = [
        path
        for folder in cluster.broker(1).files.data_dirs
        for path in Path(folder).glob("__consumer_offsets-*/*.log")
        if group.encode() in path.read_bytes()
    ]
    dump = ("--offsets-decoder", "--files", str(log))
    ours, theirs = run_tool("dump_log", *dump), kafka.run("kafka.tools.DumpLogSegments", *dump)
    assert (ours.status, theirs.status) == (0, 0)
    assert decoded(ours.lines) == decoded(theirs.lines)


def decoded(lines: list[str]) -> list[str]:
    """Returns the records. Kafka 3.9 does not know the ids of topics in them."""
    return [re.sub(',"topicId":"[^"]*"', "", line) for line in lines if line.startswith("|")]


# --- performance -----------------------------------------------------------------------------------------------------

SENT = re.compile(
    r"2000 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency, "
    r"\d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th."
)
FLOAT = r"(?:[\d.]+|Infinity|NaN)"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
READ = re.compile(rf"{TIME}, {TIME}, 0\.3815, {FLOAT}, 4000, {FLOAT}, \d+, -?\d+, -?{FLOAT}, -?{FLOAT}")


@pytest.mark.parametrize("transactions", [(), ("--transaction-duration-ms", "500")], ids=["plain", "transactions"])
def test_the_performance_tools_print_the_same_lines(
    kafka: Kafka, bootstrap: str, topic: str, transactions: tuple[str, ...]
) -> None:
    """Each writes 2000 records of 100 bytes, in transactions or not, and reads those of both."""
    write_options = (
        *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={bootstrap}"),
        *transactions,
    )
    sent = [
        run_tool("producer_perf_test", *write_options),
        kafka.run("org.apache.kafka.tools.ProducerPerformance", *write_options),
    ]
    for done in sent:
        assert done.status == 0, done
        assert SENT.fullmatch(done.lines[-1]), done
    # Kafka's consumer may read more than that of a batch.
    read_options = ("--bootstrap-server", bootstrap, "--topic", topic, "--messages", "4000", "--timeout", "60000")
    read = [
        run_tool("consumer_perf_test", *read_options),
        kafka.run("org.apache.kafka.tools.ConsumerPerformance", *read_options),
    ]
    assert read[0].lines[0] == read[1].lines[0]
    for done in read:
        assert done.status == 0, done
        assert READ.fullmatch(done.lines[1]), done


# --- how the tools end -----------------------------------------------------------------------------------------------


def start(module: str, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", f"tools.kafka.{module}", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_consumer_that_is_interrupted_leaves_its_group(
    bootstrap: str, topic: str, number: signal.Signals, status: int
) -> None:
    """It says how many records it has read, and the group is empty at once, long before the session timeout."""
    write(bootstrap, topic, 3)
    group = f"group-{topic}-{number}"
    tool = start("console_consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning")
    assert tool.stdout is not None
    assert {tool.stdout.readline() for _ in range(3)} == {b"value 0\n", b"value 1\n", b"value 2\n"}
    tool.send_signal(number)
    out, err = tool.communicate(timeout=SECONDS_MAX)
    assert (tool.returncode, out, err) == (status, b"", b"Processed a total of 3 messages\n")
    described = run_tool("consumer_groups", "--bootstrap-server", bootstrap, "--describe", "--group", group)
    assert described.errors == ["", f"Consumer group '{group}' has no active members."]
    assert [row[3] for row in words(described.lines)[1:]] == ["1", "1", "1"]


def test_a_closed_pipe_ends_a_consumer_in_silence(bootstrap: str, topic: str) -> None:
    """As `| head` closes it. The records that nobody reads do not fit into the pipe."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(300):
        producer.produce(topic, b"x" * 1000)
    assert producer.flush(SECONDS_MAX) == 0
    with start("console_consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning") as tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == b"x" * 1000 + b"\n"
        tool.stdout.close()
        assert tool.stderr is not None
        assert (tool.stderr.read(), tool.wait(SECONDS_MAX)) == (b"", 0)


def test_wrong_requests(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """What cannot be done is said in a few lines, never with a traceback."""
    server = ("--bootstrap-server", bootstrap)
    config = tmp_path / "short.properties"
    config.write_text("default.api.timeout.ms=1000\n")
    nobody = ("--bootstrap-server", "127.0.0.1:1")
    garbage = tmp_path / f"{0:020d}.log"
    garbage.write_bytes(b"\x13" * 200)
    cases: list[tuple[Done, int, str]] = [
        (
            run_tool("consumer_groups", *nobody, "--list", "--timeout", "1000"),
            0,
            "TimeoutException: Timed out waiting for a",
        ),
        (run_tool("consumer_groups", *server, "--describe", "--group", "gone"), 0, "Group gone not found."),
        (run_tool("consumer_groups", *server, "--list", "--frob"), 1, "unrecognized arguments: --frob"),
        (
            run_tool("console_producer", *nobody, "--topic", topic, "--max-block-ms", "500", given="x"),
            1,
            "Connection refused",
        ),
        (run_tool("console_producer", *server, "--topic", "a/b", given="x"), 1, "a/b is not a valid topic name"),
        (run_tool("console_producer", *server, "--topic", topic, given=""), 0, ""),
        (run_tool("console_consumer", *nobody, "--topic", topic, "--timeout-ms", "500"), 0, "Connection refused"),
        (run_tool("console_consumer", *server, "--topic", topic, "--partition", "9", "--timeout-ms", "900"), 0, "partition"),
        (run_tool("console_consumer", *server, "--topic", "gone", "--timeout-ms", "3000"), 0, "Unknown topic or partition"),
        (run_tool("dump_log", "--offsets-decoder", "--files", str(garbage)), 1, "is corrupt at position 0"),
    ]
    for done, status, text in cases:
        lines = [*done.lines, *done.errors]
        assert (done.status, any(text in line for line in lines) or (text == "" and lines == [])) == (status, True), done
        assert not any("Traceback" in line for line in lines), done
