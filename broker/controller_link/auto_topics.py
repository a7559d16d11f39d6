"""Creates missing topics that clients asked for (shell).

Counterpart of Kafka's AutoTopicCreationManager. The Metadata request is answered at once with a retriable error, while the
topic is created in the background. Its partition count and replication factor come from this broker's configuration, not
from the controller's. While a topic is being created, a client may ask for it many times a second; only the first of these
requests goes to the controller.
"""

import asyncio
from collections.abc import Sequence

from broker.controller_link.controller_channel import ControllerChannel, ControllerUnavailable
from common.environment.interface import Environment
from common.protocol.errors import ErrorCode, error_name
from common.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from common.time_units import NS_PER_MS

TIMEOUT_MS = 30_000
# The largest values that fit into the request's fields. Larger configured values are cut to these. The topic is refused in
# any case, because the controller does not accept these values either.
PARTITIONS_MAX = 2**31 - 1
REPLICATION_FACTOR_MAX = 2**15 - 1
# The maximum number of topics being created at a time. Clients can name any number of topics, and while the controller does
# not answer, each stays in memory for the whole timeout. Topics beyond the limit are ignored, and clients retry them.
UNDER_WAY_MAX = 1000

# TOPIC_ALREADY_EXISTS is normal if several brokers create the same topic at the same time.
EXPECTED = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class AutoTopics:
    """See the module docstring. Does nothing unless auto.create.topics.enable is set."""

    def __init__(
        self,
        env: Environment,
        *,
        is_enabled: bool,
        num_partitions: int,
        default_replication_factor: int,
        channel: ControllerChannel,
        task_group: asyncio.TaskGroup,
    ) -> None:
        self._env = env
        self._is_enabled = is_enabled
        self._num_partitions = min(num_partitions, PARTITIONS_MAX)
        self._replication_factor = min(default_replication_factor, REPLICATION_FACTOR_MAX)
        self._channel = channel
        self._task_group = task_group
        self._under_way: dict[str, None] = {}

    def create(self, names: Sequence[str]) -> None:
        """Starts creating the named topics that are not being created yet, with this broker's defaults."""
        fresh = [name for name in dict.fromkeys(names) if name not in self._under_way]
        del fresh[UNDER_WAY_MAX - len(self._under_way) :]
        if self._is_enabled and fresh:
            self._under_way.update(dict.fromkeys(fresh))
            self._task_group.create_task(self._create(fresh))

    async def _create(self, names: Sequence[str]) -> None:
        topics = [
            CreatableTopic(name=name, num_partitions=self._num_partitions, replication_factor=self._replication_factor)
            for name in names
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        try:
            response: CreateTopicsResponse = await self._channel.send(
                request, deadline_ns=self._env.now_ns() + TIMEOUT_MS * NS_PER_MS
            )
            for result in response.topics:
                if result.error_code not in EXPECTED:
                    self._env.log.warning(
                        "auto_topic_refused",
                        topic=result.name,
                        error=error_name(result.error_code),
                        reason=result.error_message,
                    )
        except ControllerUnavailable as error:
            self._env.log.warning("auto_topic_not_created", topics=names, reason=str(error))
        finally:
            for name in names:
                self._under_way.pop(name, None)
