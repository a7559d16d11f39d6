"""The commands of scenarios: what they do to a simulated cluster, and what they show of it.

Shell of the tests. A command is a coroutine that may return the lines to be recorded. Broker 2's first disk is `broker=2
dir=1`, its metadata disk `dir=metadata`; a node is named `2` or `controller`. Easy to get wrong: `show log`, `show
records` and `show requests` show what is new since they, or `cluster` or `create topic`, were last used.
"""

import asyncio
import errno
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from common.configuration.server import load_server_config
from common.ids import BrokerId, DirectoryId, TopicId, uuid_from_text
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.metadata_version import DEFAULT_LEVEL
from common.net.node_channel import ChannelError, NodeChannel
from common.protocol.errors import ErrorCode, error_name
from common.protocol.messages.alter_partition import AlterPartitionRequest, BrokerState
from common.protocol.messages.alter_partition import RequestPartitionData as AlteredPartition
from common.protocol.messages.alter_partition import RequestTopicData as AlteredTopic
from common.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from common.protocol.messages.broker_registration import BrokerRegistrationRequest
from common.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from common.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest
from common.protocol.schema import Struct
from common.records.batch import Record, encode_batch
from common.storage.meta_properties import parse_meta_properties
from tests.simulation.cluster import (
    CLUSTER_ID,
    CONTROLLER_ID,
    CONTROLLER_PORT,
    SECOND_NS,
    NotAcknowledged,
    SimulatedClient,
    SimulatedCluster,
)
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.simulation.request_tap import Exchange, TappedNetwork
from tests.simulation.scenario_views import (
    STORY,
    Names,
    event_line,
    exchange_line,
    in_columns,
    members,
    metadata_records,
    partition_line,
    record_line,
    registration_line,
    with_assignments_together,
    without_repeats,
)
from tools.errors import ToolError
from tools.kafka_storage import format_directories

CLIENT = "client"

METADATA_SEGMENT = f"__cluster_metadata-0/{0:020d}.log"

