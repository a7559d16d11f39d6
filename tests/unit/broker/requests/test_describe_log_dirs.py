"""DescribeLogDirs: every configured directory, what is in the online ones, and the error of the others."""

import asyncio
import errno
from collections.abc import Sequence

import pytest

from broker.hosting.replica_descriptions import ReplicaDescription
from broker.requests.describe_log_dirs import DescribeLogDirsRequests
from common.environment.interface import LogDirError, SpaceStat
from common.log_dirs.log_directories import LogDirectories, LogDirectory, SpaceSeen
from common.protocol.api_keys import ApiKey
from common.protocol.codec import encode
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from common.slices import ELEMENTS_PER_SLICE
from tests.unit.broker.requests.contexts import NoMemory, context, over_the_wire, versions
from tests.unit.common.metadata.builders import directory

D1, D2 = directory(1), directory(2)
REPLICAS = (
    ReplicaDescription("b", 1, D1, 100, 3),
    ReplicaDescription("a", 10, D1, 200, 0),
    ReplicaDescription("a", 2, D1, 300, 0),
    ReplicaDescription("a", 0, D2, 400, 0),
)
# a-0 moves from /d2 to /d1. b-1 moves from /d1 to /d2.
FUTURE = (ReplicaDescription("a", 0, D1, 40, 36, is_future=True), ReplicaDescription("b", 1, D2, 10, 9, is_future=True))


class Broker:
    """A broker with /d1 and /d2 online, and /d3 unreadable since the start."""

    def __init__(self, future: Sequence[ReplicaDescription] = ()) -> None:
        self.replicas: Sequence[ReplicaDescription] = (*REPLICAS, *future)
        self.directories = LogDirectories(
            [
                LogDirectory(path="/d1", directory_id=D1),
                LogDirectory(path="/d2", directory_id=D2),
                LogDirectory(path="/d3", directory_id=None, cause="EIO"),
                LogDirectory(path="/m", directory_id=directory(9)),
            ],
            data_dirs=("/d1", "/d2", "/d3"),
            metadata_dir="/m",
        )
        self.requests = DescribeLogDirsRequests(
            self.directories,
            describe=lambda: self.replicas,
            count=lambda: len(self.replicas),
            is_cordoned=lambda path: path in self.cordoned,
        )
        self.cordoned: set[str] = set()

    def ask(self, topics: dict[str, list[int]] | None = None, *, version: int = 5) -> DescribeLogDirsResponse:
        asked = None
        if topics is not None:
            asked = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
        response = self.requests.handle(context(ApiKey.DESCRIBE_LOG_DIRS, version), DescribeLogDirsRequest(topics=asked))
        assert isinstance(response, DescribeLogDirsResponse), "it is short"
        assert over_the_wire(response, version) is not None
        return response

    def held(self, topics: dict[str, list[int]] | None = None, *, version: int = 5) -> dict[str, list[tuple[str, int]]]:
        """Returns the topics and partitions in each directory, in the order of the answer."""
        return {
            result.log_dir: [(topic.name, each.partition_index) for topic in result.topics for each in topic.partitions]
            for result in self.ask(topics, version=version).results
        }


def test_every_configured_directory_is_listed_with_what_it_holds() -> None:
    """Directories come in the order of log.dirs, online or not. Topics and partitions are sorted. The metadata directory is
    not listed."""
    assert Broker().held() == {"/d1": [("a", 2), ("a", 10), ("b", 1)], "/d2": [("a", 0)], "/d3": []}


def test_a_replica_is_described_with_its_size_and_lag() -> None:
    """The response has the size and the lag that Replicas reports. A replica that does not move is not a future replica."""
    first = Broker().ask().results[0]
    (lagging,) = first.topics[1].partitions
    assert (lagging.partition_index, lagging.partition_size, lagging.offset_lag, lagging.is_future_key) == (1, 100, 3, False)


def test_a_replica_that_moves_is_in_both_directories() -> None:
    """During a move, the current replica is listed in its directory. The future replica is listed in the target directory,
    with its own size and lag. The partitions are in order."""
    results = {result.log_dir: result for result in Broker(FUTURE).ask({"a": [0, 2], "b": [1]}).results}
    shown = {
        path: [
            (topic.name, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key)
            for topic in results[path].topics
            for each in topic.partitions
        ]
        for path in ("/d1", "/d2")
    }
    assert shown == {
        "/d1": [("a", 0, 40, 36, True), ("a", 2, 300, 0, False), ("b", 1, 100, 3, False)],
        "/d2": [("a", 0, 400, 0, False), ("b", 1, 10, 9, True)],
    }


