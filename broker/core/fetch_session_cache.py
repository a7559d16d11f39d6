"""Decides which fetch sessions a broker keeps (core). See KIP-227.

Counterpart of Kafka's FetchSessionCache. A session saves a client from naming all its partitions in every fetch, at the cost
of memory here, so their number is limited. If there is no slot, a new session may take the place of another one:

1. of the one that was used longest ago, if that is more than two minutes ago;
2. otherwise of the least valuable one. Followers are worth more than consumers, and more partitions more than fewer. The
   session of a consumer is protected for two minutes from other consumers, and that of a follower from other followers.

A client that gets no session names all its partitions in every fetch. It loses nothing but time.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from common.time_units import NS_PER_S

# Epochs in requests: one that asks for a new session, and one that wants none and closes the one that it names.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFF_FFFF
# Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS.
PROTECTED_NS: Final = 120 * NS_PER_S


def next_epoch(epoch: int) -> int:
    """Returns the epoch of the next request of a session. Starts over at 1, because 0 asks for a new session."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1


class Session(Protocol):
    """What matters of a session here. `len` is its number of partitions."""

    @property
    def session_id(self) -> int: ...

    @property
    def is_follower(self) -> bool: ...

    @property
    def created_ns(self) -> int: ...

    @property
    def used_ns(self) -> int: ...

    def __len__(self) -> int: ...


SessionT = TypeVar("SessionT", bound=Session)


class FetchSessionCache(Generic[SessionT]):
    """The sessions of one broker."""

    def __init__(self, slots: int, *, on_removed: Callable[[SessionT], None]) -> None:
        """`slots` is the largest number of sessions. Calls `on_removed` with each session that leaves."""
        self._slots = slots
        self._on_removed = on_removed
        # By id, in the order of their last use.
        self._sessions: dict[int, SessionT] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[SessionT]:
        return iter(self._sessions.values())

    def find(self, session_id: int) -> SessionT | None:
        return self._sessions.get(session_id)

    def touch(self, session: SessionT) -> None:
        """Notes that the session was used."""
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session

    def remove(self, session_id: int) -> None:
        """Removes the session if there is one with this id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._on_removed(session)

    def add(self, session: SessionT, now_ns: int) -> bool:
        """Adds a new session, in the place of another one if need be. Returns False if there is no slot for it."""
        assert session.session_id not in self._sessions
        if len(self._sessions) >= self._slots:
            evicted = self._least_valuable(session, now_ns)
            if evicted is None:
                return False
            self.evictions += 1
            self.remove(evicted.session_id)
        self._sessions[session.session_id] = session
        return True

    def _least_valuable(self, session: SessionT, now_ns: int) -> SessionT | None:
        """Returns the session that has to leave for a new one, None if all are worth more."""
        if not self._sessions:
            return None
        oldest = next(iter(self._sessions.values()))
        if now_ns - oldest.used_ns > PROTECTED_NS:
            return oldest
        candidates = [
            each
            for each in self._sessions.values()
            if now_ns - each.created_ns > PROTECTED_NS or (session.is_follower and not each.is_follower)
        ]
        lowest = min(candidates, key=_value, default=None)
        return lowest if lowest is not None and _value(lowest) < _value(session) else None


def _value(session: Session) -> tuple[bool, int]:
    return session.is_follower, len(session)
