"""Notifies a leader that its follower is halted, because the follower's directory or the swap of its log hangs (shell).

The leader then does not keep its producers waiting for this follower (`PartitionReplica.is_held_up`). A notice is a Fetch
request outside the session that asks for 0 bytes of each partition. Apache Kafka's brokers treat it as an ordinary fetch.
A leader that has not confirmed a partition is notified again, because it may not know yet that it leads. It confirms also
where the follower's log differs from its own. A log that is being created, cut or emptied has no position to promise, so its
notice has an offset that no log has.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice

from broker.core.fetch_session_cache import FINAL_EPOCH
from broker.core.fetcher_session import SessionRequest
from broker.hosting.leader_connection import PARTITIONS_ADDED_MAX, LeaderConnection
from broker.hosting.partition import Partition
from common.environment.interface import Environment
from common.ids import LeaderEpoch, TopicId, TopicIdPartition
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchPartition, FetchResponse, FetchTopic
from common.time_units import NS_PER_MS

# Partitions are added in bursts. One notice names all that are added within this time.
_DELAY_NS = 5 * NS_PER_MS
_RETRY_NS = 100 * NS_PER_MS
# What a notice says of a log that is being created, cut or emptied.
NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Notice:
    """What a notice says of one partition. `partition` is None while its log is being created."""

    key: TopicIdPartition
    says: FetchPartition
    partition: Partition | None


class HaltNotices:
    """The notices of one fetcher. `notice_of` returns None if there is nothing to notify the leader of. `on_answered` is
    called after every answer."""

    def __init__(
        self,
        env: Environment,
        leader: LeaderConnection,
        *,
        notice_of: Callable[[TopicIdPartition], Notice | None],
        on_answered: Callable[[], None],
    ) -> None:
        self._env = env
        self._leader = leader
        self._notice_of = notice_of
        self._on_answered = on_answered
        # The notices sent and not answered.
        self.unanswered = 0
        # The partitions for the next notices. Invariant: empty unless a notice is scheduled.
        self._waiting: dict[TopicIdPartition, None] = {}
        self._is_scheduled = False

    def notify(self, keys: Iterable[TopicIdPartition]) -> None:
        """Notifies the leader of these partitions, again and again until it has confirmed them or need not know."""
        self._schedule(keys, _DELAY_NS)

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
        notices: list[Notice] = []
        for key in keys:
            del self._waiting[key]
            notice = self._notice_of(key)
            if notice is not None:
                notices.append(notice)
                topics.setdefault(key.topic_id, FetchTopic(topic_id=key.topic_id)).partitions.append(notice.says)
        if topics:
            request = SessionRequest(
                number=-1, session_id=0, session_epoch=FINAL_EPOCH, topics=[*topics.values()], forgotten_topics=[]
            )
            self.unanswered += 1
            for notice in notices:
                if notice.partition is not None:
                    notice.partition.unanswered_notices.append(LeaderEpoch(notice.says.current_leader_epoch))
            self._leader.post_fetch(request, max_wait_ms=0, on_answer=partial(self._answered, notices))
        if self._waiting:
            self._schedule((), _DELAY_NS)

    def _answered(self, notices: list[Notice], answer: FetchResponse | ChannelError) -> None:
        self.unanswered -= 1
        self._on_answered()
        for notice in notices:
            if notice.partition is not None:
                notice.partition.notice_answered(LeaderEpoch(notice.says.current_leader_epoch))
        if isinstance(answer, ChannelError) or answer.error_code != ErrorCode.NONE:
            unconfirmed = [notice.key for notice in notices]
        else:
            unconfirmed = _unconfirmed(answer)
        if unconfirmed:
            self._schedule(unconfirmed, _RETRY_NS)


def _unconfirmed(response: FetchResponse) -> list[TopicIdPartition]:
    """Returns the partitions in which the leader has not taken note that the follower is halted."""
    return [
        TopicIdPartition(TopicId(topic.topic_id), data.partition_index)
        for topic in response.responses
        for data in topic.partitions
        if data.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE)
    ]
