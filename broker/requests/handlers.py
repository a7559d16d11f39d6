"""Maps each API that a broker serves to its handler (shell).

Counterpart of the dispatch in Kafka's KafkaApis. Requests that are forwarded to the controller are in `forwarded`.
"""

import asyncio
from collections.abc import Awaitable, Callable

from broker.controller_link.auto_topics import AutoTopics
from broker.controller_link.controller_channel import ControllerChannel
from broker.controller_link.forwarding import Forwarding
from broker.controller_link.metadata_follower import MetadataFollower
from broker.hosting.replicas import Replicas
from broker.requests.alter_configs import AlterConfigsRequests
from broker.requests.alter_replica_log_dirs import AlterReplicaLogDirsRequests
from broker.requests.describe_configs import DescribeConfigsRequests
from broker.requests.describe_log_dirs import DescribeLogDirsRequests
from broker.requests.fetch import FetchHandler
from broker.requests.forwarded import ForwardedRequests
from broker.requests.list_offsets import ListOffsetsHandler
from broker.requests.metadata import MetadataRequests
from broker.requests.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from broker.requests.produce import ProduceHandler
from broker.serving import Serving
from common.configuration.resolver import ConfigResolver
from common.configuration.server import ServerConfig
from common.environment.interface import Environment
from common.ids import BrokerId
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
    serving: Serving,
    controller: ControllerChannel,
    follower: MetadataFollower,
    catch_up: Callable[[], Awaitable[None]],
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
    )
    metadata = MetadataRequests(env, state, broker_id=broker_id, cluster_id=directories.cluster_id, auto_topics=auto_topics)
    configs = DescribeConfigsRequests(state, broker_id=broker_id, resolver=resolver)
    log_dirs = DescribeLogDirsRequests(
        directories.known, describe=replicas.describe, describe_future=replicas.describe_future
    )
    forwarding = Forwarding(env, channel=controller, follower=follower)
    return {
        ApiKey.PRODUCE: ProduceHandler(env, replicas, is_certain=serving.is_certain).handle,
        ApiKey.FETCH: FetchHandler(env, replicas, response_bytes_max=config.fetch_max_bytes).handle,
        ApiKey.LIST_OFFSETS: ListOffsetsHandler(replicas).handle,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochHandler(replicas).handle,
        ApiKey.METADATA: metadata.handle_metadata,
        ApiKey.DESCRIBE_CLUSTER: metadata.handle_describe_cluster,
        ApiKey.DESCRIBE_CONFIGS: configs.handle,
        ApiKey.DESCRIBE_LOG_DIRS: log_dirs.handle,
        ApiKey.ALTER_REPLICA_LOG_DIRS: AlterReplicaLogDirsRequests(replicas.alter_log_dir).handle,
        **ForwardedRequests(state, forwarding).handlers(),
        **AlterConfigsRequests(env, forwarding, broker_id=broker_id, catch_up=catch_up).handlers(),
    }
