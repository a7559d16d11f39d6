"""Helpers that build metadata records and replay them."""

from collections.abc import Iterable, Sequence

from common.ids import DirectoryId, Offset, TopicId, Uuid
from common.metadata.delta import MetadataDelta
from common.metadata.metadata_version import LATEST_LEVEL
from common.metadata.state import MetadataState
from common.records.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    KnownRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)


def uuid(number: int) -> Uuid:
    """Returns an unreserved uuid. Equal numbers give equal uuids, and larger numbers give larger ones."""
    return Uuid(b"\x40" + number.to_bytes(15, "big"))


def directory(number: int) -> DirectoryId:
    return DirectoryId(uuid(number))


def topic_id(number: int) -> TopicId:
    return TopicId(Uuid(b"\x70" + number.to_bytes(15, "big")))


def register(
    broker_id: int,
    *,
    directories: Iterable[Uuid] = (),
    lost: Iterable[Uuid] = (),
    epoch: int = 100,
    incarnation: int = 1,
    fenced: bool = False,
    in_controlled_shutdown: bool = False,
    rack: str | None = None,
    is_migrating: bool = False,
) -> RegisterBrokerRecord:
    """Builds a registration, unfenced by default."""
    return RegisterBrokerRecord(
        broker_id=broker_id,
        is_migrating_zk_broker=is_migrating,
        incarnation_id=uuid(1_000_000 + incarnation),
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host=f"host{broker_id}", port=9092, security_protocol=0)],
        features=[BrokerFeature(name="metadata.version", min_supported_version=1, max_supported_version=LATEST_LEVEL)],
        rack=rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=list(directories),
        lost_log_dirs=list(lost),
    )


def topic(number: int, name: str | None = None) -> TopicRecord:
    return TopicRecord(name=name or f"topic-{number}", topic_id=topic_id(number))


def partition(
    topic_number: int,
    index: int,
    replicas: Sequence[int],
    *,
    directories: Sequence[Uuid] = (),
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
) -> PartitionRecord:
    """Builds a partition. By default all replicas are in the ISR and the first one leads."""
    members = list(replicas if isr is None else isr)
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id(topic_number),
        replicas=list(replicas),
        isr=members,
        leader=leader if leader is not None else (members[0] if members else -1),
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        directories=list(directories),
    )


def level(number: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="metadata.version", feature_level=number)


def replay(*records: KnownRecord, into: MetadataState | None = None, delta: MetadataDelta | None = None) -> MetadataState:
    """Replays the records at consecutive offsets and returns the state."""
    state = MetadataState() if into is None else into
    for record in records:
        state.replay(record, offset=Offset(state.last_offset + 1), delta=delta)
    return state
