"""How long the event loop of a node stands still while a broker loses a directory with many replicas.

    python -m tests.benchmarks.bench_long_operations [--partitions 10000 30000 100000] [--quick]

One process runs the active controller, its metadata log on a real disk, and the image of a broker that follows the log. One
broker reports the directory in which it leads all partitions; another one sends a heartbeat every 10 ms meanwhile. `step` is
the longest round of the event loop in CPU time, `heartbeat` the longest time that the other broker waited.
Each figure is measured twice in one run: with the operation in slices, and with all of it in one slice. Prints one line of
JSON and one human-readable line for each number of partitions.
"""

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import uvloop

from broker.controller_link import metadata_follower
from broker.controller_link.metadata_follower import MetadataFollower
from common.configuration.resolver import ConfigResolver
from common.configuration.server_loading import load_server_config
from common.environment.entry import GC_THRESHOLDS, freeze_loaded_objects
from common.environment.real import RealEnvironment
from common.ids import BrokerId, DirectoryId, IncarnationId, TopicId, Uuid
from common.metadata.delta import MetadataDelta
from common.metadata.state import MetadataState
from common.net.node_channel import NodeChannel
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.raft.driver import QuorumDriver
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import KnownRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from common.time_units import NS_PER_MS, NS_PER_S
from controller import quorum_controller
from controller.core import long_decisions
from controller.core.heartbeat import answer_between_slices, handle_broker_heartbeat
from controller.core.result import ControllerResult
from controller.core.settings import ControllerSettings
from controller.core.turn import Turn
from controller.quorum_controller import QuorumController
from tests.benchmarks.measuring import print_result

PARTITIONS_PER_TOPIC = 1_000
BROKERS = (1, 2, 3)
HEARTBEAT_INTERVAL_NS = 10 * NS_PER_MS
SESSION_NS = 9 * NS_PER_S
PROPERTIES = {
    "process.roles": "controller",
    "node.id": "9",
    "controller.quorum.voters": "9@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9093",
}


def directory(broker: int, disk: int) -> DirectoryId:
    return DirectoryId(Uuid(b"\x40" + (broker * 1_000 + disk).to_bytes(15, "big")))


def cluster(partitions: int) -> Iterator[list[ApiMessageAndVersion]]:
    """Yields the records of the cluster in pieces. Broker 1 leads every partition, in its first directory."""
    yield [
        ApiMessageAndVersion(
            RegisterBrokerRecord(
                broker_id=broker,
                broker_epoch=broker,
                incarnation_id=Uuid(bytes([broker]) * 16),
                fenced=False,
                log_dirs=[directory(broker, disk) for disk in range(2)],
            ),
            3,
        )
        for broker in BROKERS
    ]
    for number in range(0, partitions, PARTITIONS_PER_TOPIC):
        topic_id = TopicId(Uuid(b"\x70" + number.to_bytes(15, "big")))
        topic: KnownRecord = TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        yield [
            ApiMessageAndVersion(topic, 0),
            *(
                ApiMessageAndVersion(
                    PartitionRecord(
                        partition_id=index,
                        topic_id=topic_id,
                        replicas=[1, 2 + index % 2],
                        isr=[1, 2 + index % 2],
                        leader=1,
                        leader_epoch=0,
                        partition_epoch=0,
                        directories=[directory(1, 0), directory(2 + index % 2, 0)],
                    ),
                    1,
                )
                for index in range(PARTITIONS_PER_TOPIC)
            ),
        ]


def write(_turn: Turn, records: Sequence[ApiMessageAndVersion]) -> ControllerResult[None]:
    return ControllerResult(records, None, is_atomic=False)


def heartbeat(broker: int, offline: Sequence[DirectoryId] = ()) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker, broker_epoch=broker, current_metadata_offset=2**40, offline_log_dirs=list(offline)
    )


@dataclass(slots=True)
class Figures:
    """What was measured, in milliseconds."""

    steps: list[float] = field(default_factory=list)
    heartbeats: list[float] = field(default_factory=list)
    answers: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, float]:
        return {
            "step_ms": round(max(self.steps), 1),
            "heartbeat_ms": round(max(self.heartbeats), 1),
            "answer_ms": round(max(self.answers), 1),
        }


class LoopTicks:
    """Measures the rounds of the event loop by a callback that takes part in each of them. Counts the thread's CPU time,
    which other processes of the machine do not lengthen."""

    def __init__(self, steps: list[float]) -> None:
        self._steps = steps
        self._loop = asyncio.get_running_loop()
        self._last = time.thread_time()
        self._handle = self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        now = time.thread_time()
        self._steps.append(1_000 * (now - self._last))
        self._last = now
        self._handle = self._loop.call_soon(self._tick)

    def close(self) -> None:
        self._handle.cancel()


