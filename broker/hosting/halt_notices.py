"""Notifies a leader that its follower is halted, because the follower's directory is suspected of hanging (shell).

The leader then does not keep its producers waiting for this follower (`PartitionReplica.is_held_up`). A notice is a Fetch
request outside the session that asks for 0 bytes of each partition. Apache Kafka's brokers treat it as an ordinary fetch.
A leader that has not confirmed a partition is notified again, because it may not know yet that it leads. It confirms also
where the follower's log differs from its own. A log that is being cut or emptied has no position to promise, so its notice
has an offset that no log has.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from broker.core.fetch_session_cache import FINAL_EPOCH
from broker.core.fetcher_session import SessionRequest
from broker.hosting.leader_connection import PARTITIONS_ADDED_MAX, LeaderConnection
from common.environment.interface import Environment
from common.ids import TopicId, TopicIdPartition
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchPartition, FetchResponse, FetchTopic
from common.time_units import NS_PER_MS

# Partitions are added in bursts. One notice names all that are added within this time.
_DELAY_NS = 5 * NS_PER_MS
_RETRY_NS = 100 * NS_PER_MS
# What a notice says of a log that is being cut or emptied.
NO_OFFSET = -1


class HaltNotices:
    """The notices of one fetcher. `position` returns what a notice says of a partition, or None if the fetcher no longer
    follows the leader in it. `on_answered` is called after every answer."""

    def __init__(
        self,
        env: Environment,
        leader: LeaderConnection,
        *,
        position: Callable[[TopicIdPartition], FetchPartition | None],
        on_answered: Callable[[], None],
    ) -> None:
        self._env = env
        self._leader = leader
        self._position = position
        self._on_answered = on_answered
        # The notices sent and not answered.
        self.unanswered = 0
        self._is_halted = False
        # The partitions for the next notices. Invariant: empty unless a notice is scheduled.
        self._waiting: dict[TopicIdPartition, None] = {}
        self._is_scheduled = False

    def notify(self, keys: Iterable[TopicIdPartition]) -> None:
        """Notifies the leader of these partitions, again and again until it has confirmed them."""
        self._is_halted = True
        self._schedule(keys, _DELAY_NS)

    def withdraw(self) -> None:
        """Sends no more notices until the next `notify`."""
        self._is_halted = False
        self._waiting.clear()

    def _schedule(self, keys: Iterable[TopicIdPartition], delay_ns: int) -> None:
        self._waiting.update(dict.fromkeys(keys))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._env.call_at(self._env.now_ns() + delay_ns, self._send)

    def _send(self) -> None:
        """Sends a notice of the partitions that wait, or of the first ones."""
        self._is_scheduled = False
        keys = [*islice(self._waiting, PARTITIONS_ADDED_MAX)]
        topics: dict[TopicId, FetchTopic] = {}
        for key in keys:
            del self._waiting[key]
            position = self._position(key)
            if position is not None:
                topics.setdefault(key.topic_id, FetchTopic(topic_id=key.topic_id)).partitions.append(position)
        if topics:
            request = SessionRequest(
                number=-1, session_id=0, session_epoch=FINAL_EPOCH, topics=[*topics.values()], forgotten_topics=[]
            )
            self.unanswered += 1
            self._leader.post_fetch(request, max_wait_ms=0, on_answer=partial(self._answered, keys))
        if self._waiting:
            self._schedule((), _DELAY_NS)

    def _answered(self, keys: list[TopicIdPartition], answer: FetchResponse | ChannelError) -> None:
        self.unanswered -= 1
        self._on_answered()
        if isinstance(answer, ChannelError) or answer.error_code != ErrorCode.NONE:
            unconfirmed = keys
        else:
            unconfirmed = _unconfirmed(answer)
        if unconfirmed and self._is_halted:
            self._schedule(unconfirmed, _RETRY_NS)


def _unconfirmed(response: FetchResponse) -> list[TopicIdPartition]:
    """Returns the partitions in which the leader has not taken note that the follower is halted."""
    return [
        TopicIdPartition(TopicId(topic.topic_id), data.partition_index)
        for topic in response.responses
        for data in topic.partitions
        if data.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)
    ]
