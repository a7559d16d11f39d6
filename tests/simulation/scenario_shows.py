"""The scenario commands that show something and change nothing: metadata, records, requests, logs, disks, metrics.

Shell of the tests. `scenario_views` formats the output. `show partition` shows the controller's image, `show metadata` shows
a broker's image, which may lag behind.
"""

import re

from common.protocol.errors import error_name
from common.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from common.storage.meta_properties import parse_meta_properties
from tests.simulation.scenario_run import (
    Arguments,
    CommandTable,
    ScenarioRun,
    partition_of,
)
from tests.simulation.scenario_views import (
    STORY,
    in_columns,
    members,
    partition_line,
    registration_line,
    without_repeats,
)

SHOWS = CommandTable()

command = SHOWS.named


@command("show partition")
async def show_partition(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show partition t-0 [t-1 ...]: the partitions in the controller's image."""
    names = run.look()
    return [
        partition_line(names, run.cluster.state, name, run.cluster.partition(*partition_of(name)))
        for name in arguments.rest()
    ]


@command("show topic")
async def show_topic(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show topic t: all partitions of a topic in the controller's image."""
    topic = arguments.word()
    names = run.look()
    return [
        partition_line(names, run.cluster.state, f"{topic}-{index}", part)
        for index, part in sorted(run.cluster.partitions(topic).items())
    ] or ["no such topic"]


@command("show broker")
async def show_broker(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show broker 2: the state of its process, and its registration."""
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
    """show log [controller|broker=2] [EVENT ...]: the new events that matter to an operator, or those that are named."""
    node = run.cluster.name(arguments.broker()) if "broker" in arguments.options else None
    if "controller" in arguments.words:
        arguments.words.remove("controller")
        node = "controller"
    return without_repeats(run.new_events(node, frozenset(arguments.rest()) or STORY | {"node_not_started"})) or ["nothing"]


@command("show records")
async def show_records(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show records [WORD ...]: the new records of the metadata log, in order; with words, those that contain one of them."""
    words = [*arguments.rest(), *(f"{key}={value}" for key, value in arguments.others().items())]
    return [line for line in run.new_records() if not words or any(word in line.split() for word in words)] or ["none"]


@command("show requests")
async def show_requests(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show requests [broker=2] [BrokerHeartbeat ...]: the new requests of brokers to the controller, and its responses."""
    sender = run.cluster.name(arguments.broker()) if "broker" in arguments.options else None
    return without_repeats(run.new_exchanges(sender, arguments.rest())) or ["none"]


@command("show metadata")
async def show_metadata(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show metadata t from=3: broker 3's Metadata response about a topic."""
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
    """show log-dirs 2: what kafka-log-dirs --describe shows for the broker."""
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
    """show disk broker=2 dir=1: the folders on the disk, and the clean shutdown marker."""
    disk = run.disk(arguments)
    marker = [".kafka_cleanshutdown"] if ".kafka_cleanshutdown" in disk.files() else []
    folders = [re.sub(r"\.[0-9a-f]{32}-", ".<hex>-", name) for name in disk.folders()]
    return [" ".join(marker + folders) or "empty"]


@command("show meta.properties")
async def show_meta_properties(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show meta.properties broker=2: the file in each of its directories, by path."""
    config = run.cluster.config(arguments.broker())
    names = run.look()
    rows = []
    for path in config.all_log_dirs:
        content = run.world.disk(path).files().get("meta.properties")
        rows.append((path, "none" if content is None else names.in_text(str(parse_meta_properties(content)))))
    return in_columns(rows)


@command("show metric")
async def show_metric(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """show metric NAME broker=2: the samples Prometheus would get. The cluster needs
    diskraft.prometheus.listener=0.0.0.0:9404."""
    name = arguments.word()
    (collector,) = run.cluster.env(arguments.broker()).collectors.values()
    names = run.look()
    return [
        " ".join([f"{sample.value:g}", *(f"{key}={names.in_text(value)}" for key, value in sample.labels.items())])
        for metric in collector.collect()
        for sample in metric.samples
        if sample.name == name
    ] or ["no such metric"]
