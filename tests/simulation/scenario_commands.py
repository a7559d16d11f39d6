"""The scenario commands that act on a simulated cluster: clients, disks, processes, network, time.

Shell of the tests. A command is a coroutine that may return output lines; its docstring shows its syntax. The output must
not depend on the seed, so times are rounded up to a few steps.
"""

import errno
import re
from collections.abc import Callable
from contextlib import suppress

from common.configuration.server_loading import load_server_config
from common.ids import BrokerId
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.metadata_version import DEFAULT_LEVEL
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode, error_name
from common.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from common.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from common.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpgradeType
from common.protocol.schema import Struct
from common.records.record import Record, encode_batch
from common.time_units import NS_PER_S
from tests.simulation.cluster import CLUSTER_ID, CONTROLLER_ID, NotAcknowledged, SimulatedCluster
from tests.simulation.disk import SimulatedDisk
from tests.simulation.scenario_run import (
    AT_ONCE,
    Arguments,
    CommandTable,
    ScenarioRun,
    broker_lists,
    duration_ns,
    partition_of,
    rounded_up,
)
from tools.errors import ToolError
from tools.kafka.storage import format_directories

ACTIONS = CommandTable()

command = ACTIONS.named


# --- set-up -------------------------------------------------------------------------------------------------------


@command("cluster")
async def start_cluster(run: ScenarioRun, arguments: Arguments) -> None:
    """cluster brokers=3 disks=3 [metadata.version=16] [any.configuration.key=value ...]: returns once all brokers run."""
    brokers, disks = int(arguments.option("brokers")), int(arguments.option("disks"))
    level = int(arguments.option("metadata.version", str(DEFAULT_LEVEL)))
    await run.start(SimulatedCluster(run.world, brokers=brokers, disks=disks, overrides=arguments.others(), level=level))


@command("create topic")
async def create_topic(run: ScenarioRun, arguments: Arguments) -> list[str] | None:
    """create topic t replicas=1,2,3 [partitions=2] [wait=no] [topic.configuration=value ...]: the first replica leads."""
    name, lists = arguments.word(), broker_lists(arguments.option("replicas"))
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
    # Wait for the next probe: brokers place replicas by the free space that the last probe has measured.
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


@command("update features")
async def update_features(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """update features [downgrade|unsafe] metadata.version=17: UpdateFeatures, sent to a broker. Shows the error, if any."""
    flags = arguments.rest()
    kind = UpgradeType.UPGRADE
    if flags:
        kind = {"downgrade": UpgradeType.SAFE_DOWNGRADE, "unsafe": UpgradeType.UNSAFE_DOWNGRADE}[flags[0]]
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=int(level), upgrade_type=kind)
        for name, level in arguments.others().items()
    ]
    response = await run.client.ask(run.live_broker(), UpdateFeaturesRequest(feature_updates=updates))
    return [error_name(response.error_code), *([response.error_message] if response.error_message else [])]


# --- clients ------------------------------------------------------------------------------------------------------


@command("produce")
async def produce(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """produce t-0 [count=10] [acks=all|1] [once]: retries until acknowledged; `once`: one attempt, and shows its result."""
    topic, index = partition_of(arguments.word())
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
    return [f"{records} acknowledged within {rounded_up(run.world.now_ns() - begun_ns, AT_ONCE)}"]


@command("send records")
async def send_records(run: ScenarioRun, arguments: Arguments) -> None:
    """send records t-0 to=1 [acks=1]: sends one record to that broker, leader or not, without waiting for the response;
    `show answers` shows it later."""
    name, broker_id = arguments.word(), int(arguments.option("to"))
    topic, index = partition_of(name)
    batch = encode_batch([Record(key=None, value=b"sent", timestamp_ms=0)])
    request = ProduceRequest(
        acks=-1 if (acks := arguments.option("acks", "all")) == "all" else int(acks),
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=run.cluster.state.topic_ids[topic],
                partition_data=[PartitionProduceData(index=index, records=bytes(batch))],
            )
        ],
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
    """show answers: the responses to `send records` so far."""
    answers, run.answers = run.answers, []
    return answers or ["none"]


