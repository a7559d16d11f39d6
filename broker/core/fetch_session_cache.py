"""Decides which fetch sessions a broker keeps (core). See KIP-227.

Counterpart of Kafka's FetchSessionCache. A session saves a client from naming all its partitions in every fetch, at the cost
of memory here, so the number of sessions is limited, and so is that of the partitions in all of them, which Kafka does not
limit. If there is no room, a new session may take the place of others, one after the other:

1. of the one that was used longest ago, if that is more than two minutes ago;
2. otherwise of the least valuable one. Followers are worth more than consumers, and more partitions more than fewer. The
   session of a consumer is protected for two minutes from other consumers, and that of a follower from other followers.

A session that grows takes the room of others by the same rules. If there is none for it, it leaves.
A client that gets no session names all its partitions in every fetch. It loses nothing but time.
"""

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Final, Generic, Protocol, TypeVar

from common.time_units import NS_PER_S

# Epochs in requests: one that asks for a new session, and one that wants none and closes the one that it names.
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFF_FFFF
# Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS.
PROTECTED_NS: Final = 120 * NS_PER_S
# The most partitions in all sessions together. A partition takes 500 to 900 bytes. A broker that leads 20,000 partitions
# reaches this number if two followers and eight consumer groups fetch all of them.
PARTITIONS_MAX: Final = 200_000


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

    def __init__(self, slots: int, *, on_removed: Callable[[SessionT], None], partitions_max: int = PARTITIONS_MAX) -> None:
        """`slots` is the largest number of sessions. Calls `on_removed` with each session that leaves."""
        self._slots = slots
        self._partitions_max = partitions_max
        self._on_removed = on_removed
        # By id, in the order of their last use.
        self._sessions: dict[int, SessionT] = {}
        # The number of partitions of each session, as of `add` or `note_size`.
        self._sizes: dict[int, int] = {}
        # Invariant: the sum of `_sizes`.
        self.partitions = 0
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
            self.partitions -= self._sizes.pop(session_id)
            self._on_removed(session)

    def add(self, session: SessionT, now_ns: int) -> bool:
        """Adds a new session, in place of others if need be. Returns False if there is no room for it."""
        assert session.session_id not in self._sessions
        if not self._make_room(session, now_ns, slots=1, partitions=len(session)):
            return False
        self._sessions[session.session_id] = session
        self._count(session)
        return True

    def note_size(self, session: SessionT, now_ns: int) -> None:
        """Notes that the number of the session's partitions has changed. Evicts the session if there is no room for it."""
        before = self._sizes.get(session.session_id)
        if before is None or before == len(session):
            return
        if self._make_room(session, now_ns, slots=0, partitions=len(session) - before):
            self._count(session)
        else:
            self.evictions += 1
            self.remove(session.session_id)

    def _count(self, session: SessionT) -> None:
        self.partitions += len(session) - self._sizes.get(session.session_id, 0)
        self._sizes[session.session_id] = len(session)

    def _make_room(self, session: SessionT, now_ns: int, *, slots: int, partitions: int) -> bool:
        """Evicts as many sessions as necessary. If even that would not make enough room, evicts none and returns False."""
        slots += len(self._sessions) - self._slots
        partitions += self.partitions - self._partitions_max
        if slots <= 0 and partitions <= 0:
            return True
        evicted: list[int] = []
        for each in self._least_valuable(session, now_ns):
            evicted.append(each.session_id)
            slots -= 1
            partitions -= self._sizes[each.session_id]
            if slots <= 0 and partitions <= 0:
                break
        else:
            return False
        self.evictions += len(evicted)
        for session_id in evicted:
            self.remove(session_id)
        return True

    def _least_valuable(self, session: SessionT, now_ns: int) -> Iterator[SessionT]:
        """Yields the sessions that may have to leave for this one, in the order in which they would. All others are worth
        more."""
        others = [each for each in self._sessions.values() if each is not session]
        unused = list(takewhile(lambda each: now_ns - each.used_ns > PROTECTED_NS, others))
        yield from unused
        candidates = [
            each
            for each in others[len(unused) :]
            if (now_ns - each.created_ns > PROTECTED_NS or (session.is_follower and not each.is_follower))
            and _value(each) < _value(session)
        ]
        yield from sorted(candidates, key=_value)


def _value(session: Session) -> tuple[bool, int]:
    return session.is_follower, len(session)
