"""What must hold once all faults have ended and the cluster has settled: I5, I11, I16, I19, I20 and I22.

Shell of the tests. I5 is that all nodes agree, I20 that each broker counts its replicas correctly, and I22 that every
replica uses the configuration in the metadata. `problems` yields everything that is not in its final state yet. The list
shrinks while the cluster converges and must be empty when the time is up. A broker that is down is ignored: all others must
be in sync without it.
"""

from collections.abc import Iterable, Iterator, Mapping

from broker.core.partition_replica import Role
from broker.daemon import BrokerDaemon
from common.ids import NO_LEADER, TopicIdPartition, Uuid, uuid_text
from common.metadata.directory_ids import LOST, UNASSIGNED
from common.metadata.state import MetadataState
from controller.quorum_controller import QuorumController
from tests.simulation.checkers.configuration import misconfigured
from tests.simulation.checkers.image import ImageModel, ModelBroker, ModelPartition
from tests.simulation.checkers.placement import miscounts
from tests.simulation.checkers.replicas import hosted

Problem = tuple[str, str]


def problems(
    controller: QuorumController | None, brokers: Mapping[int, BrokerDaemon], image: ImageModel
) -> Iterator[Problem]:
    """Yields the invariant and a text for each problem."""
    if controller is None or not controller.is_active:
        yield "I19", "no controller is active"
        return
    for broker_id, broker in brokers.items():
        yield from _broker_problems(broker_id, broker, image)
    for key, part in image.partitions.items():
        yield from _partition_problems(image.name(key), key, part, brokers, image)
    yield from _image_problems(controller.state, brokers, image)


# --- brokers ----------------------------------------------------------------------------------------------------------


def _broker_problems(broker_id: int, broker: BrokerDaemon, image: ImageModel) -> Iterator[Problem]:
    registered = image.brokers.get(broker_id)
    if registered is None or registered.fenced or registered.shutting_down:
        yield "I19", f"broker {broker_id} lives and is not in service: {registered}"
        return
    online = frozenset(broker._directories.known.online)
    if registered.directories != (online if image.has_assignments else frozenset()):
        yield "I16", f"broker {broker_id} has {_names(online)} online, registered are {_names(registered.directories)}"
    if broker.directory_assignments.size:
        yield "I11", f"broker {broker_id} has {broker.directory_assignments.size} assignments queued"
    for key, partition in hosted(broker):
        part = image.partitions.get(key)
        if part is None or broker_id not in part.replicas:
            yield "I11", f"broker {broker_id} hosts {partition.name}, which the metadata does not place there"
        elif image.is_assigned(part.directory(broker_id)) and part.directory(broker_id) != partition.directory_id:
            yield (
                "I11",
                f"{partition.name} is in {uuid_text(partition.directory_id)[:6]} on broker {broker_id}, assigned to "
                f"{uuid_text(part.directory(broker_id))[:6]}",
            )
    if unfinished := len(broker.replicas.moves):
        yield "I15", f"broker {broker_id} has {unfinished} moves that do not end"
    for miscount in miscounts(broker.replicas):
        yield "I20", miscount
    for text in misconfigured(broker_id, broker, image):
        yield "I22", text


# --- partitions -------------------------------------------------------------------------------------------------------


def _partition_problems(
    name: str, key: TopicIdPartition, part: ModelPartition, brokers: Mapping[int, BrokerDaemon], image: ImageModel
) -> Iterator[Problem]:
    serving = [id_ for id_ in part.replicas if id_ in brokers and _may_serve(image.brokers.get(id_), part.directory(id_))]
    if part.leader == NO_LEADER:
        if any(member in serving for member in part.isr):
            yield "I19", f"{name} has no leader; ISR {list(part.isr)}, in service {serving}"
        return
    if part.is_reassigning:
        yield "I19", f"{name} is still being reassigned: replicas {part.replicas}, adding {part.adding}, {part.removing} go"
    if set(serving) != set(part.isr):
        yield "I19", f"{name}: ISR {list(part.isr)}, in service {serving}"
    leader = brokers[part.leader].replicas._partitions.get(key) if part.leader in brokers else None
    if leader is None or leader.replica.role is not Role.LEADER or leader.replica.leader_epoch != part.leader_epoch:
        yield "I19", f"{name}: broker {part.leader} does not lead in epoch {part.leader_epoch}, as the metadata says"
        return
    if leader.replica.proposal is not None:
        yield "I19", f"{name}: an ISR change of leader {part.leader} is not settled"
    end = (leader.log.written_offset, leader.replica.high_watermark)
    if end[0] != end[1] and len(part.isr) >= min(leader.config.min_insync_replicas, len(part.replicas)):
        yield "I19", f"{name}: leader {part.leader} has written {end[0]}, its high watermark is {end[1]}"
    for member in serving:
        if part.directory(member) == UNASSIGNED:
            yield "I11", f"{name} is assigned to no directory of broker {member}"
        follower = brokers[member].replicas._partitions.get(key)
        if follower is None:
            yield "I19", f"{name} is not hosted by broker {member}, which is online and assigned"
        elif (follower.log.written_offset, follower.replica.high_watermark) != end:
            yield (
                "I19",
                f"{name}: broker {member} has written {follower.log.written_offset} with high watermark "
                f"{follower.replica.high_watermark}, leader {part.leader} {end[0]} with {end[1]}",
            )


def _may_serve(broker: ModelBroker | None, directory_id: Uuid) -> bool:
    return broker is not None and directory_id != LOST and broker.may_lead(directory_id)


# --- images -----------------------------------------------------------------------------------------------------------


def _image_problems(state: MetadataState, brokers: Mapping[int, BrokerDaemon], image: ImageModel) -> Iterator[Problem]:
    yield from _differences("the controller", state, image)
    for broker_id, broker in brokers.items():
        if broker.state != state:
            yield "I5", f"the image of broker {broker_id} is not the controller's"


def _differences(who: str, state: MetadataState, image: ImageModel) -> Iterator[Problem]:
    """Compares a production image with the one that the checkers have replayed."""
    if {id_: topic.name for id_, topic in state.topics.items()} != image.topics:
        yield "I5", f"{who} has other topics than its log"
    if state.configs != image.configs:
        yield "I5", f"{who} has the configuration {state.configs}, its log {image.configs}"
    for broker_id, broker in state.brokers.items():
        model = image.brokers.get(broker_id)
        seen = (broker.epoch, broker.fenced, broker.in_controlled_shutdown, frozenset(broker.directories))
        if model is None or seen != (model.epoch, model.fenced, model.shutting_down, model.directories):
            yield "I5", f"{who} has broker {broker_id} as {broker}, its log as {model}"
        elif frozenset(broker.lost_directories) != model.lost:
            yield "I16", f"{who}: broker {broker_id} lost {_names(model.lost)}, not {_names(broker.lost_directories)}"
    for topic_id, topic in state.topics.items():
        for index, part in topic.partitions.items():
            known = image.partitions.get(TopicIdPartition(topic_id, index))
            placed = (part.replicas, part.directories, part.adding_replicas, part.removing_replicas)
            facts = (*placed, part.isr, part.leader, part.leader_epoch, part.partition_epoch)
            if known is None or facts != (
                known.replicas,
                known.directories,
                known.adding,
                known.removing,
                known.isr,
                known.leader,
                known.leader_epoch,
                known.partition_epoch,
            ):
                yield "I5", f"{who} has {topic.name}-{index} as {part}, its log as {known}"


def _names(ids: Iterable[Uuid]) -> str:
    return str(sorted(uuid_text(id_)[:6] for id_ in ids))
