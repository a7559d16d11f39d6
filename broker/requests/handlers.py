"""Maps each API that a broker serves to its handler (shell).

Counterpart of the dispatch in Kafka's KafkaApis. Requests that are forwarded to the controller are in `forwarded`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from broker.controller_link.auto_topics import AutoTopics, offsets_topic, transaction_state_topic
from broker.controller_link.controller_channel import ControllerChannel
from broker.controller_link.forwarding import Forwarding
from broker.controller_link.metadata_follower import MetadataFollower
from broker.controller_link.producer_ids import ProducerIds
from broker.coordinator.core.group_partition import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from broker.coordinator.core.key_partitions import KeyPartitions
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.transaction_coordinator import TransactionCoordinator
from broker.coordinator.transaction_verifier import TransactionVerifier
from broker.core.replica_selector import replica_selector
from broker.hosting.replicas import Replicas
from broker.requests.acls import refuse_acls
from broker.requests.alter_configs import AlterConfigsRequests
from broker.requests.alter_replica_log_dirs import AlterReplicaLogDirsRequests
from broker.requests.consumer_groups import ConsumerGroupRequests
from broker.requests.delete_records import DeleteRecordsHandler
from broker.requests.describe_client_quotas import DescribeClientQuotasRequests
from broker.requests.describe_configs import DescribeConfigsRequests
from broker.requests.describe_log_dirs import DescribeLogDirsRequests
from broker.requests.describe_producers import DescribeProducersRequests
from broker.requests.describe_topic_partitions import DescribeTopicPartitionsRequests
from broker.requests.describe_user_scram_credentials import DescribeUserScramCredentialsRequests
from broker.requests.fetch import FetchHandler
from broker.requests.fetch_session import FetchSessions
from broker.requests.find_coordinator import FindCoordinatorHandler
from broker.requests.forwarded import ForwardedRequests
from broker.requests.group_offsets import GroupOffsetsRequests
from broker.requests.groups import GroupRequests
from broker.requests.init_producer_id import InitProducerIdRequests
from broker.requests.list_config_resources import ListConfigResourcesRequests
from broker.requests.list_offsets import ListOffsetsHandler
from broker.requests.metadata import MetadataRequests
from broker.requests.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.requests.produce import ProduceHandler
from broker.requests.sasl import refuse_sasl
from broker.requests.transactions import TransactionRequests
from broker.requests.write_txn_markers import WriteTxnMarkersRequests
from broker.serving import Serving
from common.configuration.resolver import ConfigResolver
from common.configuration.server import CONSUMER_PROTOCOL, ServerConfig
from common.environment.interface import Environment
from common.ids import BrokerId
from common.light_tasks import LightTasks
from common.log_dirs.directories import NodeDirectories
from common.metadata.state import MetadataState
from common.net.request_context import Handler
from common.protocol.api_keys import ApiKey


def request_handlers(
    env: Environment,
    config: ServerConfig,
    *,
    resolver: ConfigResolver,
    state: MetadataState,
    directories: NodeDirectories,
    replicas: Replicas,
    fetch_sessions: FetchSessions,
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    key_partitions: KeyPartitions,
    markers: WriteTxnMarkersRequests,
    verifier: TransactionVerifier,
    serving: Serving,
    controller: ControllerChannel,
    follower: MetadataFollower,
    producer_ids: ProducerIds,
    catch_up: Callable[[], Awaitable[None]],
    is_current_since: Callable[[int], bool],
    task_group: asyncio.TaskGroup,
) -> dict[ApiKey, Handler]:
    """Returns the handlers of all APIs that a broker serves, except ApiVersions, whose answer lists them."""
    broker_id = BrokerId(config.node_id)
    auto_topics = AutoTopics(
        env,
        is_enabled=config.auto_create_topics_enable,
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        channel=controller,
        task_group=task_group,
        internal={
            OFFSETS_TOPIC: offsets_topic(OFFSETS_TOPIC, config),
            TRANSACTION_STATE_TOPIC: transaction_state_topic(TRANSACTION_STATE_TOPIC, config),
        },
    )
    metadata = MetadataRequests(env, state, broker_id=broker_id, cluster_id=directories.cluster_id, auto_topics=auto_topics)
    topic_partitions = DescribeTopicPartitionsRequests(state, partitions_max=config.max_request_partition_size_limit)
    log_dirs = DescribeLogDirsRequests(
        directories.known,
        describe=replicas.descriptions.every,
        count=replicas.descriptions.count,
        is_cordoned=replicas.is_cordoned,
    )
    transactional = TransactionRequests(state, transactions, key_partitions, auto_topics, producer_ids.take)
    verifier.attach(transactional.add_or_verify)
    has_consumer_groups = CONSUMER_PROTOCOL in config.group_coordinator_rebalance_protocols
    forwarding = Forwarding(env, channel=controller, follower=follower, is_current_since=is_current_since)
    light_tasks = LightTasks()
    task_group.create_task(light_tasks.run_until_cancelled())
    return {
        ApiKey.PRODUCE: ProduceHandler(env, replicas, is_certain=serving.is_certain, verifier=verifier).handle,
        ApiKey.FETCH: FetchHandler(
            env,
            replicas,
            response_bytes_max=config.fetch_max_bytes,
            sessions=fetch_sessions,
            light_tasks=light_tasks,
            selector=replica_selector(config.replica_selector_class),
        ).handle,
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(replicas).handle,
        ApiKey.DELETE_RECORDS: DeleteRecordsHandler(env, replicas).handle,
        ApiKey.INIT_PRODUCER_ID: InitProducerIdRequests(producer_ids.take, transactional.init_producer).handle,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(replicas).handle,
        ApiKey.FIND_COORDINATOR: FindCoordinatorHandler(state, key_partitions, auto_topics).handle,
        ApiKey.METADATA: metadata.handle_metadata,
        ApiKey.DESCRIBE_CLUSTER: metadata.handle_describe_cluster,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: topic_partitions.handle,
        ApiKey.DESCRIBE_PRODUCERS: DescribeProducersRequests(replicas).handle,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: DescribeClientQuotasRequests(state).handle,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsRequests(state).handle,
        ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesRequests(state).handle,
        ApiKey.SASL_HANDSHAKE: refuse_sasl,
        ApiKey.DESCRIBE_ACLS: refuse_acls,
        ApiKey.CREATE_ACLS: refuse_acls,
        ApiKey.DELETE_ACLS: refuse_acls,
        ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequests(state, resolver).handle,
        ApiKey.DESCRIBE_LOG_DIRS: log_dirs.handle,
        ApiKey.ALTER_REPLICA_LOG_DIRS: AlterReplicaLogDirsRequests(replicas.log_dir_alteration.alter).handle,
        ApiKey.WRITE_TXN_MARKERS: markers.handle,
        **transactional.handlers(),
        **GroupRequests(env, groups).handlers(),
        **(ConsumerGroupRequests(env, groups).handlers() if has_consumer_groups else {}),
        **GroupOffsetsRequests(state, groups, verifier).handlers(),
        **ForwardedRequests(state, forwarding).handlers(),
        **AlterConfigsRequests(env, forwarding, broker_id=broker_id, log_dirs=config.log_dirs, catch_up=catch_up).handlers(),
    }
