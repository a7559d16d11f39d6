"""Tests the checkers of what is on the platters and of requests: each planted violation is found."""

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import pytest

from common.ids import Uuid
from common.net.request_context import RequestContext
from common.net.request_server import RequestServer
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
    ResponseTopicData,
)
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from controller.quorum_controller import QuorumController
from tests.simulation.checkers.durability import (
    DirectoryIds,
    check_metadata,
    check_new_log,
    check_no_marker,
    check_owner,
    check_recovery_points,
)
from tests.simulation.checkers.image import ImageChecker, ModelBroker
from tests.simulation.checkers.raw_logs import METADATA_FOLDER
from tests.simulation.checkers.requests import ANSWER_BOUND_NS, RequestChecker, WatchedServer
from tests.simulation.disk import SimulatedDisk
from tests.simulation.disk_store import DiskStore
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.simulation.loop import SimulatedLoop
from tests.simulation.test_checkers_raw_logs import batch
from tests.simulation.violations import InvariantViolated

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG = batch(0, "a") + batch(1, "b")


def test_a_recovery_point_promises_whole_batches() -> None:
    """I1: all batches below a recovery point must be on the platter, for every log that exists. A torn batch or zeros below
    the recovery point are a violation."""
    name = "t-x-0/00000000000000000000.log"
    check_recovery_points("/b1/d1", {RECOVERY_POINTS: b"0\n2\nt-x 0 2\ngone 0 7\n", name: LOG})
    for content in (LOG[:-1], LOG[: len(LOG) // 2] + bytes(len(LOG) // 2)):
        with pytest.raises(InvariantViolated, match="I1: /b1/d1/t-x-0: the recovery point is 2"):
            check_recovery_points("/b1/d1", {RECOVERY_POINTS: b"0\n1\nt-x 0 2\n", name: content})


@pytest.mark.parametrize("missing", ["nothing", "the folder's name", "a file's name", "the content of partition.metadata"])
def test_a_new_log_is_on_the_platter_before_it_is_used(missing: str) -> None:
    """I1: without its name on the platter, a power cut would take away the whole log, synced records included."""
    store = DiskStore()
    store.mkdir("t-0", 0)
    store.create_file("t-0/00000000000000000000.log", 0)
    metadata = store.create_file("t-0/partition.metadata", 0)
    metadata.write(0, b"version: 0")
    if missing != "the content of partition.metadata":
        metadata.sync(metadata.changes)
    if missing != "a file's name":
        store.begin_sync_of_folder(store.folder("t-0"))()
    if missing != "the folder's name":
        store.begin_sync_of_folder(store.root)()
    with nullcontext() if missing == "nothing" else pytest.raises(InvariantViolated, match="I1: /b1/d1/t-0 is in use"):
        check_new_log("t-0", "/b1/d1", store)


def test_committed_metadata_is_on_the_platter() -> None:
    """I5: it is a violation if the metadata log on the platter ends before the committed offset, or if quorum-state has an
    older epoch than the leader."""
    files = {f"{METADATA_FOLDER}/{0:020d}.log": LOG, f"{METADATA_FOLDER}/quorum-state": b'{"leaderEpoch":3}'}
    check_metadata(files, committed=2, epoch=3)
    with pytest.raises(InvariantViolated, match="I5: offsets below 3 are committed"):
        check_metadata(files, committed=3, epoch=3)
    with pytest.raises(InvariantViolated, match="I5: the controller leads in epoch 4"):
        check_metadata(files, committed=2, epoch=4)


def test_a_disk_has_one_id() -> None:
    """I9: an id that changes on one disk is a violation. A new disk at the same path may have another id."""
    disk = SimulatedDisk("/b1/d1", SimulatedLoop(), 1)
    ids = DirectoryIds()
    ids.check(disk, {"meta.properties": b"directory.id=one\n"})
    disk.wipe()
    ids.check(disk, {"meta.properties": b"directory.id=two\n"})
    with pytest.raises(InvariantViolated, match="I9"):
        ids.check(disk, {"meta.properties": b"directory.id=three\n"})


@dataclass
class FakeServer:
    """The parts of a RequestServer that the checker uses."""

    env: SimulatedEnvironment
    handlers: dict[ApiKey, Any]


def watched(
    world: SimulatedWorld, handler: Any, controller: QuorumController | None = None, *, key: ApiKey = ApiKey.BROKER_HEARTBEAT
) -> tuple[RequestChecker, FakeServer]:
    image = ImageChecker()
    checker = RequestChecker(image)
    image.image.brokers[1] = ModelBroker(8, Uuid(b"i" * 16), True, False, frozenset())
    server = FakeServer(world.node("controller"), {key: handler})
    checker.watch(WatchedServer("controller", cast(RequestServer, server), controller))
    return checker, server


@pytest.mark.parametrize(
    ("epoch", "error", "is_wrong"), [(7, 0, True), (7, ErrorCode.STALE_BROKER_EPOCH, False), (8, 0, False)]
)
def test_a_stale_broker_epoch_must_be_refused(epoch: int, error: int, is_wrong: bool) -> None:
    """I17: the checker finds an accepted stale epoch, no matter whether the handler returns the response itself, a future or
    a coroutine."""
    context, request = cast(RequestContext, None), BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch)
    response = BrokerHeartbeatResponse(error_code=error)

    async def later(_: object, __: object) -> BrokerHeartbeatResponse:
        return response

    def by_future(_: object, __: object) -> "asyncio.Future[BrokerHeartbeatResponse]":
        future: asyncio.Future[BrokerHeartbeatResponse] = asyncio.get_running_loop().create_future()
        future.set_result(response)
        return future

    async def scenario(world: SimulatedWorld) -> None:
        for handler in (lambda _, __: response, later, by_future):
            checker, server = watched(world, handler)
            answer = server.handlers[ApiKey.BROKER_HEARTBEAT](context, request)
            if answer is not response:
                assert await answer is response
            await world.sleep(0.1)
            assert (checker.violation is not None) == is_wrong
            checker.check_open(world.now_ns() + 2 * ANSWER_BOUND_NS, ["controller"])

    SimulatedWorld(seed=1).run(scenario)


@pytest.mark.parametrize(
    ("epoch", "error", "is_wrong"),
    [(7, ErrorCode.NONE, True), (7, ErrorCode.INELIGIBLE_REPLICA, False), (8, ErrorCode.NONE, False), (-1, 0, False)],
)
def test_nobody_is_in_an_isr_with_a_stale_epoch(epoch: int, error: int, is_wrong: bool) -> None:
    """I17: the follower has registered again since its leader learned the epoch. The controller must refuse the ISR change
    of this partition, whatever the response says about other partitions."""
    topic_id = Uuid(b"t" * 16)
    member = BrokerState(broker_id=1, broker_epoch=epoch)
    request = AlterPartitionRequest(
        broker_id=2,
        broker_epoch=9,
        topics=[
            RequestTopicData(
                topic_id=topic_id,
                partitions=[
                    RequestPartitionData(partition_index=0),
                    RequestPartitionData(partition_index=1, new_isr_with_epochs=[member]),
                ],
            )
        ],
    )
    answered = [ResponsePartitionData(partition_index=0), ResponsePartitionData(partition_index=1, error_code=error)]
    response = AlterPartitionResponse(topics=[ResponseTopicData(topic_id=topic_id, partitions=answered)])
    checker, server = watched(SimulatedWorld(seed=1), lambda _, __: response, key=ApiKey.ALTER_PARTITION)
    server.handlers[ApiKey.ALTER_PARTITION](cast(RequestContext, None), request)
    assert (checker.violation is not None) == is_wrong


@dataclass
class FakeController:
    """The parts of a QuorumController that the checker reads."""

    is_active: bool = True
    committed_offset: int = -1


def test_nothing_is_answered_before_its_commit() -> None:
    """I5: a response says that the broker is unfenced, but in the committed image it is fenced. The checker does not judge a
    response while its image lags behind the controller's committed offset."""
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=8)

    async def scenario(world: SimulatedWorld) -> None:
        for is_fenced, committed_offset, is_wrong in ((False, -1, True), (True, -1, False), (False, 5, False)):
            controller = cast(QuorumController, FakeController(committed_offset=committed_offset))
            response = BrokerHeartbeatResponse(is_fenced=is_fenced)
            checker, server = watched(world, lambda _, __, response=response: response, controller)
            server.handlers[ApiKey.BROKER_HEARTBEAT](cast(RequestContext, None), request)
            assert (checker.violation is not None) == is_wrong

    SimulatedWorld(seed=1).run(scenario)


