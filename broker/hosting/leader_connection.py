"""Sends the requests of one replica fetcher to its leader: Fetch and ListOffsets (shell).

Counterpart of Kafka's RemoteLeaderEndPoint. The connection is opened by the first fetch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from broker.core.fetcher_session import SessionRequest
from broker.hosting.partition import Partition
from common.environment.interface import Environment
from common.ids import BrokerEpoch, BrokerId, Offset
from common.net.node_channel import ChannelError, OnAnswer
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchRequest, ReplicaState
from common.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

# Fetch 17 has topic ids, the replica's broker epoch, and leader hints in tagged fields.
_FETCH_VERSION = 17
_LIST_OFFSETS_VERSION = 9
# A request names at most this many partitions that are new to the leader. The leader looks at all that a request names in
# one step, and serves nothing else meanwhile. When a broker starts, its followers begin with thousands.
PARTITIONS_ADDED_MAX = 1000


class Channel(Protocol):
    """One connection to the leader (`NodeChannel`). `send` raises ChannelError, `post` passes it to `on_answer`."""

    async def send(self, request: Any, *, version: int | None = None, deadline_ns: int) -> Any: ...

    def post(self, request: Any, *, version: int, deadline_ns: int, on_answer: OnAnswer) -> None: ...

    def close(self) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """The settings replica.fetch.* and replica.socket.timeout.ms."""

    wait_max_ms: int
    min_bytes: int
    response_max_bytes: int
    partition_max_bytes: int
    backoff_max_ns: int
    request_timeout_ns: int


class LeaderConnection:
    """The connection of one fetcher to broker `leader_id`."""

    def __init__(
        self,
        env: Environment,
        *,
        leader_id: BrokerId,
        local_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        connect: Callable[[], Channel],
        settings: FetcherSettings,
    ) -> None:
        self.leader_id = leader_id
        self._env = env
        self._local_id = local_id
        self._broker_epoch = broker_epoch
        self._connect = connect
        self._settings = settings
        self._channel: Channel | None = None

    def post_fetch(self, request: SessionRequest, *, max_wait_ms: int, on_answer: OnAnswer) -> None:
        """Sends a Fetch. `on_answer` gets the FetchResponse or the ChannelError."""
        epoch = self._broker_epoch()
        message = FetchRequest(
            replica_state=ReplicaState(replica_id=self._local_id, replica_epoch=-1 if epoch is None else epoch),
            max_wait_ms=max_wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.response_max_bytes,
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            topics=request.topics,
            forgotten_topics_data=request.forgotten_topics,
        )
        if self._channel is None:
            self._channel = self._connect()
        self._channel.post(
            message,
            version=_FETCH_VERSION,
            deadline_ns=self._env.now_ns() + self._settings.request_timeout_ns,
            on_answer=on_answer,
        )

    async def list_offset(self, partition: Partition, timestamp: int) -> Offset | None:
        """Returns the leader's EARLIEST or LATEST offset, or None if it does not answer or answers with an error."""
        request = ListOffsetsRequest(
            replica_id=self._local_id,
            topics=[
                ListOffsetsTopic(
                    name=partition.topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=partition.index,
                            current_leader_epoch=partition.replica.leader_epoch,
                            timestamp=timestamp,
                        )
                    ],
                )
            ],
        )
        # On a connection of its own. On the one of the fetches, the response would come only after the one to the poll.
        channel = self._connect()
        deadline_ns = self._env.now_ns() + self._settings.request_timeout_ns
        try:
            response: ListOffsetsResponse = await channel.send(
                request, version=_LIST_OFFSETS_VERSION, deadline_ns=deadline_ns
            )
        except ChannelError:
            return None
        finally:
            channel.close()
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.partition_index == partition.index and answer.error_code == ErrorCode.NONE:
                    return Offset(answer.offset)
        return None

    def close(self) -> None:
        """Gives the connection up. The next fetch opens another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
