"""What must hold in every world, and what every world must be able to reach without further faults.

`violations` finds what breaks a safety property. The liveness property joins the "always eventually" of the TLA+ model of
KIP-858: from every world the protocol can get to one that `is_settled`, whatever happened before.
"""

from collections.abc import Iterator

from broker.core.lifecycle import BrokerState
from common.ids import NO_LEADER, TopicIdPartition
from common.metadata.directory_ids import LOST
from common.metadata.registrations import PartitionRegistration
from tests.model.broker import NO_LOG, Broker
from tests.model.cluster import Cluster, World
from tests.model.metadata import Log


def violations(cluster: Cluster, world: World) -> Iterator[str]:
    """Yields every safety property that this world breaks."""
    log = cluster.controllers[world.controller].log
    brokers = [cluster.brokers[number] for number in world.brokers]
    for key, acknowledged in zip(cluster.keys, world.acknowledged, strict=True):
        if log.state.partition(*key) is None:
            continue
        partition = log.partition(key)
        if leads_where_it_is_known_to_be_offline(log, partition):
            yield f"the leader of {key.partition} is fenced, or in a directory that is registered offline"
        for broker in brokers:
            if leads_without_what_is_acknowledged(broker, key, partition, acknowledged):
                yield f"broker {broker.broker_id} leads {key.partition} with {broker.version(key)} of {acknowledged} records"
            if has_a_replica_twice(broker, key):
                yield f"broker {broker.broker_id} has {key.partition} in two directories"


def leads_where_it_is_known_to_be_offline(log: Log, partition: PartitionRegistration) -> bool:
    """Must not be: the controller elects only where the broker is unfenced and the directory is online, and the batch that
    fences the broker or loses the directory moves the leader."""
    if partition.leader == NO_LEADER:
        return False
    registration = log.state.brokers[partition.leader]
    return registration.fenced or not registration.has_online_directory(partition.directory(partition.leader))


def leads_without_what_is_acknowledged(
    broker: Broker, key: TopicIdPartition, partition: PartitionRegistration, acknowledged: int
) -> bool:
    """Must not be: a replica that has lost its data, or lags, is not elected. It counts once the broker knows of it."""
    if broker.process is None or partition.leader != broker.broker_id or broker.version(key) == NO_LOG:
        return False
    known = broker.process.applied.state.partition(*key)
    return known is not None and known.leader_epoch == partition.leader_epoch and broker.version(key) < acknowledged


def has_a_replica_twice(broker: Broker, key: TopicIdPartition) -> bool:
    """Must not be: a replica that already has a log is created in no other directory."""
    return broker.process is not None and sum(key in disk.logs for disk in broker.disks if not disk.is_dead) > 1


def is_settled(cluster: Cluster, world: World) -> bool:
    """Whether controller, metadata and disks agree about everything, and every partition that can have a leader has one."""
    return next(unsettled(cluster, world), None) is None


def unsettled(cluster: Cluster, world: World) -> Iterator[str]:
    """Yields what has not settled yet."""
    log = cluster.controllers[world.controller].log
    brokers = [cluster.brokers[number] for number in world.brokers]
    for broker in brokers:
        yield from _unsettled_broker(broker, log)
    for key in cluster.keys:
        if log.state.partition(*key) is None:
            continue
        partition = log.partition(key)
        could_lead = [each for each in brokers if each.broker_id in partition.isr and each.version(key) != NO_LOG]
        if could_lead and partition.leader == NO_LEADER:
            yield f"{key.partition} has no leader, broker {could_lead[0].broker_id} could lead it"
        for broker in brokers:
            if broker.process is not None and broker.broker_id in partition.replicas:
                yield from _unsettled_replica(broker, key, partition, log, could_lead)


def _unsettled_broker(broker: Broker, log: Log) -> Iterator[str]:
    process = broker.process
    registration = log.state.brokers.get(broker.broker_id)
    name = f"broker {broker.broker_id}"
    if process is None:
        if registration is not None and not registration.fenced:
            yield f"{name} is dead and not fenced"
        return
    if process.applied is not log:
        yield f"{name} has not applied all metadata"
    if process.lifecycle.state is not BrokerState.RUNNING or registration is None or registration.fenced:
        yield f"{name} is {process.lifecycle.state.name} and not unfenced"
        return
    if process.queue.size:
        yield f"{name} has assignments to send"
    dead = {disk.directory_id for disk in broker.disks if disk.is_dead}
    if dead.intersection(registration.directories):
        yield f"the controller does not know every dead disk of {name}"


def _unsettled_replica(
    broker: Broker, key: TopicIdPartition, partition: PartitionRegistration, log: Log, could_lead: list[Broker]
) -> Iterator[str]:
    process = broker.process
    assert process is not None
    assigned, hosted = partition.directory(broker.broker_id), process.hosted.get(key)
    name = f"{key.partition} of broker {broker.broker_id}"
    if hosted is not None:
        if assigned != hosted:
            yield f"{name} is not where the metadata says"
        return
    if assigned != LOST and log.state.is_replica_online(broker.broker_id, assigned):
        yield f"{name} is offline, and the controller takes it for online"
    others = [each for each in could_lead if each is not broker]
    if partition.leader == broker.broker_id or (broker.broker_id in partition.isr and others):
        yield f"{name} is offline and leads or is in the ISR"
