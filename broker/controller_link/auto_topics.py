"""Creates topics that clients asked for and that do not exist yet (shell).

Answers to Kafka's AutoTopicCreationManager: the Metadata request is answered at once with an error that clients retry, and
the topic is created beside it, as large as this broker's configuration says, whatever the controller's says. Easy to get
wrong: a client asks for the same topic many times a second while it is being created, and that must not become as many
requests to the controller.
"""

import asyncio
from collections.abc import Sequence

from broker.controller_link.controller_channel import ControllerChannel, ControllerUnavailable
from common.environment.interface import Environment
from common.protocol.errors import ErrorCode, error_name
from common.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from common.time_units import NS_PER_MS

TIMEOUT_MS = 30_000
# What fits the fields of the request. A configuration that says more is refused by the controller as this is.
PARTITIONS_MAX = 2**31 - 1
REPLICATION_FACTOR_MAX = 2**15 - 1
# While the controller is silent they stay for the whole timeout, and clients may name as many as they like. What is left out
# is asked for again.
UNDER_WAY_MAX = 1000

# Benign when several brokers create the same topic at the same moment.
EXPECTED = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class AutoTopics:
    """Does nothing unless auto.create.topics.enable is set."""

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
        """Starts the creation of those that are not under way already, with this broker's defaults."""
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
