"""The scenario commands that send a request to the controller in a broker's name and show whether it is accepted.

Shell of the tests. Fields that the command does not name get the values that the broker would send, such as its epoch and
the epochs of the partition. A heartbeat sent this way also keeps the session of a dead broker alive.
"""

from common.ids import BrokerId, DirectoryId, TopicId, uuid_from_text
from common.metadata.metadata_version import BROKER_FEATURES
from common.protocol.errors import error_name
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
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest
from common.protocol.schema import Struct
from tests.simulation.cluster import (
    CLUSTER_ID,
)
from tests.simulation.request_tap import Exchange
from tests.simulation.scenario_run import (
    CLIENT,
    Arguments,
    CommandTable,
    ScenarioRun,
    broker_lists,
    partition_of,
)
from tests.simulation.scenario_views import (
    exchange_line,
)

REQUESTS = CommandTable()

command = REQUESTS.named


def _epoch_of(run: ScenarioRun, arguments: Arguments, broker_id: int) -> int:
    """Returns the broker epoch that the controller knows, or an older one for `epoch=stale`."""
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
        topic, index = partition_of(name)
        topic_id = run.cluster.state.topic_ids.get(topic, TopicId(_never_seen()))
        data = RequestTopicData(topic_id=topic_id, partitions=[RequestPartitionData(partition_index=index)])
        directories.append(RequestDirectoryData(id=_directory_ids(run, directory)[0], topics=[data]))
    return await _send(run, AssignReplicasToDirsRequest(broker_id=broker_id, broker_epoch=epoch, directories=directories))


@command("send isr")
async def send_isr(run: ScenarioRun, arguments: Arguments) -> list[str]:
    """send isr t-0=1,2,3: AlterPartition in the leader's name, with the correct epochs."""
    ((name, isr),) = arguments.others().items()
    topic, index = partition_of(name)
    part = run.cluster.partition(topic, index)
    brokers = run.cluster.state.brokers
    altered = AlteredPartition(
        partition_index=index,
        leader_epoch=part.leader_epoch,
        partition_epoch=part.partition_epoch,
        new_isr_with_epochs=[
            BrokerState(broker_id=id_, broker_epoch=brokers[BrokerId(id_)].epoch) for id_ in broker_lists(isr)[0]
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
    """send registration broker=9 dirs=b2/d1 [migrating]: BrokerRegistration of a new incarnation. `dirs=` registers no
    directory, `migrating` a broker in ZooKeeper mode."""
    request = BrokerRegistrationRequest(
        broker_id=arguments.broker(),
        cluster_id=CLUSTER_ID,
        incarnation_id=run.world.node(CLIENT).uuid(),
        features=[
            Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
            for name, levels in BROKER_FEATURES.items()
        ],
        is_migrating_zk_broker="migrating" in arguments.rest(),
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
