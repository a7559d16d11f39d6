"""Creates missing topics that clients asked for, and those that the brokers need for themselves (shell).

Counterpart of Kafka's AutoTopicCreationManager. The Metadata request is answered at once with a retriable error, while the
topic is created in the background. Its partition count and replication factor come from this broker's configuration, not
from the controller's. While a topic is being created, a client may ask for it many times a second; only the first of these
requests goes to the controller.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from broker.controller_link.controller_channel import ControllerChannel, ControllerUnavailable
from common.configuration.server import ServerConfig
from common.environment.interface import Environment
from common.protocol.errors import ErrorCode, error_name
from common.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from common.time_units import NS_PER_MS, NS_PER_S

TIMEOUT_MS = 30_000
# The largest values that fit into the request's fields. Larger configured values are cut to these. The topic is refused in
# any case, because the controller does not accept these values either.
PARTITIONS_MAX = 2**31 - 1
REPLICATION_FACTOR_MAX = 2**15 - 1
# The maximum number of topics being created at a time. Clients can name any number of topics, and while the controller does
# not answer, each stays in memory for the whole timeout. Topics beyond the limit are ignored, and clients retry them.
UNDER_WAY_MAX = 1000
INTERNAL_RETRY_NS = NS_PER_S

# TOPIC_ALREADY_EXISTS is normal if several brokers create the same topic at the same time.
EXPECTED = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class AutoTopics:
    """See the module docstring. Clients' topics are created only if auto.create.topics.enable is set. `internal` holds the
    topics with settings of their own; they are created in any case, once a broker needs one."""

    def __init__(
        self,
        env: Environment,
        *,
        is_enabled: bool,
        num_partitions: int,
        default_replication_factor: int,
        channel: ControllerChannel,
        task_group: asyncio.TaskGroup,
        internal: Mapping[str, CreatableTopic],
    ) -> None:
        self._env = env
        self._is_enabled = is_enabled
        self._num_partitions = min(num_partitions, PARTITIONS_MAX)
        self._replication_factor = min(default_replication_factor, REPLICATION_FACTOR_MAX)
        self._channel = channel
        self._task_group = task_group
        self._internal = internal
        self._under_way: dict[str, None] = {}
        # Why the last attempt to create each of the internal topics failed. A new attempt does not change it until it ends.
        self._refusals: dict[str, str] = {}

    def create(self, names: Sequence[str]) -> None:
        """Starts creating the named topics that are not being created yet, with this broker's defaults."""
        if self._is_enabled:
            self._begin(names)

    def create_internal(self, name: str) -> str | None:
        """Starts creating one of the `internal` topics, unless it is being created already. Returns why the last attempt
        failed, None if there was none."""
        self._begin([name])
        return self._refusals.get(name)

    def _begin(self, names: Sequence[str]) -> None:
        fresh = [name for name in dict.fromkeys(names) if name not in self._under_way]
        del fresh[UNDER_WAY_MAX - len(self._under_way) :]
        if fresh:
            self._under_way.update(dict.fromkeys(fresh))
            self._task_group.create_task(self._create(fresh))

    def _topic(self, name: str) -> CreatableTopic:
        return self._internal.get(name) or CreatableTopic(
            name=name, num_partitions=self._num_partitions, replication_factor=self._replication_factor
        )

    async def _create(self, names: Sequence[str]) -> None:
        request = CreateTopicsRequest(topics=[self._topic(name) for name in names], timeout_ms=TIMEOUT_MS)
        try:
            response: CreateTopicsResponse = await self._channel.send(
                request, deadline_ns=self._env.now_ns() + TIMEOUT_MS * NS_PER_MS
            )
            for result in response.topics:
                if result.error_code in EXPECTED:
                    self._refusals.pop(result.name, None)
                elif self._is_news(result.name, result.error_message or error_name(result.error_code)):
                    self._env.log.warning(
                        "auto_topic_refused",
                        topic=result.name,
                        error=error_name(result.error_code),
                        reason=result.error_message,
                    )
        except ControllerUnavailable as error:
            news = [name for name in names if self._is_news(name, str(error))]
            if news:
                self._env.log.warning("auto_topic_not_created", topics=news, reason=str(error))
        finally:
            for name in names:
                if name in self._internal:
                    # Every client of every group asks for it, many times a second, even where it cannot be created.
                    self._env.call_at(self._env.now_ns() + INTERNAL_RETRY_NS, partial(self._under_way.pop, name, None))
                else:
                    self._under_way.pop(name, None)

    def _is_news(self, name: str, reason: str) -> bool:
        """Notes why an internal topic was not created. Returns whether to log it.

        Clients ask for an internal topic all the time, and it is tried every second, so the same reason is logged once. For
        other topics, every failure is logged."""
        if name not in self._internal:
            return True
        is_news = self._refusals.get(name) != reason
        self._refusals[name] = reason
        return is_news


def offsets_topic(name: str, config: ServerConfig) -> CreatableTopic:
    """Returns what the topic of the committed offsets is created with."""
    overrides = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.offsets_topic_segment_bytes),
    }
    return _with_overrides(name, overrides, config.offsets_topic_num_partitions, config.offsets_topic_replication_factor)


def transaction_state_topic(name: str, config: ServerConfig) -> CreatableTopic:
    """Returns what the topic of the transactional ids is created with."""
    overrides = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        # A coordinator that starts without this state would let fenced producers in again.
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": str(config.transaction_state_log_min_isr),
        "segment.bytes": str(config.transaction_state_log_segment_bytes),
    }
    return _with_overrides(
        name,
        overrides,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
    )


def _with_overrides(name: str, overrides: Mapping[str, str], num_partitions: int, replication_factor: int) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=num_partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in overrides.items()],
    )
