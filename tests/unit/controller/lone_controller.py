"""Runs scenarios on one controller, with a driver whose commits the test controls."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from common.ids import IncarnationId, TopicId, Uuid
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, METADATA_VERSION_FEATURE
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    FeatureLevelRecord,
    KnownRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from common.time_units import NS_PER_S
from controller.core.result import ControllerResult
from controller.core.settings import ControllerSettings
from controller.core.turn import Turn
from controller.event_queue import loop_turn
from controller.own_operations import ControllerTimers
from controller.quorum_controller import QuorumController
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.unit.controller.core.context import resolver
from tests.unit.controller.fake_driver import NODE_ID, FakeDriver

SESSION_NS = 9 * NS_PER_S
SETTINGS = ControllerSettings(cluster_id="c", session_timeout_ns=SESSION_NS, resolver=resolver({}))
QUIET = ControllerTimers(idle_interval_ns=0)
FEATURES: list[KnownRecord] = [
    FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=21),
    FeatureLevelRecord(name=DIRECTORY_NUMBERING_FEATURE, feature_level=1),
]
TOPIC = TopicId(Uuid(b"t" * 16))
A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
Scenario = Callable[[SimulatedWorld, QuorumController], Awaitable[None]]


def run(
    driver: FakeDriver,
    scenario: Scenario,
    *,
    timers: ControllerTimers = QUIET,
    batch_max: int = 10_000,
    expected_exit: int | None = None,
) -> None:
    """Runs the scenario alongside a controller on this driver."""

    async def on_node(world: SimulatedWorld) -> None:
        async def main(env: SimulatedEnvironment) -> None:
            controller = QuorumController(
                env, driver, SETTINGS, node_id=NODE_ID, timers=timers, records_per_batch_max=batch_max
            )
            try:
                async with asyncio.TaskGroup() as task_group:
                    controller.start(task_group)
                    await scenario(world, controller)
                    raise Finished
            except* Finished:
                pass

        env = world.node("controller")
        await env.start(main)
        assert env.exit_code == expected_exit

    SimulatedWorld(seed=1).run(on_node)


class Finished(Exception):
    """Raised to end the TaskGroup of a scenario that is done."""


def write(_turn: Turn, records: Sequence[KnownRecord]) -> ControllerResult[str]:
    """Makes an operation that writes these records and responds "written"."""
    return ControllerResult([ApiMessageAndVersion(record, 0) for record in records], "written")


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=TopicId(Uuid(name.encode().rjust(16, b"#"))))


async def code_of(answer: "asyncio.Future[Any]") -> ErrorCode:
    """Returns the code of the ApiError that an operation fails with."""
    with pytest.raises(ApiError) as caught:
        await answer
    return caught.value.code


def registered(broker_id: int, *, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=IncarnationId(Uuid(bytes([broker_id]) * 16)),
        broker_epoch=broker_id,
        fenced=fenced,
        log_dirs=[Uuid(bytes([broker_id]) * 16)],
    )


def partition(replicas: list[int], leader: int, isr: list[int], *, index: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=TOPIC,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=[Uuid(bytes([broker]) * 16) for broker in replicas],
    )


async def until(condition: Callable[[], bool]) -> None:
    """Goes on in the first round of the event loop in which the condition holds."""
    while not condition():
        await loop_turn()


def heartbeat_of(*, broker_id: int, epoch: int, offline: list[Uuid] | None = None) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=10**6, offline_log_dirs=offline or []
    )