@command("consume")
async def consume(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """consume t-0: reads everything up to the high watermark and compares it with the acknowledged records."""
    topic, index = partition_of(arguments.word())
    found = await run.client.read_all(topic, index)
    expected = run.client.acknowledged.get((topic, index), {})
    there = sum(found.get(offset) == value for offset, value in expected.items())
    return [f"{there} of {len(expected)} acknowledged records are there"]


# --- disks --------------------------------------------------------------------------------------------------------


@command("fail-disk")
async def fail_disk(run: ScenarioRun, arguments: Arguments) -> None:
    """fail-disk broker=2 dir=1 [errno=EIO]: every operation on the disk fails until `heal-disk`."""
    run.acted_at = len(run.world.events)
    run.disk(arguments).fail_with(getattr(errno, arguments.option("errno", "EIO")))


def _disk_command(name: str, act: Callable[[SimulatedDisk], None]) -> None:
    async def carry_out(run: ScenarioRun, arguments: Arguments) -> None:
        run.acted_at = len(run.world.events)
        act(run.disk(arguments))

    command(name)(carry_out)


# The syntax of all of these: NAME broker=2 dir=1.
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
    """replace-disk broker=2 dir=1: puts an empty, unformatted disk in its place."""
    run.look()
    disk = run.disk(arguments)
    disk.heal()
    disk.wipe()


@command("format")
async def format_disks(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """format broker=2 [strictly] [log.dirs=...]: kafka-storage format --ignore-formatted; `strictly`: without the option."""
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
    """remove-directory-id broker=2 dir=1: makes the disk look as if it was formatted before KIP-858."""
    disk = run.disk(arguments)
    lines = disk.files()["meta.properties"].splitlines(keepends=True)
    disk.write("meta.properties", b"".join(line for line in lines if not line.startswith(b"directory.id")))


@command("copy-meta-properties")
async def copy_meta_properties(run: ScenarioRun, arguments: Arguments) -> None:
    """copy-meta-properties broker=2 from=1 to=2: gives two directories the same id."""
    broker_id = arguments.broker()
    content = run.disk_at(broker_id, arguments.option("from")).files()["meta.properties"]
    run.disk_at(broker_id, arguments.option("to")).write("meta.properties", content)


@command("swap-disks")
async def swap_disks(run: ScenarioRun, arguments: Arguments) -> None:
    """swap-disks b1/d1 b2/d1: mounts each disk at the other's path."""
    run.world.swap_disks(f"/{arguments.word()}", f"/{arguments.word()}")


@command("move-log")
async def move_log(run: ScenarioRun, arguments: Arguments) -> None:
    """move-log t-0 broker=2 from=1 to=2: moves the replica's folder to another disk, while the broker is down."""
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
    """power-cut broker=2: kills the broker, and loses part or all of the data that its disks had not synced."""
    run.acted_at = len(run.world.events)
    node_id = arguments.node()
    run.note_killed(node_id)
    run.world.power_cut(run.cluster.name(node_id))


@command("stop")
async def stop(run: ScenarioRun, arguments: Arguments) -> None:
    """stop broker=2 [wait=no]: SIGTERM, and waits until the process has ended."""
    run.acted_at = len(run.world.events)
    node_id = arguments.node()
    env = run.cluster.env(node_id)
    run.meant_to_run.discard(node_id)
    run.cluster.ask_to_stop(node_id)
    if arguments.option("wait", "yes") == "yes":
        await run.world.until(lambda: env.is_dead)


@command("start")
async def start(run: ScenarioRun, arguments: Arguments) -> None:
    """start broker=2 [any.configuration.key=value ...] | start controller: starts it on its disks, without waiting."""
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
    """cut 1->controller | cut 1<->2: cuts the link in this direction, or in both."""
    run.acted_at = len(run.world.events)
    sender, arrow, receiver = re.split("(<?->)", arguments.word())
    run.world.network.cut(_node_name(sender), _node_name(receiver))
    if arrow == "<->":
        run.world.network.cut(_node_name(receiver), _node_name(sender))


@command("mend")
async def mend(run: ScenarioRun, _arguments: Arguments) -> None:
    """mend: ends all cuts. The bytes that were held back arrive."""
    run.world.network.mend()


# --- time ---------------------------------------------------------------------------------------------------------


@command("advance")
async def advance(run: ScenarioRun, arguments: Arguments) -> None:
    """advance 500ms"""
    await run.world.sleep(duration_ns(arguments.word()) / NS_PER_S)


@command("await")
async def wait(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """await EVENT [broker=2|controller] | running | in-sync t | leader t-0=2|none | dead broker=2; [within=60s]

    EVENT must have been logged since the last command that acts on the cluster."""
    what = arguments.word()
    within_ns = duration_ns(arguments.option("within", "60s"))
    begun_ns = run.world.now_ns()
    await run.world.until(_condition(run, what, arguments), within_seconds=within_ns / NS_PER_S)
    return [f"within {rounded_up(run.world.now_ns() - begun_ns)}"]


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
        return lambda: cluster.partition(*partition_of(name)).leader == (-1 if leader == "none" else int(leader))
    if what == "dead":
        env = cluster.env(arguments.broker())
        return lambda: env.is_dead
    node = cluster.name(arguments.node()) if arguments.words or "broker" in arguments.options else None
    since = run.acted_at
    return lambda: any(event.name == what and node in (None, event.node) for event in run.world.events[since:])
