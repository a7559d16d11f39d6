"""Decides what a follower names in its fetches (core). See KIP-227.

Counterpart of Kafka's FetchSessionHandler. The first request of a session names all partitions, each later one only what has
changed. A leader without a slot for the session answers with session id 0; then every request names all partitions.

The next request may be built before the one before is answered. An answer tells nothing about partitions that were named
only later, so each partition remembers the request that named it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from broker.core.fetch_session_cache import INITIAL_EPOCH, next_epoch
from common.ids import TopicId, TopicIdPartition
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic

_NO_SESSION = 0


@dataclass(slots=True)
class _Asked:
    """What the session asks for in one partition, and the number of the request that first did."""

    wanted: FetchPartition
    request_number: int


# Not frozen: a frozen dataclass takes three times as long to create, and one is created for each fetch.
@dataclass(slots=True)
class SessionRequest:
    """The part of a Fetch request that the session decides. Nothing changes it. `number` counts the requests of this
    fetcher."""

    number: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]

    @property
    def begins_session(self) -> bool:
        return self.session_epoch == INITIAL_EPOCH


class FetcherSession:
    """The session of one fetcher with one leader, or the lack of one. `len` is the number of partitions in it."""

    def __init__(self) -> None:
        self._session_id = _NO_SESSION
        # The epoch of the next request.
        self._epoch = INITIAL_EPOCH
        # Whether the leader had no slot for the last session that was asked for.
        self.is_refused = False
        self._asked: dict[TopicIdPartition, _Asked] = {}
        # The changes that the next request names. Invariant: the first are in `_asked`, the second are not.
        self._named: dict[TopicIdPartition, None] = {}
        self._forgotten: dict[TopicIdPartition, None] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._asked)

    def __contains__(self, key: TopicIdPartition) -> bool:
        return key in self._asked

    @property
    def is_established(self) -> bool:
        """Whether the next request names only what has changed."""
        return self._epoch != INITIAL_EPOCH

    @property
    def has_changes(self) -> bool:
        return bool(self._named or self._forgotten)

    def ask(self, key: TopicIdPartition, wanted: FetchPartition) -> None:
        """Fetches the partition like this from the next request on."""
        asked = self._asked.get(key)
        if asked is None or asked.wanted != wanted:
            self._asked[key] = _Asked(wanted, self._next_number)
            self._named[key] = None
            self._forgotten.pop(key, None)

    def forget(self, key: TopicIdPartition) -> None:
        """Leaves the partition out from the next request on."""
        if self._asked.pop(key, None) is not None:
            self._named.pop(key, None)
            self._forgotten[key] = None

    def asked(self, key: TopicIdPartition, request: SessionRequest) -> FetchPartition | None:
        """Returns what the request asked for in the partition. Returns None if it did not, or if that has changed
        since."""
        asked = self._asked.get(key)
        return asked.wanted if asked is not None and asked.request_number <= request.number else None

    def next_request(self) -> SessionRequest:
        """Returns what the next request names."""
        if self.is_established:
            request = self._request(self._named, self._forgotten)
            self._epoch = next_epoch(self._epoch)
        else:
            request = self._request(self._asked, {})
        self._named.clear()
        self._forgotten.clear()
        return request

    def _request(
        self, named: dict[TopicIdPartition, _Asked] | dict[TopicIdPartition, None], forgotten: dict[TopicIdPartition, None]
    ) -> SessionRequest:
        number, self._next_number = self._next_number, self._next_number + 1
        topics: dict[TopicId, FetchTopic] = {}
        for key in named:
            topic = topics.get(key.topic_id)
            if topic is None:
                topic = topics[key.topic_id] = FetchTopic(topic_id=key.topic_id)
            topic.partitions.append(self._asked[key].wanted)
        return SessionRequest(number, self._session_id, self._epoch, list(topics.values()), list(_forgotten(forgotten)))

    def answered(self, request: SessionRequest, response: FetchResponse) -> bool:
        """Takes over what the answer says about the session. Returns False if there is nothing else in it: the session has
        failed and the next request begins a new one."""
        if response.error_code != ErrorCode.NONE:
            self.failed()
            return False
        if request.begins_session:
            self._session_id = response.session_id
            self.is_refused = response.session_id == _NO_SESSION
            if not self.is_refused:
                self._epoch = next_epoch(INITIAL_EPOCH)
        elif response.session_id != self._session_id:
            self.failed()
        return True

    def failed(self) -> None:
        """Begins a new session with the next request, because a request was not answered or the leader lost the session."""
        self._epoch = INITIAL_EPOCH


def _forgotten(keys: dict[TopicIdPartition, None]) -> Iterator[ForgottenTopic]:
    topics: dict[TopicId, ForgottenTopic] = {}
    for key in keys:
        topics.setdefault(key.topic_id, ForgottenTopic(topic_id=key.topic_id)).partitions.append(key.partition)
    yield from topics.values()