# How `await` and `produce` say how long it took: close enough for people, and the same for every seed.
STEPS_NS = tuple((f"{seconds} s", seconds * SECOND_NS) for seconds in (2, 5, 10, 20, 40))
AT_ONCE = ("50 ms", SECOND_NS // 20)

DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
UNITS_NS = MappingProxyType({"ms": SECOND_NS // 1000, "s": SECOND_NS, "m": 60 * SECOND_NS})


def duration_ns(text: str) -> int:
    """`500ms`, `2s`, `1m`."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is no duration; write 500ms, 2s or 1m")
    return round(float(match[1]) * UNITS_NS[match[2]])


@dataclass(slots=True)
class Arguments:
    """The words of a command and its `key=value` options. What nobody asks for is an error."""

    given: list[str]
    words: list[str] = field(init=False)
    options: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.words = [word for word in self.given if "=" not in word]
        self.options = dict(word.split("=", 1) for word in self.given if "=" in word)

    def word(self) -> str:
        if not self.words:
            raise ValueError("a word is missing")
        return self.words.pop(0)

    def rest(self) -> list[str]:
        rest, self.words = self.words, []
        return rest

    def option(self, key: str, default: str | None = None) -> str:
        value = self.options.pop(key, default)
        if value is None:
            raise ValueError(f"{key}= is missing")
        return value

    def others(self) -> dict[str, str]:
        others, self.options = self.options, {}
        return others

    def broker(self) -> int:
        return int(self.option("broker"))

    def node(self) -> int:
        """`broker=2`, or the word `controller`."""
        if "broker" in self.options:
            return self.broker()
        word = self.word()
        if word != "controller":
            raise ValueError("name a node: broker=N or controller")
        return CONTROLLER_ID

    def check_that_all_were_used(self) -> None:
        if self.words or self.options:
            raise ValueError(f"not understood: {' '.join([*self.words, *self.options])}")


Command = Callable[["ScenarioRun", Arguments], Awaitable[list[str] | None]]

_COMMANDS: dict[str, Command] = {}

COMMANDS: Mapping[str, Command] = MappingProxyType(_COMMANDS)


def command(name: str) -> Callable[[Command], Command]:
    def register(function: Command) -> Command:
        _COMMANDS[name] = function
        return function

    return register


class ScenarioRun:
    """One cluster under the commands of one file."""

    def __init__(self, world: SimulatedWorld, network: TappedNetwork, task_group: asyncio.TaskGroup) -> None:
        self.world = world
        self.names = Names()
        self._network = network
        self._task_group = task_group
        self._cluster: SimulatedCluster | None = None
        self._client: SimulatedClient | None = None
        self._controller_channel: NodeChannel | None = None
        self._killed: set[SimulatedEnvironment] = set()
        self._seen_events = 0
        self._seen_records = 0
        self._seen_exchanges = 0
        # When the last command began that did something: what `await` waits for comes after it.
        self.acted_at = 0
        self.meant_to_run: set[int] = set()
        self.answers: list[str] = []

    @property
    def cluster(self) -> SimulatedCluster:
        assert self._cluster is not None, "the first command is `cluster`"
        return self._cluster

    @property
    def client(self) -> SimulatedClient:
        assert self._client is not None, "the first command is `cluster`"
        return self._client

    async def start(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.meant_to_run = set(cluster.broker_ids)
        await cluster.start()
        # Until every broker sends the heartbeats of its daily life.
        await self.world.sleep(1)
        self._client = SimulatedClient(cluster, self._task_group)
        self.forget()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._controller_channel is not None:
            self._controller_channel.close()

    def start_task(self, waits: Coroutine[Any, Any, None]) -> None:
        """What goes on beside the commands."""
        self._task_group.create_task(waits)

    def look(self) -> Names:
        """The names of everything that is there now."""
        self.names.look(self.world._disks, self.cluster.state)
        return self.names

    def forget(self) -> None:
        """What happened until now is not shown any more."""
        self._seen_events = self.acted_at = len(self.world.events)
        self._seen_records = len(self._records())
        self._seen_exchanges = sum(each.sender != CLIENT for each in self._network.exchanges)
        self.look()

    def disk(self, arguments: Arguments) -> SimulatedDisk:
        return self.disk_at(arguments.broker(), arguments.option("dir"))

    def disk_at(self, broker_id: int, name: str) -> SimulatedDisk:
        return self.world.disk(f"/b{broker_id}/{name if name == 'metadata' else f'd{name}'}")

    def live_broker(self) -> int:
        """The one that clients ask; scenarios mostly hurt the first."""
        return next(id_ for id_ in reversed(self.cluster.broker_ids) if not self.cluster.env(id_).is_dead)

    def note_killed(self, node_id: int) -> None:
        self.meant_to_run.discard(node_id)
        self._killed.add(self.cluster.env(node_id))

    async def ask_controller(self, request: Struct) -> Any:
        if self._controller_channel is None:
            self._controller_channel = NodeChannel(
                self.world.node(CLIENT),
                host="controller",
                port=CONTROLLER_PORT,
                client_id="scenario",
                task_group=self._task_group,
            )
        return await self._controller_channel.send(request, deadline_ns=self.world.now_ns() + 30 * SECOND_NS)

    # --- what is new ----------------------------------------------------------------------------------------------

    def new_events(self, node: str | None, wanted: frozenset[str]) -> list[str]:
        events = self.world.events[self._seen_events :]
        self._seen_events = len(self.world.events)
        return [event_line(self.look(), e) for e in events if e.name in wanted and node in (None, e.node)]

    def new_records(self) -> list[str]:
        records = self._records()[self._seen_records :]
        self._seen_records += len(records)
        return [line for record in records if (line := record_line(self.look(), record)) is not None]

    def new_exchanges(self, sender: str | None, words: list[str]) -> list[str]:
        """Those with one of the words; heartbeats where they differ from the one before of the same broker."""
        names = self.look()
        exchanges = [each for each in self._network.exchanges if each.sender != CLIENT]
        before = {
            exchange.sender: exchange_line(names, exchange)
            for exchange in exchanges[: self._seen_exchanges]
            if isinstance(exchange.request, BrokerHeartbeatRequest)
        }
        fresh = [each for each in exchanges[self._seen_exchanges :] if sender in (None, each.sender)]
        self._seen_exchanges = len(exchanges)
        wanted = [
            each
            for each in _without_usual_heartbeats(names, before, fresh)
            if not words or any(word in exchange_line(names, each).split() for word in words)
        ]
        return [exchange_line(names, exchange) for exchange in with_assignments_together(wanted)]

    def _records(self) -> list[Struct]:
        content = self.world.disk("/controller/metadata").files().get(METADATA_SEGMENT, b"")
        return metadata_records(content)

    def process_line(self, broker_id: int) -> str:
        env = self.cluster.env(broker_id)
        if not env.is_dead:
            node = self.cluster.nodes.get(broker_id)
            return "STARTING" if node is None or node.broker is None else node.broker.lifecycle.state.name
        if env.exit_code is None:
            return "killed" if env in self._killed else "stopped"
        ends = [e for e in self.world.events if e.node == env.name and e.name in ("node_halted", "node_not_started")]
        return f"exited with status {env.exit_code}: {self.look().in_text(ends[-1].fields['reason'])}"


def _without_usual_heartbeats(names: Names, before: dict[str, str], exchanges: list[Exchange]) -> Iterator[Exchange]:
    """`before` is the line of each broker's last heartbeat."""
    for exchange in exchanges:
        if isinstance(exchange.request, BrokerHeartbeatRequest):
            line = exchange_line(names, exchange)
            is_usual = before.get(exchange.sender) == line
            before[exchange.sender] = line
            if is_usual:
                continue
        yield exchange


def _partition(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def _broker_lists(text: str) -> list[list[int]]:
    """`1,2,3` or, one for each partition, `1,2;2,3`."""
    return [[int(each) for each in part.split(",")] for part in text.split(";")]


def _rounded_up(elapsed_ns: int, *steps: tuple[str, int]) -> str:
    return next((name for name, limit_ns in (*steps, *STEPS_NS) if elapsed_ns <= limit_ns), "a minute")


# --- set-up -------------------------------------------------------------------------------------------------------


@command("cluster")
async def start_cluster(run: ScenarioRun, arguments: Arguments) -> None:
    """cluster brokers=3 disks=3 [metadata.version=16] [any.configuration.key=value ...]: starts it; all brokers run then."""
    brokers, disks = int(arguments.option("brokers")), int(arguments.option("disks"))
    level = int(arguments.option("metadata.version", str(DEFAULT_LEVEL)))
    await run.start(SimulatedCluster(run.world, brokers=brokers, disks=disks, overrides=arguments.others(), level=level))


@command("create topic")
async def create_topic(run: ScenarioRun, arguments: Arguments) -> list[str] | None:
    """create topic t replicas=1,2,3 [partitions=2] [wait=no] [topic.configuration=value ...]: the first replica leads."""
    name, lists = arguments.word(), _broker_lists(arguments.option("replicas"))
    partitions = int(arguments.option("partitions", str(len(lists))))
    wait = arguments.option("wait", "yes") == "yes"
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=lists[index % len(lists)])
            for index in range(partitions)
        ],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in arguments.others().items()],
    )
    if not wait:
        _start_asking(run, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        await run.world.until(lambda: name in run.cluster.state.topic_ids)
        return None
    response = await run.client.ask(run.live_broker(), CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    (result,) = response.topics
    if result.error_code != ErrorCode.NONE:
        return [error_name(result.error_code)]
    await run.cluster.until_in_sync(name)
    # Directories are chosen by what is free, as the probe saw it last.
    await run.world.sleep(1.5)
    run.forget()
    return None


def _start_asking(run: ScenarioRun, request: Struct) -> None:
    async def ask() -> None:
        with suppress(ChannelError):
            await run.client.ask(run.live_broker(), request)

    run.start_task(ask())


@command("delete topic")
async def delete_topic(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """delete topic t"""
    name = arguments.word()
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=30_000)
    response = await run.client.ask(run.live_broker(), request)
    for key in [key for key in run.client.acknowledged if key[0] == name]:
        del run.client.acknowledged[key]
    return [error_name(response.responses[0].error_code)]


# --- clients ------------------------------------------------------------------------------------------------------


@command("produce")
async def produce(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """produce t-0 [count=10] [acks=all|1] [once]: with acks=all until acknowledged; `once`: one attempt, and its answer."""
    topic, index = _partition(arguments.word())
    count = int(arguments.option("count", "1"))
    acks = -1 if (given := arguments.option("acks", "all")) == "all" else int(given)
    begun_ns = run.world.now_ns()
    if arguments.rest() == ["once"]:
        try:
            offset = await run.client.produce_once(topic, index, b"%s-%d once" % (topic.encode(), index), acks=acks)
        except NotAcknowledged as refusal:
            return [f"not acknowledged: {refusal}"]
        return [f"acknowledged at offset {offset}"]
    for number in range(count):
        await run.client.produce(topic, index, b"%s-%d %d" % (topic.encode(), index, number), acks=acks)
    records = "1 record" if count == 1 else f"{count} records"
    return [f"{records} acknowledged within {_rounded_up(run.world.now_ns() - begun_ns, AT_ONCE)}"]


@command("send records")
async def send_records(run: ScenarioRun, arguments: Arguments) -> None:
    """send records t-0 to=1 [acks=1]: one record to that broker, whoever leads, without waiting; `show answers` later."""
    name, broker_id = arguments.word(), int(arguments.option("to"))
    topic, index = _partition(name)
    batch = encode_batch([Record(key=None, value=b"sent", timestamp_ms=0)])
    request = ProduceRequest(
        acks=-1 if (acks := arguments.option("acks", "all")) == "all" else int(acks),
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=bytes(batch))])],
    )

    async def ask() -> None:
        try:
            response = await run.client.ask(broker_id, request)
        except ChannelError:
            run.answers.append(f"{name} to broker {broker_id}: no answer")
        else:
            code = response.responses[0].partition_responses[0].error_code
            run.answers.append(f"{name} to broker {broker_id}: {error_name(code)}")

    run.start_task(ask())


