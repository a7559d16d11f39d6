"""server.properties: every key that has an effect, with Kafka's name, type and default (core).

`common/configuration/server_loading.py` makes a `ServerConfig` of a file's properties. Counterpart of KafkaConfig. Note that
`log.dirs` overrides `log.dir`, and that `metadata.log.dir` defaults to the *first* log directory.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from common.configuration.endpoints import (
    Endpoint,
    HostPort,
    Voter,
    parse_host_port,
    parse_host_ports,
    parse_listeners,
    parse_protocol_map,
    parse_voters,
)
from common.configuration.settings import (
    INT_MAX,
    LONG_MAX,
    REQUIRED,
    SHORT_MAX,
    ConfigType,
    boolean,
    choice,
    custom,
    decimal,
    integer,
    settings_of,
    text,
    words,
)
from common.time_units import MS_PER_HOUR, MS_PER_MINUTE

BROKER = "broker"
CONTROLLER = "controller"
DEFAULT_LOG_DIR = "/tmp/kafka-logs"
CORDONED_LOG_DIRS = "cordoned.log.dirs"
# The value of cordoned.log.dirs that cordons every directory.
ALL_LOG_DIRS = "*"
COMPACT = "compact"
DELETE = "delete"
CLEANUP_POLICIES = (COMPACT, DELETE)
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
# The values of compression.type. With all but the first the leader compresses what comes in with another codec.
PRODUCER = "producer"
# The code of each codec in a record batch.
COMPRESSION_CODES = MappingProxyType({"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4})
COMPRESSION_TYPES = (PRODUCER, *COMPRESSION_CODES)
# The default level of each codec that has levels, and its lowest and highest level. -1 lets gzip choose.
GZIP_LEVELS = (-1, -1, 9)
LZ4_LEVELS = (9, 1, 17)
ZSTD_LEVELS = (3, -131_072, 22)
# The values of replica.selector.class. Kafka's has the class and, for the leader, no value; KIP-392 names the latter.
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_SELECTORS = ("org.apache.kafka.common.replica.LeaderSelector", "none")
TIMESTAMP_TYPES = (CREATE_TIME, LOG_APPEND_TIME)

# Apache Kafka's keys that Diskraft ignores for now. Setting one logs a warning, so that operators do not rely on it.
KNOWN_WITHOUT_EFFECT = frozenset(
    """
    alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
    authorizer.class.name background.threads broker.rack.aware connection.failed.authentication.delay.ms
    controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
    controller.quorum.append.linger.ms controller.quorum.election.backoff.max.ms
    controller.quorum.election.timeout.ms controller.quorum.fetch.timeout.ms delegation.token.expiry.time.ms
    leader.imbalance.per.broker.percentage
    log.message.downconversion.enable log.preallocate
    num.io.threads num.network.threads num.recovery.threads.per.data.dir
    num.replica.fetchers queued.max.requests quota.window.num quota.window.size.seconds
    request.timeout.ms
    sasl.enabled.mechanisms socket.listen.backlog.size
    socket.receive.buffer.bytes socket.send.buffer.bytes ssl.keystore.location ssl.truststore.location
    super.users transaction.abort.timed.out.transaction.cleanup.interval.ms
    """.split()
)

# The keys that can be changed while the node runs (KIP-226). Kafka allows this for more keys, but its
# num.replica.alter.log.dirs.threads takes a restart.
DYNAMIC_KEYS = frozenset(
    """
    compression.gzip.level compression.lz4.level compression.type compression.zstd.level cordoned.log.dirs
    follower.replication.throttled.rate group.consumer.assignment.interval.ms intra.broker.throttled.rate
    leader.replication.throttled.rate
    log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
    log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads
    log.cleanup.policy log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes log.index.size.max.bytes
    log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.message.timestamp.type
    log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms
    log.segment.bytes
    log.segment.delete.delay.ms
    max.connections max.connections.per.ip max.connections.per.ip.overrides
    message.max.bytes min.insync.replicas num.replica.alter.log.dirs.threads
    producer.id.expiration.ms
    replica.alter.log.dirs.io.max.bytes.per.second transaction.partition.verification.enable unclean.leader.election.enable
    """.split()
)

# The two names of the rate at which replicas move between the directories of a broker: that of Apache Kafka, and that of
# KIP-113. Where both are set, the first counts.
MOVE_RATE_NAMES = ("replica.alter.log.dirs.io.max.bytes.per.second", "intra.broker.throttled.rate")

# The keys that limit the replication between brokers and within one.
THROTTLE_NAMES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate", *MOVE_RATE_NAMES)

# The two names of the node's id. The second dates from clusters with ZooKeeper. Where both are set, they must agree.
NODE_ID_NAMES = ("node.id", "broker.id")


# The protocols by which members come to share the partitions of a group.
CLASSIC_PROTOCOL = "classic"
CONSUMER_PROTOCOL = "consumer"
REBALANCE_PROTOCOLS = (CLASSIC_PROTOCOL, CONSUMER_PROTOCOL)
MIGRATION_POLICIES = ("disabled", "upgrade", "downgrade", "bidirectional")

# The server-side assignors, each with the name of Kafka's class, which stock files may have in its place.
ASSIGNORS = {
    "uniform": "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "range": "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
}


def _parse_assignors(value: str) -> tuple[str, ...]:
    by_class = {class_name: name for name, class_name in ASSIGNORS.items()}
    names = tuple(by_class.get(part, part) for item in value.split(",") if (part := item.strip()))
    if not names or len(set(names)) < len(names) or not all(name in ASSIGNORS for name in names):
        raise ValueError
    return names


def _parse_absolute_paths(value: str) -> tuple[str, ...]:
    paths: list[str] = []
    for part in filter(None, (item.strip() for item in value.split(","))):
        if not part.startswith("/"):
            raise ValueError(f"'{part}' is relative")
        path = "/" + "/".join(piece for piece in part.split("/") if piece)
        if ".." in path.split("/") or "." in path.split("/"):
            raise ValueError(f"'{part}' contains . or ..")
        if path in paths:
            raise ValueError(f"'{path}' occurs twice")
        paths.append(path)
    if not paths:
        raise ValueError("no directory is given")
    for inner in paths:
        for outer in paths:
            if inner.startswith(f"{outer}/"):
                # The outer one would take it for the folder of a partition.
                raise ValueError(f"'{inner}' lies in '{outer}'")
    return tuple(paths)


def _parse_cordons(value: str) -> tuple[str, ...]:
    if not value.strip():
        return ()
    return (ALL_LOG_DIRS,) if value.strip() == ALL_LOG_DIRS else _parse_absolute_paths(value)


def _parse_absolute_path(value: str) -> str:
    paths = _parse_absolute_paths(value)
    if len(paths) != 1:
        raise ValueError("more than one directory is given")
    return paths[0]


def _parse_host_limits(value: str) -> tuple[tuple[str, int], ...]:
    limits: dict[str, int] = {}
    for part in filter(None, (item.strip() for item in value.split(","))):
        # An IPv6 address may be in brackets, as Kafka's users have it, or without.
        host, separator, limit = part.rpartition(":")
        host = host.strip().removeprefix("[").removesuffix("]")
        if not separator or not host or not limit.strip().isdecimal() or not limit.isascii():
            raise ValueError(f"'{part}' is not HOST:NUMBER")
        if host in limits:
            raise ValueError(f"'{host}' occurs twice")
        limits[host] = int(limit)
    return tuple(limits.items())


def parse_gzip_level(value: str) -> int:
    """Parses compression.gzip.level. Raises ValueError. 0 would be no compression, which Kafka does not allow either."""
    level = int(value) if value.removeprefix("-").isdecimal() and value.isascii() else 0
    if level == 0 or not GZIP_LEVELS[1] <= level <= GZIP_LEVELS[2]:
        raise ValueError
    return level


def _parse_replica_selector(value: str) -> str | None:
    if value and value not in (RACK_AWARE_SELECTOR, *LEADER_SELECTORS):
        raise ValueError("other classes cannot be loaded")
    return value or None


GZIP_LEVELS_ALLOWED = "a whole number from 1 to 9, or -1 for the codec's own default"
ABSOLUTE_PATHS = "absolute paths separated by commas, each once"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """One node's configuration. Durations are in milliseconds, sizes in bytes, as the keys say."""

    process_roles: tuple[str, ...] = words(REQUIRED, among=(BROKER, CONTROLLER))
    node_id: int = integer(REQUIRED, at_least=0, at_most=INT_MAX)
    # After `load_server_config`, this is always the same as node_id.
    broker_id: int | None = integer(None, at_least=0, at_most=INT_MAX)
    broker_rack: str | None = text(None)

    # Directories. After `load_server_config`, log_dirs is never empty and metadata_log_dir is never "".
    log_dirs: tuple[str, ...] = custom(_parse_absolute_paths, ABSOLUTE_PATHS, (), ConfigType.LIST)
    cordoned_log_dirs: tuple[str, ...] = custom(
        _parse_cordons, "directories of log.dirs, or * for all of them", (), ConfigType.LIST
    )
    log_dir: str = custom(_parse_absolute_path, "one absolute path", DEFAULT_LOG_DIR)
    metadata_log_dir: str = custom(_parse_absolute_path, "one absolute path", "")
    log_dir_failure_timeout_ms: int = integer(30_000, at_least=1)
    diskraft_log_dir_operation_timeout_ms: int = integer(10_000, at_least=10)
    diskraft_log_dir_sync_timeout_ms: int = integer(60_000, at_least=10)
    diskraft_log_dir_suspect_ms: int = integer(1_000, at_least=10)
    diskraft_log_dir_probe_interval_ms: int = integer(1_000, at_least=10)
    diskraft_log_dir_free_bytes_floor: int = integer(64 * 1024 * 1024, at_least=0)

    # Listeners and the quorum.
    listeners: tuple[Endpoint, ...] = custom(parse_listeners, "NAME://host:port separated by commas", (), ConfigType.LIST)
    advertised_listeners: tuple[Endpoint, ...] = custom(
        parse_listeners, "NAME://host:port separated by commas", (), ConfigType.LIST
    )
    controller_listener_names: tuple[str, ...] = words(())
    inter_broker_listener_name: str | None = text(None)
    listener_security_protocol_map: tuple[tuple[str, str], ...] = custom(parse_protocol_map, "NAME:PROTOCOL,…", ())
    controller_quorum_voters: tuple[Voter, ...] = custom(
        parse_voters, "id@host:port separated by commas", (), ConfigType.LIST
    )
    controller_quorum_bootstrap_servers: tuple[HostPort, ...] = custom(
        parse_host_ports, "host:port separated by commas", (), ConfigType.LIST
    )
    controller_quorum_request_timeout_ms: int = integer(2_000, at_least=1, at_most=INT_MAX)
    controller_quorum_retry_backoff_ms: int = integer(20, at_least=0, at_most=INT_MAX)
    diskraft_prometheus_listener: HostPort | None = custom(parse_host_port, "host:port", None)

    # Requests.
    socket_request_max_bytes: int = integer(104_857_600, at_least=1, at_most=INT_MAX)
    connections_max_idle_ms: int = integer(600_000)
    max_request_partition_size_limit: int = integer(2_000, at_least=1, at_most=INT_MAX)
    max_connections: int = integer(2_000, at_least=1, at_most=INT_MAX)
    max_connections_per_ip: int = integer(1_000, at_least=1, at_most=INT_MAX)
    # The addresses with a limit of their own. Host names are not resolved.
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = custom(
        _parse_host_limits, "ADDRESS:NUMBER separated by commas", ()
    )
    # Negative: no limit.
    queued_max_request_bytes: int = integer(256 * 1024 * 1024)
    socket_connection_setup_timeout_ms: int = integer(10_000, at_least=1)

    # The broker's session with the controller.
    broker_heartbeat_interval_ms: int = integer(2_000, at_least=1, at_most=INT_MAX)
    broker_session_timeout_ms: int = integer(9_000, at_least=1, at_most=INT_MAX)
    initial_broker_registration_timeout_ms: int = integer(60_000, at_least=1, at_most=INT_MAX)
    controlled_shutdown_enable: bool = boolean(True)
    diskraft_controlled_shutdown_timeout_ms: int = integer(30_000, at_least=1)

    # Metadata.
    metadata_log_segment_bytes: int = integer(1024**3, at_least=12, at_most=INT_MAX)
    metadata_log_segment_ms: int = integer(7 * 24 * MS_PER_HOUR)
    metadata_log_max_record_bytes_between_snapshots: int = integer(20 * 1024 * 1024, at_least=1)
    metadata_log_max_snapshot_interval_ms: int = integer(MS_PER_HOUR, at_least=0)
    metadata_max_idle_interval_ms: int = integer(500, at_least=0, at_most=INT_MAX)
    metadata_max_retention_bytes: int = integer(100 * 1024 * 1024)
    metadata_max_retention_ms: int = integer(7 * 24 * MS_PER_HOUR)

    # Topics.
    auto_create_topics_enable: bool = boolean(True)
    auto_leader_rebalance_enable: bool = boolean(True)
    leader_imbalance_check_interval_seconds: int = integer(300, at_least=1)
    default_replication_factor: int = integer(1, at_least=1, at_most=INT_MAX)
    delete_topic_enable: bool = boolean(True)
    min_insync_replicas: int = integer(1, at_least=1, at_most=INT_MAX)
    num_partitions: int = integer(1, at_least=1, at_most=INT_MAX)
    unclean_leader_election_enable: bool = boolean(False)
    zookeeper_metadata_migration_enable: bool = boolean(False)

    # Logs.
    log_cleaner_backoff_ms: int = integer(15_000, at_least=0)
    log_cleaner_dedupe_buffer_size: int = integer(128 * 1024 * 1024, at_least=1)
    log_cleaner_delete_retention_ms: int = integer(24 * MS_PER_HOUR, at_least=0)
    log_cleaner_enable: bool = boolean(True)
    log_cleaner_io_buffer_load_factor: float = decimal(0.9, at_least=0.01, at_most=1)
    log_cleaner_io_buffer_size: int = integer(512 * 1024, at_least=1, at_most=INT_MAX)
    log_cleaner_io_max_bytes_per_second: float = decimal(sys.float_info.max, at_least=1)
    log_cleaner_max_compaction_lag_ms: int = integer(LONG_MAX, at_least=1)
    log_cleaner_min_cleanable_ratio: float = decimal(0.5, at_least=0, at_most=1)
    log_cleaner_min_compaction_lag_ms: int = integer(0, at_least=0)
    log_cleaner_threads: int = integer(1, at_least=1, at_most=INT_MAX)
    compression_type: str = choice(PRODUCER, among=COMPRESSION_TYPES)
    compression_gzip_level: int = custom(parse_gzip_level, GZIP_LEVELS_ALLOWED, GZIP_LEVELS[0], ConfigType.INT)
    compression_lz4_level: int = integer(LZ4_LEVELS[0], at_least=LZ4_LEVELS[1], at_most=LZ4_LEVELS[2])
    compression_zstd_level: int = integer(ZSTD_LEVELS[0], at_least=ZSTD_LEVELS[1], at_most=ZSTD_LEVELS[2])
    log_cleanup_policy: tuple[str, ...] = words(("delete",), among=CLEANUP_POLICIES)
    log_flush_interval_messages: int = integer(LONG_MAX, at_least=1)
    log_flush_interval_ms: int | None = integer(None, at_least=0)
    log_flush_scheduler_interval_ms: int = integer(LONG_MAX, at_least=1)
    log_index_interval_bytes: int = integer(4_096, at_least=0, at_most=INT_MAX)
    log_index_size_max_bytes: int = integer(10 * 1024 * 1024, at_least=4, at_most=INT_MAX)
    log_message_timestamp_after_max_ms: int = integer(MS_PER_HOUR, at_least=0)
    log_message_timestamp_before_max_ms: int = integer(LONG_MAX, at_least=0)
    log_message_timestamp_type: str = choice(CREATE_TIME, among=TIMESTAMP_TYPES)
    log_retention_bytes: int = integer(-1)
    log_retention_hours: int = integer(168, at_most=INT_MAX)
    log_retention_minutes: int | None = integer(None, at_most=INT_MAX)
    log_retention_ms: int | None = integer(None)
    log_retention_check_interval_ms: int = integer(300_000, at_least=1)
    log_roll_hours: int = integer(168, at_least=1, at_most=INT_MAX)
    log_roll_ms: int | None = integer(None, at_least=1)
    log_roll_jitter_hours: int = integer(0, at_least=0, at_most=INT_MAX)
    log_roll_jitter_ms: int | None = integer(None, at_least=0)
    log_segment_bytes: int = integer(1024**3, at_least=14, at_most=INT_MAX)
    log_segment_delete_delay_ms: int = integer(60_000, at_least=0)
    log_flush_offset_checkpoint_interval_ms: int = integer(60_000, at_least=0, at_most=INT_MAX)
    log_flush_start_offset_checkpoint_interval_ms: int = integer(60_000, at_least=0, at_most=INT_MAX)
    message_max_bytes: int = integer(1_048_588, at_least=0, at_most=INT_MAX)
    producer_id_expiration_ms: int = integer(86_400_000, at_least=1, at_most=INT_MAX)
    producer_id_expiration_check_interval_ms: int = integer(600_000, at_least=1, at_most=INT_MAX)

    # Replication.
    replica_fetch_backoff_ms: int = integer(1_000, at_least=0, at_most=INT_MAX)
    replica_fetch_max_bytes: int = integer(1024 * 1024, at_least=0, at_most=INT_MAX)
    replica_fetch_min_bytes: int = integer(1, at_most=INT_MAX)
    replica_fetch_response_max_bytes: int = integer(10 * 1024 * 1024, at_least=0, at_most=INT_MAX)
    replica_fetch_wait_max_ms: int = integer(500, at_most=INT_MAX)
    replica_high_watermark_checkpoint_interval_ms: int = integer(5_000, at_least=1)
    replica_lag_time_max_ms: int = integer(30_000, at_least=1)
    replica_selector_class: str | None = custom(
        _parse_replica_selector, f"{RACK_AWARE_SELECTOR}, {LEADER_SELECTORS[0]} or nothing", None
    )
    replica_socket_timeout_ms: int = integer(30_000, at_least=1, at_most=INT_MAX)
    max_incremental_fetch_session_cache_slots: int = integer(1_000, at_most=INT_MAX)
    fetch_max_bytes: int = integer(55 * 1024 * 1024, at_least=1024, at_most=INT_MAX)

    # Groups and their offsets. The keys of group.consumer are about groups of the consumer protocol (KIP-848).
    group_consumer_assignment_interval_ms: int = integer(0, at_least=0, at_most=INT_MAX)
    group_consumer_assignors: tuple[str, ...] = custom(
        _parse_assignors, f"a comma-separated list of {', '.join(ASSIGNORS)}", tuple(ASSIGNORS), ConfigType.LIST
    )
    group_consumer_heartbeat_interval_ms: int = integer(5_000, at_least=1, at_most=INT_MAX)
    group_consumer_max_assignment_interval_ms: int = integer(15_000, at_least=0, at_most=INT_MAX)
    group_consumer_max_heartbeat_interval_ms: int = integer(15_000, at_least=1, at_most=INT_MAX)
    group_consumer_max_session_timeout_ms: int = integer(60_000, at_least=1, at_most=INT_MAX)
    group_consumer_max_size: int = integer(INT_MAX, at_least=1, at_most=INT_MAX)
    group_consumer_migration_policy: str = choice("bidirectional", among=MIGRATION_POLICIES)
    group_consumer_min_assignment_interval_ms: int = integer(0, at_least=0, at_most=INT_MAX)
    group_consumer_min_heartbeat_interval_ms: int = integer(5_000, at_least=1, at_most=INT_MAX)
    group_consumer_min_session_timeout_ms: int = integer(45_000, at_least=1, at_most=INT_MAX)
    group_consumer_session_timeout_ms: int = integer(45_000, at_least=1, at_most=INT_MAX)
    group_coordinator_rebalance_protocols: tuple[str, ...] = words(REBALANCE_PROTOCOLS, among=REBALANCE_PROTOCOLS)
    group_initial_rebalance_delay_ms: int = integer(3_000, at_least=0, at_most=INT_MAX)
    group_max_session_timeout_ms: int = integer(1_800_000, at_least=0, at_most=INT_MAX)
    group_max_size: int = integer(INT_MAX, at_least=1, at_most=INT_MAX)
    group_min_session_timeout_ms: int = integer(6_000, at_least=0, at_most=INT_MAX)
    offset_metadata_max_bytes: int = integer(4_096, at_least=0, at_most=INT_MAX)
    offsets_commit_timeout_ms: int = integer(5_000, at_least=1, at_most=INT_MAX)
    offsets_retention_check_interval_ms: int = integer(600_000, at_least=1)
    offsets_retention_minutes: int = integer(10_080, at_least=1, at_most=INT_MAX)
    offsets_topic_num_partitions: int = integer(50, at_least=1, at_most=INT_MAX)
    offsets_topic_replication_factor: int = integer(3, at_least=1, at_most=SHORT_MAX)
    offsets_topic_segment_bytes: int = integer(104_857_600, at_least=14, at_most=INT_MAX)

    # Transactions. The first two are about leaders that add their partitions to transactions.
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(100, at_least=0, at_most=INT_MAX)
    add_partitions_to_txn_retry_backoff_ms: int = integer(20, at_least=1, at_most=INT_MAX)
    transaction_max_timeout_ms: int = integer(900_000, at_least=1, at_most=INT_MAX)
    transaction_partition_verification_enable: bool = boolean(True)
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(3_600_000, at_least=1, at_most=INT_MAX)
    transaction_state_log_min_isr: int = integer(2, at_least=1, at_most=INT_MAX)
    transaction_state_log_num_partitions: int = integer(50, at_least=1, at_most=INT_MAX)
    transaction_state_log_replication_factor: int = integer(3, at_least=1, at_most=SHORT_MAX)
    transaction_state_log_segment_bytes: int = integer(104_857_600, at_least=14, at_most=INT_MAX)
    transactional_id_expiration_ms: int = integer(604_800_000, at_least=1, at_most=INT_MAX)

    # Moves of replicas, and their throttles (KIP-113, KIP-73). The two names of the move rate always have the same value.
    # If the number of threads is not set, there is one for each directory of log.dirs.
    num_replica_alter_log_dirs_threads: int | None = integer(None, at_least=1, at_most=INT_MAX)
    replica_alter_log_dirs_io_max_bytes_per_second: int = integer(LONG_MAX, at_least=0)
    intra_broker_throttled_rate: int = integer(LONG_MAX, at_least=0)
    leader_replication_throttled_rate: int = integer(LONG_MAX, at_least=0)
    follower_replication_throttled_rate: int = integer(LONG_MAX, at_least=0)

    # Whether the node is the cluster's only controller because its file lists no voters, only its own address as a bootstrap
    # server. Then controller_quorum_voters is this node.
    is_standalone: bool = field(default=False)

    # Where the node looks for the quorum: the voters, or the bootstrap servers of a broker that lists no voters.
    quorum_servers: tuple[HostPort, ...] = field(default=())

    # The addresses by which clients reach the controller listeners, in their order; empty for a node that is only a broker.
    advertised_controller_listeners: tuple[Endpoint, ...] = field(default=())

    # What the operator probably did not mean: unknown or repeated keys, and data in the default directory. Every command
    # that reads the file prints these lines.
    doubts: tuple[str, ...] = field(default=())
    # What the node logs when it starts: `doubts`, and the known keys that have no effect yet.
    warnings: tuple[str, ...] = field(default=())

    @property
    def is_broker(self) -> bool:
        return BROKER in self.process_roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.process_roles

    @property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        """The listeners of this node's controller; empty for a node that is only a broker."""
        if not self.is_controller:
            return ()
        return tuple(listener for listener in self.listeners if listener.name in self.controller_listener_names)

    @property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        """The listeners of this node's broker; empty for a node that is only a controller."""
        if not self.is_broker:
            return ()
        return tuple(listener for listener in self.listeners if listener.name not in self.controller_listener_names)

    @property
    def flush_ms(self) -> int:
        """From log.flush.interval.ms, else log.flush.scheduler.interval.ms."""
        interval_ms = self.log_flush_interval_ms
        return self.log_flush_scheduler_interval_ms if interval_ms is None else interval_ms

    @property
    def retention_ms(self) -> int:
        """The retention time from log.retention.ms, else .minutes, else .hours. -1 means no limit."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return self.log_retention_minutes * MS_PER_MINUTE if self.log_retention_minutes >= 0 else -1
        return self.log_retention_hours * MS_PER_HOUR if self.log_retention_hours >= 0 else -1

    @property
    def replica_alter_log_dirs_threads(self) -> int:
        """How many replicas may move between this broker's directories at the same time."""
        threads = self.num_replica_alter_log_dirs_threads
        return len(self.log_dirs) if threads is None else threads

    @property
    def all_log_dirs(self) -> tuple[str, ...]:
        """The directories of log.dirs, plus metadata.log.dir if it is not among these."""
        extra = () if self.metadata_log_dir in self.log_dirs else (self.metadata_log_dir,)
        return (*self.log_dirs, *extra)


def with_both_move_rates(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the properties. If they contain the move rate under one of its two names, the result has it under both."""
    rate = next((properties[name] for name in MOVE_RATE_NAMES if name in properties), None)
    return properties if rate is None else {**properties, **dict.fromkeys(MOVE_RATE_NAMES, rate)}


# The keys that have an effect, in order of declaration.
SERVER_SETTINGS: Final = MappingProxyType(settings_of(ServerConfig))