def test_a_directory_in_use_was_not_left_in_order() -> None:
    """I1: a clean-shutdown marker on the platter of a directory in use is a violation."""
    check_no_marker("/b1/d1", {"meta.properties": b""})
    with pytest.raises(InvariantViolated, match="I1: /b1/d1 is in use"):
        check_no_marker("/b1/d1", {".kafka_cleanshutdown": b""})


def test_a_broker_works_in_its_own_directories() -> None:
    """I9: the checker reports a broker that uses a disk formatted for another broker."""
    check_owner("/b1/d1", {"meta.properties": b"version=1\nnode.id=1\n"}, 1)
    with pytest.raises(InvariantViolated, match=r"I9.*broker 2 uses /b2/d1.*node 1"):
        check_owner("/b2/d1", {"meta.properties": b"version=1\nnode.id=1\n"}, 2)


def test_a_request_without_an_answer_is_found() -> None:
    """I18: the checker reports a request that has no response after the time limit, and only on a running node."""

    async def scenario(world: SimulatedWorld) -> None:
        never: asyncio.Future[Any] = world.loop.create_future()
        checker, server = watched(world, lambda _, __: never)
        server.handlers[ApiKey.BROKER_HEARTBEAT](cast(RequestContext, None), BrokerHeartbeatRequest())
        late_ns = world.now_ns() + ANSWER_BOUND_NS + 1
        checker.check_open(late_ns - 1, ["controller"])
        # This call does not list the controller as running, so the checker restarts the clock of the controller's request.
        checker.check_open(late_ns, ["broker-1"])
        checker.check_open(late_ns, ["controller"])
        late_ns += ANSWER_BOUND_NS + 1
        with pytest.raises(InvariantViolated, match="I18"):
            checker.check_open(late_ns, ["controller"])
        checker.forget("controller")
        checker.check_open(late_ns, ["controller"])

    SimulatedWorld(seed=1).run(scenario)