@command("show answers")
async def show_answers(run: ScenarioRun, _arguments: Arguments) -> list[str]:
    """show answers: to what `send records` sent."""
    answers, run.answers = run.answers, []
    return answers or ["none"]


@command("consume")
async def consume(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """consume t-0: everything up to the high watermark, compared with what was acknowledged."""
    topic, index = _partition(arguments.word())
    found = await run.client.read_all(topic, index)
    expected = run.client.acknowledged.get((topic, index), {})
    there = sum(found.get(offset) == value for offset, value in expected.items())
    return [f"{there} of {len(expected)} acknowledged records are there"]


# --- disks --------------------------------------------------------------------------------------------------------


@command("fail-disk")
async def fail_disk(run: ScenarioRun, arguments: Arguments) -> None:
    """fail-disk broker=2 dir=1 [errno=EIO]: everything on it fails until `heal-disk`."""
    run.acted_at = len(run.world.events)
    run.disk(arguments).fail_with(getattr(errno, arguments.option("errno", "EIO")))


def _disk_command(name: str, act: Callable[[SimulatedDisk], None]) -> None:
    async def carry_out(run: ScenarioRun, arguments: Arguments) -> None:
        run.acted_at = len(run.world.events)
        act(run.disk(arguments))

    command(name)(carry_out)


# All of them: NAME broker=2 dir=1.
_disk_command("heal-disk", SimulatedDisk.heal)
_disk_command("hang-disk", SimulatedDisk.hang)
_disk_command("thaw-disk", SimulatedDisk.thaw)
_disk_command("fill-disk", SimulatedDisk.fill)
_disk_command("free-disk", SimulatedDisk.free_space)
_disk_command("make-disk-read-only", SimulatedDisk.make_read_only)
_disk_command("fail-next-fsync", SimulatedDisk.fail_fsync_once)
_disk_command("fail-reads", SimulatedDisk.fail_reads)
_disk_command("unmount-disk", SimulatedDisk.unmount)
_disk_command("mount-disk", SimulatedDisk.mount)


@command("replace-disk")
async def replace_disk(run: ScenarioRun, arguments: Arguments) -> None:
    """replace-disk broker=2 dir=1: an empty one, unformatted, in its place."""
    run.look()
    disk = run.disk(arguments)
    disk.heal()
    disk.wipe()


@command("format")
async def format_disks(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """format broker=2 [strictly] [log.dirs=...]: kafka-storage format --ignore-formatted; strictly: without that option."""
    broker_id = arguments.broker()
    is_strict = arguments.rest() == ["strictly"]
    said: list[str] = []
    try:
        await format_directories(
            run.world.node(f"format-{broker_id}"),
            load_server_config({**run.cluster.properties(broker_id), **arguments.others()}),
            cluster_id=CLUSTER_ID,
            level=run.cluster.level,
            ignore_formatted=not is_strict,
            say=said.append,
            explain=said.append,
        )
    except ToolError as error:
        said.append(str(error))
    names = run.look()
    return [names.in_text(line) for text in said for line in text.splitlines()]


@command("remove-directory-id")
async def remove_directory_id(run: ScenarioRun, arguments: Arguments) -> None:
    """remove-directory-id broker=2 dir=1: as a disk that was formatted before KIP-858."""
    disk = run.disk(arguments)
    lines = disk.files()["meta.properties"].splitlines(keepends=True)
    disk.write("meta.properties", b"".join(line for line in lines if not line.startswith(b"directory.id")))


@command("copy-meta-properties")
async def copy_meta_properties(run: ScenarioRun, arguments: Arguments) -> None:
    """copy-meta-properties broker=2 from=1 to=2: two directories with one id."""
    broker_id = arguments.broker()
    content = run.disk_at(broker_id, arguments.option("from")).files()["meta.properties"]
    run.disk_at(broker_id, arguments.option("to")).write("meta.properties", content)


@command("swap-disks")
async def swap_disks(run: ScenarioRun, arguments: Arguments) -> None:
    """swap-disks b1/d1 b2/d1: each is mounted at the other's path."""
    run.world.swap_disks(f"/{arguments.word()}", f"/{arguments.word()}")


@command("move-log")
async def move_log(run: ScenarioRun, arguments: Arguments) -> None:
    """move-log t-0 broker=2 from=1 to=2: by hand, while the broker is down."""
    name, broker_id = arguments.word(), arguments.broker()
    source = run.disk_at(broker_id, arguments.option("from"))
    target = run.disk_at(broker_id, arguments.option("to"))
    for path, content in source.files().items():
        if path.startswith(f"{name}/"):
            target.write(path, content)
    source.delete(name)


@command("delete-log")
async def delete_log(run: ScenarioRun, arguments: Arguments) -> None:
    """delete-log t-0 broker=2 dir=1: rm -rf of the replica, while the broker is down."""
    name = arguments.word()
    run.disk(arguments).delete(name)


# --- processes ----------------------------------------------------------------------------------------------------


@command("crash")
async def crash(run: ScenarioRun, arguments: Arguments) -> None:
    """crash broker=2 | crash controller: kill -9."""
    run.acted_at = len(run.world.events)
    node_id = arguments.node()
    run.note_killed(node_id)
    run.cluster.crash(node_id)


@command("power-cut")
async def power_cut(run: ScenarioRun, arguments: Arguments) -> None:
    """power-cut broker=2: dead at once, and what its disks had not synced is lost in part or whole."""
    run.acted_at = len(run.world.events)
    node_id = arguments.node()
    run.note_killed(node_id)
    run.world.power_cut(run.cluster.name(node_id))


@command("stop")
async def stop(run: ScenarioRun, arguments: Arguments) -> None:
    """stop broker=2 [wait=no]: SIGTERM, and waits for its end."""
    run.acted_at = len(run.world.events)
    node_id = arguments.node()
    env = run.cluster.env(node_id)
    run.meant_to_run.discard(node_id)
    run.cluster.ask_to_stop(node_id)
    if arguments.option("wait", "yes") == "yes":
        await run.world.until(lambda: env.is_dead)


@command("start")
async def start(run: ScenarioRun, arguments: Arguments) -> None:
    """start broker=2 [any.configuration.key=value ...] | start controller: on the disks that it has; does not wait."""
    run.acted_at = len(run.world.events)
    node_id = arguments.node()
    run.cluster.start_node(node_id, arguments.others())
    if node_id != CONTROLLER_ID:
        run.meant_to_run.add(node_id)


@command("pause")
async def pause(run: ScenarioRun, arguments: Arguments) -> None:
    """pause broker=2 | pause controller: SIGSTOP."""
    run.acted_at = len(run.world.events)
    run.cluster.pause(arguments.node())


@command("resume")
async def resume(run: ScenarioRun, arguments: Arguments) -> None:
    """resume broker=2 | resume controller: SIGCONT."""
    run.acted_at = len(run.world.events)
    run.cluster.resume(arguments.node())


# --- network ------------------------------------------------------------------------------------------------------


def _node_name(text: str) -> str:
    return text if text == "controller" else f"broker-{int(text)}"


@command("cut")
async def cut(run: ScenarioRun, arguments: Arguments) -> None:
    """cut 1->controller | cut 1<->2: nothing arrives in this direction, or in both."""
    run.acted_at = len(run.world.events)
    sender, arrow, receiver = re.split("(<?->)", arguments.word())
    run.world.network.cut(_node_name(sender), _node_name(receiver))
    if arrow == "<->":
        run.world.network.cut(_node_name(receiver), _node_name(sender))


@command("mend")
async def mend(run: ScenarioRun, _arguments: Arguments) -> None:
    """mend: ends all cuts; what was held back arrives."""
    run.world.network.mend()


# --- time ---------------------------------------------------------------------------------------------------------


@command("advance")
async def advance(run: ScenarioRun, arguments: Arguments) -> None:
    """advance 500ms"""
    await run.world.sleep(duration_ns(arguments.word()) / SECOND_NS)


@command("await")
async def wait(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """await EVENT [broker=2|controller] | running | in-sync t | leader t-0=2|none | dead broker=2; [within=60s]

    An event is one that was logged since the last command that did something."""
    what = arguments.word()
    within_ns = duration_ns(arguments.option("within", "60s"))
    begun_ns = run.world.now_ns()
    await run.world.until(_condition(run, what, arguments), within_seconds=within_ns / SECOND_NS)
    return [f"within {_rounded_up(run.world.now_ns() - begun_ns)}"]


def _condition(run: ScenarioRun, what: str, arguments: Arguments) -> Callable[[], object]:
    cluster = run.cluster
    if what == "running":
        return lambda: all(
            (registration := cluster.state.brokers.get(BrokerId(id_))) is not None
            and not registration.fenced
            and run.process_line(id_) == "RUNNING"
            for id_ in run.meant_to_run
        )
    if what == "in-sync":
        topic = arguments.word()
        return lambda: all(
            part.has_leader and set(part.isr) == set(part.replicas) and UNASSIGNED not in part.directories
            for part in cluster.partitions(topic).values()
        )
    if what == "leader":
        ((name, leader),) = arguments.others().items()
        return lambda: cluster.partition(*_partition(name)).leader == (-1 if leader == "none" else int(leader))
    if what == "dead":
        env = cluster.env(arguments.broker())
        return lambda: env.is_dead
    node = cluster.name(arguments.node()) if arguments.words or "broker" in arguments.options else None
    since = run.acted_at
    return lambda: any(event.name == what and node in (None, event.node) for event in run.world.events[since:])


# --- requests made by hand ----------------------------------------------------------------------------------------


def _epoch_of(run: ScenarioRun, arguments: Arguments, broker_id: int) -> int:
    """`epoch=stale`, or the one that the controller knows."""
    registration = run.cluster.state.brokers[BrokerId(broker_id)]
    return registration.epoch - (1 if arguments.option("epoch", "current") == "stale" else 0)


def _directory_ids(run: ScenarioRun, text: str) -> list[DirectoryId]:
    found = [run.look().directory_id(name) if name != "never-seen" else _never_seen() for name in text.split(",") if name]
    assert None not in found, f"no directory is called {text}"
    return [each for each in found if each is not None]


def _never_seen() -> DirectoryId:
    return DirectoryId(uuid_from_text("neverseen" + "A" * 13))


async def _send(run: ScenarioRun, request: Struct) -> list[str]:
    response = await run.ask_controller(request)
    return [exchange_line(run.look(), Exchange("scenario", request, response)).partition(" -> ")[2]]


@command("send heartbeat")
async def send_heartbeat(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """send heartbeat broker=2 [offline=b2/d1,never-seen] [epoch=stale] [fence] [shut-down]: in the broker's name."""
    broker_id = arguments.broker()
    flags = arguments.rest()
    request = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=_epoch_of(run, arguments, broker_id),
        current_metadata_offset=1 << 40,
        want_fence="fence" in flags,
        want_shut_down="shut-down" in flags,
        offline_log_dirs=[*_directory_ids(run, arguments.option("offline", ""))],
    )
    return await _send(run, request)


@command("send assignment")
async def send_assignment(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """send assignment broker=2 t-0=b2/d1 [epoch=stale]: AssignReplicasToDirs in the broker's name."""
    broker_id = arguments.broker()
    epoch = _epoch_of(run, arguments, broker_id)
    directories = []
    for name, directory in arguments.others().items():
        topic, index = _partition(name)
        topic_id = run.cluster.state.topic_ids.get(topic, TopicId(_never_seen()))
        data = RequestTopicData(topic_id=topic_id, partitions=[RequestPartitionData(partition_index=index)])
        directories.append(RequestDirectoryData(id=_directory_ids(run, directory)[0], topics=[data]))
    return await _send(run, AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=epoch, directories=directories))


@command("send isr")
async def send_isr(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """send isr t-0=1,2,3: AlterPartition in the name of the leader, with the epochs that are right."""
    ((name, isr),) = arguments.others().items()
    topic, index = _partition(name)
    part = run.cluster.partition(topic, index)
    brokers = run.cluster.state.brokers
    altered = AlteredPartition(
        partition_index=index,
        leader_epoch=part.leader_epoch,
        partition_epoch=part.partition_epoch,
        new_isr_with_epochs=[
            BrokerState(broker_id=id_, broker_epoch=brokers[BrokerId(id_)].epoch) for id_ in _broker_lists(isr)[0]
        ],
    )
    request = AlterPartitionRequest(
        broker_id=part.leader,
        broker_epoch=brokers[part.leader].epoch,
        topics=[AlteredTopic(topic_id=run.cluster.topic_id(topic), partitions=[altered])],
    )
    return await _send(run, request)


@command("send registration")
async def send_registration(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """send registration broker=9 dirs=b2/d1: BrokerRegistration of a new incarnation; `dirs=` names none."""
    request = BrokerRegistrationRequest(
        broker_id=arguments.broker(),
        cluster_id=CLUSTER_ID,
        incarnation_id=run.world.node(CLIENT).uuid(),
        log_dirs=[*_directory_ids(run, arguments.option("dirs"))],
    )
    return await _send(run, request)


@command("unregister")
async def unregister(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """unregister broker=2: kafka-cluster unregister."""
    run.acted_at = len(run.world.events)
    broker_id = arguments.broker()
    asked = next(id_ for id_ in run.cluster.broker_ids if id_ != broker_id and not run.cluster.env(id_).is_dead)
    response = await run.client.ask(asked, UnregisterBrokerRequest(broker_id=broker_id))
    return [error_name(response.error_code)]


# --- looking ------------------------------------------------------------------------------------------------------


@command("show partition")
async def show_partition(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show partition t-0 [t-1 ...]: as the controller has it."""
    names = run.look()
    return [
        partition_line(names, run.cluster.state, name, run.cluster.partition(*_partition(name))) for name in arguments.rest()
    ]


@command("show topic")
async def show_topic(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show topic t: all its partitions."""
    topic = arguments.word()
    names = run.look()
    return [
        partition_line(names, run.cluster.state, f"{topic}-{index}", part)
        for index, part in sorted(run.cluster.partitions(topic).items())
    ] or ["no such topic"]


@command("show broker")
async def show_broker(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show broker 2: its process, and its registration."""
    broker_id = int(arguments.word())
    names = run.look()
    return in_columns(
        [
            ("process", run.process_line(broker_id)),
            ("registration", registration_line(names, run.cluster.state, broker_id)),
        ]
    )


@command("show log")
async def show_log(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show log [controller|broker=2] [EVENT ...]: the events that tell a story to an operator, or those that are named."""
    node = run.cluster.name(arguments.broker()) if "broker" in arguments.options else None
    if "controller" in arguments.words:
        arguments.words.remove("controller")
        node = "controller"
    return without_repeats(run.new_events(node, frozenset(arguments.rest()) or STORY | {"node_not_started"})) or ["nothing"]


@command("show records")
async def show_records(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show records [WORD ...]: records of the metadata log that contain one of the words, in its order."""
    words = [*arguments.rest(), *(f"{key}={value}" for key, value in arguments.others().items())]
    return [line for line in run.new_records() if not words or any(word in line.split() for word in words)] or ["none"]


@command("show requests")
async def show_requests(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show requests [broker=2] [BrokerHeartbeat ...]: what brokers asked of the controller, and its answers."""
    sender = run.cluster.name(arguments.broker()) if "broker" in arguments.options else None
    return without_repeats(run.new_exchanges(sender, arguments.rest())) or ["none"]


@command("show metadata")
async def show_metadata(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show metadata t from=3: what broker 3 tells a client about a topic."""
    topic, broker_id = arguments.word(), int(arguments.option("from"))
    response = await run.client.ask(
        broker_id, MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    )
    return in_columns(
        [
            (
                f"{topic}-{part.partition_index}",
                error_name(part.error_code),
                f"leader {part.leader_id if part.leader_id >= 0 else 'none'}",
                f"isr {members(part.isr_nodes)}",
                f"offline {members(part.offline_replicas)}",
            )
            for part in response.topics[0].partitions
        ]
    )


@command("show log-dirs")
async def show_log_dirs(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show log-dirs 2: what kafka-log-dirs --describe says of the broker."""
    response = await run.client.ask(int(arguments.word()), DescribeLogDirsRequest(topics=None))
    return in_columns(
        [
            (
                result.log_dir,
                error_name(result.error_code),
                " ".join(f"{topic.name}-{part.partition_index}" for topic in result.topics for part in topic.partitions),
            )
            for result in response.results
        ]
    )


@command("show disk")
async def show_disk(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show disk broker=2 dir=1: the folders on it, and the clean-shutdown marker."""
    disk = run.disk(arguments)
    marker = [".kafka_cleanshutdown"] if ".kafka_cleanshutdown" in disk.files() else []
    folders = [re.sub(r"\.[0-9a-f]{32}-", ".<hex>-", name) for name in disk.folders()]
    return [" ".join(marker + folders) or "empty"]


@command("show meta.properties")
async def show_meta_properties(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show meta.properties broker=2: of each of its directories, by path."""
    config = run.cluster.config(arguments.broker())
    names = run.look()
    rows = []
    for path in config.all_log_dirs:
        content = run.world.disk(path).files().get("meta.properties")
        rows.append((path, "none" if content is None else names.in_text(str(parse_meta_properties(content)))))
    return in_columns(rows)


@command("show metric")
async def show_metric(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show metric NAME broker=2: what Prometheus reads; the cluster needs diskraft.prometheus.listener=0.0.0.0:9404."""
    name = arguments.word()
    (collector,) = run.cluster.env(arguments.broker()).collectors.values()
    return [
        " ".join([f"{sample.value:g}", *(f"{key}={value}" for key, value in sample.labels.items())])
        for metric in collector.collect()
        for sample in metric.samples
        if sample.name == name
    ] or ["no such metric"]
