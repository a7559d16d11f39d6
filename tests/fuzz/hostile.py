"""Requests that a daemon must withstand: well-formed with arbitrary values, or with a few bytes changed.

They use the cluster's own topics, ids and epochs, so that many get past a handler's first check.
"""

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.ids import METADATA_TOPIC_ID
from common.protocol.api_keys import ApiKey
from common.protocol.codec import encode_with_version
from common.protocol.messages.default_principal_data import DefaultPrincipalData
from common.protocol.registry import APIS
from common.records.batch import set_base_offset_and_epoch
from common.records.record import Record, encode_batch
from tests.fuzz.messages import Vocabulary, filled, request_frame
from tests.fuzz.records import put_right

# UnregisterBroker is left out, because a valid one makes a broker halt, as it should.
BROKER_APIS: Final = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.LIST_CONFIG_RESOURCES,
)
CONTROLLER_APIS: Final = (
    ApiKey.FETCH,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ALTER_PARTITION,
    ApiKey.ENVELOPE,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
)
_FORWARDED: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.METADATA,
)
_CHANGED: Final = 0.2
# Ids of brokers that do not exist. As a leader, -1 means "no leader" and -2 means "leader unchanged".
_STRANGERS: Final = (77, 78, -1, -2)
_NEW_DIRECTORIES: Final = tuple(bytes((number,)) * 16 for number in range(100, 110))
_STRINGS: Final = (
    *("a" * 64 + ".b",),
    *("", "a" * 249, "a" * 250, "x" * 32_767, ".", "..", "a/b", "a\0b", "\u00e4\U0001f980", "__cluster_metadata"),
    *("segment.bytes", "retention.ms", "14", "-1", "9223372036854775808", "PLAINTEXT", "CONTROLLER", "localhost", "0.0.0.0"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ClusterNames:
    """The names and ids that a cluster knows. No field may be empty. DeleteTopics requests mostly spare the first topic."""

    cluster_id: str
    topics: Sequence[str]
    topic_ids: Sequence[bytes]
    directory_ids: Sequence[bytes]
    incarnation_ids: Sequence[bytes]
    broker_ids: Sequence[int]
    broker_epochs: Sequence[int]
    metadata_offset: int


def vocabulary_of(names: ClusterNames, rng: random.Random) -> Vocabulary:
    """Returns values for fields of requests to this cluster. Names and ids that exist are drawn more often than others."""
    reserved = [bytes(15) + bytes((last,)) for last in range(3)]
    strings = (*names.topics, names.cluster_id, *_STRINGS)
    uuids = (*names.topic_ids, *names.directory_ids, *names.incarnation_ids, *reserved, bytes(range(16)))
    numbers = (*names.broker_ids, *names.broker_epochs, names.metadata_offset, 0, 1, 2, 3, -1, -2, 1000)
    named = _named(names, reserved)
    plain = Vocabulary(strings=strings, uuids=uuids, numbers=numbers, named=named)
    inner = [request for _, request in zip(range(20), requests(plain, rng, _FORWARDED), strict=False)]
    principal = encode_with_version(DefaultPrincipalData(type="User", name="ANONYMOUS"), 0)
    named |= {
        "records": _batches(),
        "request_data": inner,
        "request_principal": [principal, principal, b"", None],
        "client_host_address": [bytes(4), bytes(16), bytes(5)],
    }
    return Vocabulary(strings=strings, uuids=uuids, numbers=numbers, named=named)


def _named(names: ClusterNames, reserved: Sequence[bytes]) -> dict[str, Sequence[Any]]:
    topics = [*names.topics, *names.topics, "new", "__cluster_metadata"]
    topic_ids = [*names.topic_ids, *names.topic_ids, METADATA_TOPIC_ID]
    directories = [*names.directory_ids, *names.directory_ids, *reserved]
    partitions, brokers = [0, 0, 1, 2, 7], [*names.broker_ids, -1, -2]
    offsets, epochs = [0, 1, 2, names.metadata_offset, names.metadata_offset + 1, -1], [0, 0, 1, -1]
    sizes, waits = [1 << 20, 1, 0], [0, 1, 500]
    named: dict[str, Sequence[Any]] = {
        "acks": [-1, 1, 0],
        "timeout_ms": [1000, 0, -1],
        "cluster_id": [names.cluster_id],
        "transactional_id": [None],
        "incarnation_id": names.incarnation_ids,
        "broker_epoch": names.broker_epochs,
        "previous_broker_epoch": [-1, *names.broker_epochs],
        "replica_epoch": [-1, *names.broker_epochs],
        "current_metadata_offset": [names.metadata_offset],
        "session_id": [0],
        "isolation_level": [0, 1],
        "leader_recovery_state": [0, 0, 1],
        "timestamp": [-1, -2, -3, -4, -5, 0, 1000],
        "num_partitions": [-1, 1, 3],
        "replication_factor": [-1, 1, 2],
        "resource_type": [2, 4, 8, 32],
        "resource_name": [*topics, *map(str, names.broker_ids), ""],
        "endpoint_type": [1, 2],
        "election_type": [0, 1, 2],
        "count": [1, 2, 4, 6, -1, 20_000],
        "replicas": [*names.broker_ids, *names.broker_ids, -1, 77],
        "want_fence": [False],
        "want_shut_down": [False],
        "offline_log_dirs": directories,
        "log_dirs": directories,
        "id": directories,
        "replica_directory_id": directories,
        "end_offset": offsets,
    }
    named |= dict.fromkeys(("topic", "topic_name"), topics)
    named["name"] = topics
    named["CreatableTopic.name"] = [f"new-{number}" for number in range(1000)]
    named["CreatableTopicConfig.name"] = ["segment.bytes", "retention.ms", "min.insync.replicas", "segment.ms"]
    named["AlterableConfig.name"] = [
        *named["CreatableTopicConfig.name"],
        *("log.retention.ms", "log.segment.bytes", "message.max.bytes", "node.id", "leader.replication.throttled.replicas"),
        *("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
    ]
    named["config_operation"] = [0, 0, 0, 1, 2, 3, 7]
    named["value"] = ["1000", "1000", "1000", "1", "-1", None]
    named["DeleteTopicState.name"] = named["topic_names"] = [*names.topics[1:], "new", "__cluster_metadata"]
    # Registrations have known and unknown broker ids, and hosts that are local, malformed or cannot be resolved.
    named["BrokerRegistrationRequest.broker_id"] = [*names.broker_ids, *_STRANGERS]
    named["Listener.host"] = ["localhost", "127.0.0.1", "", "a" * 64 + ".b", "a..b", "a\0b", "no.such.host"]
    named["DeleteTopicState.topic_id"] = [*names.topic_ids[1:], bytes(16)]
    named["Listener.name"] = ["PLAINTEXT", "PLAINTEXT", "CONTROLLER", "OTHER"]
    named["BrokerRegistrationRequest.log_dirs"] = [*directories, *_NEW_DIRECTORIES]
    named["is_migrating_zk_broker"] = [False]
    features = ["metadata.version", "diskraft.directory.numbering"]
    named["Feature.name"] = [*features, *features, "kraft.version", "other"]
    named["min_supported_version"], named["max_supported_version"] = [0, 0, 1], [22, 22, 1]
    named["topic_id"] = topic_ids
    named |= dict.fromkeys(("index", "partition", "partition_index", "partition_indexes", "partitions"), partitions)
    named |= dict.fromkeys(("broker_id", "replica_id", "new_isr", "broker_ids"), brokers)
    named |= dict.fromkeys(("fetch_offset", "log_start_offset", "position"), offsets)
    epoch_fields = (
        "leader_epoch",
        "current_leader_epoch",
        "last_fetched_epoch",
        "partition_epoch",
        "epoch",
        "session_epoch",
    )
    named |= dict.fromkeys(epoch_fields, epochs)
    named |= dict.fromkeys(("max_wait_ms", "min_bytes"), waits)
    named |= dict.fromkeys(("max_bytes", "partition_max_bytes"), sizes)
    return named


def requests(vocabulary: Vocabulary, rng: random.Random, apis: Sequence[ApiKey]) -> Iterator[bytes]:
    """Yields requests without end, each without a frame's length prefix."""
    while True:
        api = APIS[rng.choice(apis)]
        version = rng.choice(list(api.versions))
        request = request_frame(
            filled(api.request, version, rng, vocabulary),
            version,
            correlation_id=rng.choice((0, 1, -1, 2**31 - 1)),
            client_id=rng.choice((None, "", "fuzz", "c" * 300)),
        )
        yield _changed(request, rng) if rng.random() < _CHANGED else request


def _changed(request: bytes, rng: random.Random) -> bytes:
    changed = bytearray(request)
    for _ in range(rng.randrange(1, 4)):
        position = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[position] = rng.randrange(256)
            case 1:
                changed[position : position + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4)))
            case 2:
                del changed[position : position + rng.randrange(1, 5)]
            case _:
                changed[position:position] = rng.randbytes(rng.randrange(1, 5))
        changed = changed or bytearray(1)
    return bytes(changed)


def _batches() -> list[bytes]:
    """Returns valid batches with odd contents, some that are inconsistent despite a correct checksum, and some that are not
    batches."""
    records = [Record(b"key", b"value", 1000, (("header", None),)), Record(None, None, -1)]
    plain = encode_batch(records)
    odd_times = encode_batch([Record(None, b"late", 2**62), Record(None, b"early", -1)])
    stamped = bytearray(plain)
    set_base_offset_and_epoch(stamped, 2**63 - 1, 2**31 - 1)
    control = encode_batch(records, attributes=0x20)
    transactional = encode_batch(records, attributes=0x10, producer_id=5, producer_epoch=0, base_sequence=2**31 - 1)
    compressed = [encode_batch(records, attributes=code, compress=bytes) for code in range(1, 8)]
    broken = [
        _with_field(plain, position, field) for position, field in ((57, b"\x7f" * 4), (23, b"\xff" * 4), (8, b"\x7f" * 4))
    ]
    batches = [plain, plain, plain, plain + odd_times, odd_times, stamped, control, transactional, *compressed, *broken]
    return [*map(bytes, batches), b"no batch at all", bytes(61), b""]


def _with_field(batch: bytearray, position: int, content: bytes) -> bytes:
    changed = bytearray(batch)
    struct.pack_into(f"{len(content)}s", changed, position, content)
    return put_right(bytes(changed))
