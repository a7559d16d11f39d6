"""I20: a topic that is created in a healthy cluster is spread evenly over the directories of every broker.

Shell of the tests. The rule is about the next replica: no directory gets another replica of a kind (preferred leader or
follower) while an available directory has fewer of that kind. How uneven the directories were before does not matter. So the
rule is checked on a topic created for the purpose, while every directory is online and nothing else happens. `miscounts`
compares the counts that placement uses with the replicas that the broker hosts.
"""

from collections.abc import Collection, Iterator, Mapping

from broker.core.placement import ReplicaKind
from broker.daemon import BrokerDaemon
from broker.hosting.replicas import Replicas
from common.ids import DirectoryId, TopicId, TopicIdPartition, uuid_text
from tests.simulation.checkers.image import ImageModel, ModelPartition
from tests.simulation.violations import InvariantViolated


def check_spread(topic_id: TopicId, brokers: Mapping[int, BrokerDaemon], image: ImageModel) -> None:
    """Checks the topic that was just created. Raises InvariantViolated."""
    for broker_id, broker in brokers.items():
        directories = _with_room(broker)
        for kind in ReplicaKind:
            counts = dict.fromkeys(directories, 0)
            counts_of_topic = dict.fromkeys(directories, 0)
            for key, part in image.partitions.items():
                directory_id = DirectoryId(part.directory(broker_id)) if broker_id in part.replicas else None
                if directory_id in counts and _kind(broker_id, part) is kind:
                    counts[directory_id] += 1
                    counts_of_topic[directory_id] += key.topic_id == topic_id
            _check_kind(f"broker {broker_id}, {kind.name}", counts, counts_of_topic)


def _check_kind(what: str, counts: Mapping[DirectoryId, int], counts_of_topic: Mapping[DirectoryId, int]) -> None:
    for directory_id, count in counts.items():
        if counts_of_topic[directory_id] and count > min(counts.values()) + 1:
            raise InvariantViolated(
                "I20",
                f"{what}: {counts_of_topic[directory_id]} replicas of the new topic are in {uuid_text(directory_id)[:6]}; "
                f"all directories have {list(counts.values())}, {list(counts_of_topic.values())} of them new",
            )


def _with_room(broker: BrokerDaemon) -> Collection[DirectoryId]:
    floor = broker._config.diskraft_log_dir_free_bytes_floor
    known = broker._directories.known
    spaces = {directory_id: known.space(directory_id) for directory_id in known.online}
    return [id_ for id_, space in spaces.items() if space is None or space.usable_bytes >= floor]


def _kind(broker_id: int, part: ModelPartition) -> ReplicaKind:
    return ReplicaKind.PREFERRED_LEADER if part.replicas[0] == broker_id else ReplicaKind.FOLLOWER


def miscounts(replicas: Replicas) -> Iterator[str]:
    """Yields a text for every directory whose replicas the broker has miscounted. Call it only while no code of the broker
    is running."""
    places: dict[TopicIdPartition, DirectoryId] = {**replicas.hosted_directories(), **replicas._creation._creating}
    for directory in replicas._hosted.online_directories():
        directory_id = directory.directory_id
        expected = dict.fromkeys(ReplicaKind, 0)
        for key, place in places.items():
            if place == directory_id:
                part = replicas.state.partition(*key)
                is_first = part is not None and part.replicas[0] == replicas._broker_id
                expected[ReplicaKind.PREFERRED_LEADER if is_first else ReplicaKind.FOLLOWER] += 1
        counted = {kind: directory.replicas.count(kind) for kind in ReplicaKind}
        if counted != expected:
            yield f"broker {replicas._broker_id} counts {counted} in {uuid_text(directory_id)[:6]}, there are {expected}"