def test_an_offline_directory_has_its_error_and_nothing_else() -> None:
    """One directory was unreadable at the start and another has just failed. Both have KAFKA_STORAGE_ERROR, no topics, and
    sizes of -1."""
    broker = Broker()
    broker.directories.step(SpaceSeen(D1, SpaceStat(1000, 10, 5)))
    broker.directories.step(SpaceSeen(D2, SpaceStat(2000, 20, 5)))
    broker.directories.step(LogDirError("/d1", "append", errno.EIO))
    results = {result.log_dir: result for result in broker.ask().results}
    assert [result.error_code for result in results.values()] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ]
    for path in ("/d1", "/d3"):
        assert (results[path].topics, results[path].total_bytes, results[path].usable_bytes) == ([], -1, -1)
    assert (results["/d2"].total_bytes, results["/d2"].usable_bytes) == (2000, 20)


def test_sizes_of_the_file_system_are_unknown_until_somebody_looked() -> None:
    """The sizes are -1 until the probe has measured them. The handler never asks the disk itself, because the disk may
    hang."""
    assert {(each.total_bytes, each.usable_bytes) for each in Broker().ask().results} == {(-1, -1)}


@pytest.mark.parametrize(
    ("topics", "first", "second"),
    [
        ({"a": [2]}, [("a", 2)], []),
        ({"a": [0, 10], "b": [1, 2]}, [("a", 10), ("b", 1)], [("a", 0)]),
        ({"unknown": [0]}, [], []),
        ({"a": []}, [], []),
        ({}, [], []),
    ],
)
def test_only_the_partitions_that_are_asked_for(
    topics: dict[str, list[int]], first: list[tuple[str, int]], second: list[tuple[str, int]]
) -> None:
    """All directories are listed, whichever partitions the request names. An empty list asks for no partitions, null for
    all."""
    assert Broker().held(topics) == {"/d1": first, "/d2": second, "/d3": []}


def test_an_empty_list_asks_for_all_topics_in_version_0() -> None:
    """In KIP-113 an empty list stands for all topics. Later versions use null instead. Version 0 accepts both."""
    everything = Broker().held()
    assert Broker().held({}, version=0) == everything
    assert Broker().held(None, version=0) == everything
    assert Broker().held({"a": [2]}, version=0) == {"/d1": [("a", 2)], "/d2": [], "/d3": []}
    assert Broker().held({}, version=1) == {"/d1": [], "/d2": [], "/d3": []}


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_LOG_DIRS))
def test_every_version_can_be_sent(version: int) -> None:
    """Only version 4 and later have the sizes of the file system, and only version 5 the cordons."""
    broker = Broker()
    broker.directories.step(SpaceSeen(D1, SpaceStat(1000, 10, 5)))
    assert len(broker.ask(version=version).results) == 3


def test_cordoned_directories_are_told_from_version_5_on() -> None:
    """Also of a directory that is offline: the cordon is configured, whatever its disk does."""
    broker = Broker()
    broker.cordoned = {"/d2", "/d3"}
    assert {each.log_dir: each.is_cordoned for each in broker.ask().results} == {"/d1": False, "/d2": True, "/d3": True}


def test_many_replicas_are_described_in_slices() -> None:
    """A directory that goes offline meanwhile is answered with its error."""
    broker, memory = Broker(), NoMemory()
    broker.replicas = [
        ReplicaDescription("t", index, directory_id, index, 0)
        for directory_id in (D1, D2)
        for index in reversed(range(2 * ELEMENTS_PER_SLICE))
    ]

    async def scenario() -> tuple[DescribeLogDirsResponse, int]:
        answer = broker.requests.handle(
            context(ApiKey.DESCRIBE_LOG_DIRS, 5, memory=memory), DescribeLogDirsRequest(topics=None)
        )
        assert not isinstance(answer, DescribeLogDirsResponse)
        describing, turns = asyncio.ensure_future(answer), 0
        while not describing.done():
            await asyncio.sleep(0)
            turns += 1
            if turns == 2:
                broker.directories.step(LogDirError("/d2", "append", errno.EIO))
        return await describing, turns

    response, turns = asyncio.run(scenario())
    assert turns > 4
    [first, second, _] = response.results
    assert [each.partition_index for each in first.topics[0].partitions] == list(range(2 * ELEMENTS_PER_SLICE))
    assert (second.error_code, second.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    # Of what is expected, half is missing with the directory.
    size = 2 * len(encode(response, 5))
    assert size / 2 < memory.expected_bytes < 2 * size
