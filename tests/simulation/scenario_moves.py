"""Scenario commands for moves between directories and between brokers: start, cancel, throttle and show them.

Shell of the tests. There are two ways to stop a move in the middle. A rate of 0
(`replica.alter.log.dirs.io.max.bytes.per.second=0`) stops the copying. Cutting the broker's link to the controller stops the
acknowledgement of the new directory. A throttle of 0 keeps a replica that a reassignment adds from catching up.
"""

import io
import json
import tempfile
from contextlib import redirect_stdout

from admin.client import AdminClient
from common.protocol.errors import error_name
from common.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from common.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from common.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from common.records.metadata_records import ConfigResourceType
from tests.simulation.cluster import BROKER_PORT
from tests.simulation.scenario_run import Arguments, CommandTable, ScenarioRun, partition_of
from tests.simulation.scenario_views import in_columns
from tools.errors import ToolError
from tools.kafka import reassign_partitions

MOVES = CommandTable()

command = MOVES.named


@command("move")
async def move(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """move broker=1 t-0=/b1/d2 [t-1=any ...]: sends one AlterReplicaLogDirs for all these replicas."""
    run.acted_at = len(run.world.events)
    broker_id = arguments.broker()
    dirs = []
    for name, path in arguments.others().items():
        topic, index = partition_of(name)
        dirs.append(AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[index])]))
    response = await run.client.ask(broker_id, AlterReplicaLogDirsRequest(dirs=dirs))
    return in_columns(
        [
            (f"{result.topic_name}-{part.partition_index}", error_name(part.error_code))
            for result in response.results
            for part in result.partitions
        ]
    )


@command("alter-config")
async def alter_config(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """alter-config broker=1 any.configuration.key=value [...]: does the same as kafka-configs --alter --add-config."""
    run.acted_at = len(run.world.events)
    broker_id = arguments.broker()
    configs = [
        AlterableConfig(name=key, config_operation=ConfigOperation.SET, value=value)
        for key, value in arguments.others().items()
    ]
    resource = AlterConfigsResource(resource_type=ConfigResourceType.BROKER, resource_name=str(broker_id), configs=configs)
    response = await run.client.ask(broker_id, IncrementalAlterConfigsRequest(resources=[resource]))
    return [error_name(result.error_code) for result in response.responses]


@command("reassign")
async def reassign(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """reassign execute|verify|cancel t-0=3:/b3/d2,2 [t-1=...] [throttle=0] [additional]: what kafka-reassign-partitions does
    and prints. A broker without a path gets `any`."""
    run.acted_at = len(run.world.events)
    command_line = [f"--{arguments.word()}", "--bootstrap-server", f"broker-{run.live_broker()}:{BROKER_PORT}"]
    if "throttle" in arguments.options:
        command_line += ["--throttle", arguments.option("throttle")]
    command_line += [f"--{word}" for word in arguments.rest()]
    partitions = []
    for name, places in arguments.others().items():
        topic, index = partition_of(name)
        pairs = [place.partition(":") for place in places.split(",")]
        replicas, log_dirs = [int(broker_id) for broker_id, _, _ in pairs], [path or "any" for _, _, path in pairs]
        partitions.append({"topic": topic, "partition": index, "replicas": replicas, "log_dirs": log_dirs})
    with tempfile.NamedTemporaryFile("w") as file, redirect_stdout(io.StringIO()) as printed:
        json.dump({"version": 1, "partitions": partitions}, file)
        file.flush()
        parsed = reassign_partitions.parse([*command_line, "--reassignment-json-file", file.name])
        try:
            async with AdminClient(parsed.bootstrap_server, env=run.world.node("admin")) as admin:
                await reassign_partitions.work_of(parsed)(admin)
        except ToolError as error:
            print(f"Error: {error}")
    return [line.rstrip() for line in printed.getvalue().splitlines() if line]


@command("show configs")
async def show_configs(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show configs broker=1 | show configs t: the dynamic configuration of a broker or a topic in the controller's image."""
    if "broker" in arguments.options:
        found = run.cluster.state.config(ConfigResourceType.BROKER, str(arguments.broker()))
    else:
        found = run.cluster.state.config(ConfigResourceType.TOPIC, arguments.word())
    return [f"{key}={value}" for key, value in sorted(found.items())] or ["none"]


@command("show moves")
async def show_moves(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show moves 1: lists the replicas that broker 1 is copying to another directory, as DescribeLogDirs shows them."""
    response = await run.client.ask(int(arguments.word()), DescribeLogDirsRequest(topics=None))
    found = [
        (f"{topic.name}-{part.partition_index}", part, result.log_dir)
        for result in response.results
        for topic in result.topics
        for part in topic.partitions
    ]
    current = {name: path for name, part, path in found if not part.is_future_key}
    rows = [
        (name, f"{current[name]} -> {path}", f"{part.offset_lag} behind")
        for name, part, path in sorted(found, key=lambda each: each[0])
        if part.is_future_key
    ]
    return in_columns(rows) or ["none"]
