"""Tests the checkers of raw logs, which have their own parser: they accept what production writes and find every
difference."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace

import pytest

from common.ids import DirectoryId, TopicId, TopicIdPartition, Uuid, uuid_text
from common.protocol.numbering import Numbering
from common.records.batch import set_base_offset_and_epoch
from common.records.metadata_frame import encode_record
from common.records.metadata_records import KnownRecord, RemoveTopicRecord, TopicRecord
from common.records.record import Record, encode_batch
from tests.simulation.checkers.image import ImageChecker, ImageModel, ModelPartition
from tests.simulation.checkers.raw_logs import (
    METADATA_FOLDER,
    RawDirectory,
    UnreadableLog,
    check_directories,
    check_logs,
    check_metadata_logs,
    read_directory,
    read_log,
)
from tests.simulation.history import History, Outcome, Poll, Produce
from tests.simulation.violations import InvariantViolated

TOPIC = TopicId(Uuid(b"t" * 16))
KEY = TopicIdPartition(TOPIC, 0)
DIRECTORIES = {broker_id: DirectoryId(Uuid(bytes([broker_id]) * 16)) for broker_id in (1, 2)}


def batch(offset: int, *values: str, epoch: int = 3) -> bytes:
    made = bytearray(encode_batch([Record(key=b"k", value=value.encode(), timestamp_ms=5) for value in values]))
    set_base_offset_and_epoch(made, offset, epoch)
    return bytes(made)


def files(broker_id: int, log: bytes, *, folder: str = "t-0") -> dict[str, bytes]:
    return {
        "meta.properties": f"#\nversion=1\ndirectory.id={uuid_text(DIRECTORIES[broker_id])}\n".encode(),
        f"{folder}/partition.metadata": f"version: 0\ntopic_id: {uuid_text(TOPIC)}".encode(),
        f"{folder}/{0:020d}.log": log,
        f"{folder}/{0:020d}.index": b"not a log",
        "gone-0." + "a" * 32 + "-delete/partition.metadata": f"version: 0\ntopic_id: {uuid_text(TOPIC)}".encode(),
    }


def image() -> ImageModel:
    part = ModelPartition((1, 2), (DIRECTORIES[1], DIRECTORIES[2]), (1, 2), 1, 3, 0, is_recovering=False)
    return ImageModel(topics={TOPIC: "t"}, partitions={KEY: part})


def produce(value: str, offset: int, *, outcome: Outcome = Outcome.OK) -> Produce:
    return Produce(
        client="p",
        begin_ns=0,
        outcome=outcome,
        topic="t",
        topic_id=TOPIC,
        index=0,
        acks=-1,
        values=(value.encode(),),
        offset=offset,
    )


def history(*more: Produce) -> History:
    read = Poll(client="c", begin_ns=0, topic="t", topic_id=TOPIC, index=0, offset=0, leader_epoch=3, records=((0, b"a"),))
    return History(produces=[produce("a", 0), produce("b", 1), *more], polls=[read])


def check(logs: Mapping[int, bytes], seen: History, *, committed: int = 2) -> None:
    directories = [read_directory(id_, f"/b{id_}", files(id_, log)) for id_, log in logs.items()]
    check_directories(directories, image())
    check_logs(directories, image().partitions, image().name, {KEY: committed}, seen)


WHOLE = batch(0, "a") + batch(1, "b")


def test_equal_logs_with_all_that_was_promised_pass() -> None:
    """Logs may differ beyond the committed offset, and may hold records that were never acknowledged."""
    unknown = produce("c", -1, outcome=Outcome.UNKNOWN)
    check({1: WHOLE + batch(2, "c"), 2: WHOLE}, history(unknown))


@pytest.mark.parametrize(
    ("invariant", "logs", "more"),
    [
        ("I1", {1: WHOLE, 2: batch(0, "a")}, []),
        ("I1", {1: WHOLE, 2: WHOLE}, [produce("c", 2)]),
        ("I1", {1: WHOLE}, []),
        ("I2", {1: WHOLE + batch(2, "x"), 2: WHOLE}, []),
        ("I2", {1: WHOLE + batch(2, "a"), 2: WHOLE}, []),
        ("I2", {1: WHOLE + batch(2, "c"), 2: WHOLE}, [produce("c", -1, outcome=Outcome.FAILED)]),
        ("I3", {1: WHOLE, 2: batch(0, "a") + batch(1, "b", epoch=2)}, []),
    ],
)
def test_a_log_that_differs_from_the_history_is_found(invariant: str, logs: dict[int, bytes], more: list[Produce]) -> None:
    """Each case plants one violation: a log that is too short, a lost record, a missing replica, a foreign, duplicated or
    refused record, or a different leader epoch."""
    with pytest.raises(InvariantViolated) as caught:
        check(logs, history(*more))
    assert caught.value.invariant == invariant


def test_with_unclean_elections_the_replicas_may_lose_the_same_records_only() -> None:
    """I3 is violated by a replica that kept what the others have lost, also beyond what was once committed."""
    topic = "careless-2"
    seen = History(produces=[replace(produce(value, offset), topic=topic) for offset, value in enumerate("abc")])
    named = replace(image(), topics={TOPIC: topic})
    lost, kept = batch(0, "a", epoch=4) + batch(1, "c", epoch=5), batch(0, "a", epoch=4) + batch(1, "b", epoch=3)
    for logs, is_lawful in (({1: lost, 2: lost}, True), ({1: lost, 2: kept}, False), ({1: lost, 2: lost[:0]}, False)):
        directories = [read_directory(id_, f"/b{id_}", files(id_, log, folder=f"{topic}-0")) for id_, log in logs.items()]
        with nullcontext() if is_lawful else pytest.raises(InvariantViolated):
            check_logs(directories, named.partitions, named.name, {KEY: 3 if is_lawful else 0}, seen)


def test_a_record_that_was_read_must_stay() -> None:
    """I1 is violated if a record that a consumer has read is no longer in the log."""
    other = batch(0, "b")
    seen = history()
    seen.produces.pop()
    seen.produces[0].values = (b"b",)
    with pytest.raises(InvariantViolated, match="I1: t-0 on broker 1: a was read at 0; there is b"):
        check({1: other, 2: other}, seen, committed=1)


def test_damaged_bytes_are_no_batches() -> None:
    """A flipped bit, a torn last batch or a gap between offsets makes a log unreadable."""
    flipped = bytearray(WHOLE)
    flipped[70] ^= 1
    for content in (bytes(flipped), WHOLE[:-1], WHOLE[:20], WHOLE + batch(3, "d")):
        with pytest.raises(UnreadableLog):
            read_log({"t-0/00000000000000000000.log": content}, "t-0")
    compacted = read_log({"t-0/00000000000000000000.log": WHOLE + batch(3, "d")}, "t-0", lambda name: name == "t-0")
    assert compacted.end_offset == 4


def test_a_compacted_segment_counts_from_its_swap_on() -> None:
    """The segments that it replaces may all be there still, or some of them, or none."""
    first, second, last = "f/00000000000000000000.log", "f/00000000000000000002.log", "f/00000000000000000004.log"
    old = {first: batch(0, "a", "b"), second: batch(2, "c", "d")}
    rest = {f"{first}.swap": batch(2, "c", "d"), last: batch(4, "e")}
    for left in ({}, {second: old[second]}, old):
        log = read_log(left | rest, "f")
        assert [each.base_offset for each in log.batches] == [2, 4]
        assert log.end_offset == 5


def test_directories_are_judged_by_what_they_hold() -> None:
    """I9: two disks have the same directory id. I10: one replica is in two directories. I11: a replica is not in the
    directory that the metadata names, or is on a broker that should have none."""
    first = read_directory(1, "/b1/d1", files(1, WHOLE))
    second = read_directory(2, "/b2/d1", files(2, WHOLE))
    check_directories([first, second], image())
    clone = RawDirectory(1, "/b1/d2", first.directory_id)
    elsewhere = RawDirectory(1, "/b1/d2", DirectoryId(Uuid(b"x" * 16)), dict(first.logs))
    stranger = RawDirectory(3, "/b3/d1", DirectoryId(Uuid(b"y" * 16)), dict(first.logs))
    for invariant, planted in (
        ("I9", [first, clone]),
        ("I10", [first, elsewhere]),
        ("I11", [elsewhere]),
        ("I11", [stranger]),
    ):
        with pytest.raises(InvariantViolated, match=invariant):
            check_directories(planted, image())


def metadata_log(*records: KnownRecord) -> dict[str, bytes]:
    values = [encode_record(record, 0, Numbering.KIP858) for record in records]
    content = b"".join(bytes(_metadata_batch(offset, value)) for offset, value in enumerate(values))
    return {f"{METADATA_FOLDER}/{0:020d}.log": content}


def _metadata_batch(offset: int, value: bytes) -> bytearray:
    made = bytearray(encode_batch([Record(key=None, value=value, timestamp_ms=5)]))
    set_base_offset_and_epoch(made, offset, 1)
    return made


def test_metadata_logs_hold_what_was_committed() -> None:
    """I5: the leader's log is too short, another node's log differs from it, or it replays to a different image."""
    records: list[KnownRecord] = [TopicRecord(name="t", topic_id=TOPIC), RemoveTopicRecord(topic_id=TOPIC)]
    checker = ImageChecker()
    for offset, record in enumerate(records):
        checker.committed("controller", offset, offset, 1, [record])
    whole = read_log(metadata_log(*records), METADATA_FOLDER)
    short = read_log(metadata_log(records[0]), METADATA_FOLDER)
    other = read_log(metadata_log(TopicRecord(name="u", topic_id=TOPIC), records[1]), METADATA_FOLDER)
    check_metadata_logs({"controller": whole, "broker-1": short}, checker, leader="controller")
    for logs in ({"controller": short}, {"controller": whole, "broker-1": other}):
        with pytest.raises(InvariantViolated, match="I5"):
            check_metadata_logs(logs, checker, leader="controller")
    checker.image.topics[TOPIC] = "t"
    with pytest.raises(InvariantViolated, match="I5"):
        check_metadata_logs({"controller": whole}, checker, leader="controller")