class Node:
    """The active controller, its log on disk, and a broker's image."""

    def __init__(self, env: RealEnvironment, driver: QuorumDriver) -> None:
        self._env = env
        self._driver = driver
        self._active = asyncio.Event()
        settings = ControllerSettings(
            cluster_id="c",
            session_timeout_ns=SESSION_NS,
            resolver=ConfigResolver(load_server_config(PROPERTIES), PROPERTIES),
        )
        self.controller = QuorumController(env, driver, settings, node_id=9, on_active=self._active.set)
        self.image = MetadataState()
        self._follower = MetadataFollower(
            env,
            self.image,
            broker_id=BrokerId(1),
            incarnation_id=IncarnationId(Uuid(b"i" * 16)),
            publish=_ignore,
            on_published=lambda _offset, _is_first: None,
        )

    async def start(self, task_group: asyncio.TaskGroup, partitions: int) -> None:
        self.controller.start(task_group)
        self._driver.register(self._follower)
        task_group.create_task(self._follower.run())
        task_group.create_task(self._driver.run(task_group))
        await self._active.wait()
        for records in cluster(partitions):
            await self.controller.submit("write", write, records)
            for broker in BROKERS:
                # A broker that has never sent a heartbeat counts as silent, and would be fenced.
                await self.heartbeat(heartbeat(broker))

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return await self.controller.submit("heartbeat", handle_broker_heartbeat, request, early=answer_between_slices)

    async def measure(self) -> Figures:
        """Reports the directory and waits until the broker's image has its new leaders."""
        figures = Figures()
        ticks = LoopTicks(figures.steps)
        async with asyncio.TaskGroup() as task_group:
            is_over = asyncio.Event()
            task_group.create_task(self._keep_heartbeats(figures.heartbeats, is_over))
            await self._env.sleep_until(self._env.now_ns() + 5 * HEARTBEAT_INTERVAL_NS)
            begun = time.perf_counter()
            await self.heartbeat(heartbeat(1, [directory(1, 0)]))
            figures.answers.append(1_000 * (time.perf_counter() - begun))
            while self.image.leads_any(BrokerId(1)):
                await self._env.sleep_until(self._env.now_ns() + HEARTBEAT_INTERVAL_NS)
            is_over.set()
        ticks.close()
        assert not any(broker.fenced for broker in self.image.brokers.values())
        assert self.image == self.controller.state
        return figures

    async def _keep_heartbeats(self, waits: list[float], is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            due_ns = self._env.now_ns() + HEARTBEAT_INTERVAL_NS
            await self._env.sleep_until(due_ns)
            await self.heartbeat(heartbeat(2))
            # The heartbeat of another process would have been sent when it was due.
            waits.append((self._env.now_ns() - due_ns) / NS_PER_MS)


class Done(Exception):
    """Ends the tasks of a node."""


async def measured(partitions: int, folder: str) -> Figures:
    env = RealEnvironment("bench")
    log_dir = env.log_dir(folder, operation_timeout_ns=60 * NS_PER_S)
    await log_dir.attach(create=True)
    config = load_server_config(PROPERTIES)
    driver = await QuorumDriver.open(
        env,
        config,
        node_id=BrokerId(9),
        cluster_id="c",
        log_dir=log_dir,
        directory_id=directory(9, 0),
        voters=config.controller_quorum_voters,
        channels=no_channel,
    )
    figures: list[Figures] = []
    try:
        async with asyncio.TaskGroup() as task_group:
            node = Node(env, driver)
            await node.start(task_group, partitions)
            freeze_loaded_objects()
            figures.append(await node.measure())
            await driver.close()
            raise Done
    except* Done:
        await log_dir.close()
    return figures[0]


async def _ignore(_: MetadataDelta) -> None:
    """Publishes nothing: there are no replicas here."""


def no_channel(host: str, port: int) -> NodeChannel:
    raise AssertionError(f"the only voter asks {host}:{port}")


def run(partitions: int) -> Figures:
    """Measures in a fresh log, on the daemons' event loop."""
    # As the daemons do.
    gc.set_threshold(*GC_THRESHOLDS)
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(measured(partitions, folder))
    gc.unfreeze()
    gc.collect()
    return figures


def run_in_one_slice(partitions: int) -> Figures:
    with (
        patch.object(long_decisions, "PARTITIONS_PER_SLICE", 10**9),
        patch.object(quorum_controller, "RECORDS_PER_SLICE", 10**9),
        patch.object(metadata_follower, "REPLAY_SLICE", 10**9),
    ):
        return run(partitions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, nargs="*", default=[10_000, 30_000, 100_000])
    parser.add_argument("--quick", action="store_true", help="10,000 partitions only")
    arguments = parser.parse_args()
    command = "python -m tests.benchmarks.bench_long_operations"
    for partitions in [10_000] if arguments.quick else arguments.partitions:
        sliced, whole = run(partitions).as_json(), run_in_one_slice(partitions).as_json()
        print_result(
            "long_operations",
            command,
            {"partitions": partitions, "in_slices": sliced, "in_one_slice": whole},
            f"{partitions} partitions in a lost directory: the event loop stands still for {sliced['step_ms']} ms at most "
            f"({whole['step_ms']} ms in one slice), a heartbeat waits for {sliced['heartbeat_ms']} ms "
            f"({whole['heartbeat_ms']} ms), the report is answered after {sliced['answer_ms']} ms ({whole['answer_ms']} ms)",
        )


if __name__ == "__main__":
    main()
