"""When each broker was last heard of, and how far it has applied the metadata (core).

Answers to Kafka's BrokerHeartbeatManager. Soft state: never written, never rebuilt from the log, thrown away on losing
leadership. A new active controller gives every unfenced broker one full session, so that one which never comes back is
fenced after it and none is fenced for the time nobody listened. Easy to get wrong: a fenced broker has no session to lose;
who is fenced says the metadata, not this object.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from common.ids import BrokerId, Offset

NO_OFFSET = Offset(-1)


@dataclass(slots=True)
class BrokerSession:
    """One broker's soft state."""

    last_contact_ns: int
    # What the broker has applied, by its own account; -1 until this controller heard of it.
    metadata_offset: Offset = NO_OFFSET
    # The end of the records that moved its leaderships away. The other brokers must reach it before it may shut down.
    controlled_shutdown_offset: Offset | None = None


class BrokerSessions:
    """The sessions of all brokers, in the order in which they were first heard of."""

    def __init__(self, session_timeout_ns: int) -> None:
        self._session_timeout_ns = session_timeout_ns
        self._sessions: dict[BrokerId, BrokerSession] = {}

    def begin(self, broker_ids: Iterable[BrokerId], now_ns: int) -> None:
        """A full session for each of these: this controller has just become the active one."""
        for broker_id in broker_ids:
            self._sessions[broker_id] = BrokerSession(now_ns)

    def touch(self, broker_id: BrokerId, metadata_offset: Offset, now_ns: int) -> None:
        """The broker was heard of."""
        session = self._sessions.get(broker_id)
        if session is None:
            self._sessions[broker_id] = BrokerSession(now_ns, metadata_offset)
        else:
            session.last_contact_ns = now_ns
            session.metadata_offset = metadata_offset

    def excuse(self, duration_ns: int, now_ns: int) -> None:
        """This controller itself was not there for so long: nobody's silence in that time counts."""
        for session in self._sessions.values():
            # Whoever was heard of since has no silence to be excused for, and gets no longer session by it.
            session.last_contact_ns = min(session.last_contact_ns + duration_ns, now_ns)

    def remove(self, broker_id: BrokerId) -> None:
        """Forgets the broker: it is unregistered, or another incarnation takes its place."""
        self._sessions.pop(broker_id, None)

    def is_valid(self, broker_id: BrokerId, now_ns: int) -> bool:
        """Whether the broker was heard of within the session timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ns < session.last_contact_ns + self._session_timeout_ns

    def metadata_offset(self, broker_id: BrokerId) -> Offset:
        session = self._sessions.get(broker_id)
        return NO_OFFSET if session is None else session.metadata_offset

    def controlled_shutdown_offset(self, broker_id: BrokerId) -> Offset | None:
        session = self._sessions.get(broker_id)
        return None if session is None else session.controlled_shutdown_offset

    def set_controlled_shutdown_offset(self, broker_id: BrokerId, offset: Offset | None) -> None:
        """`None` when the broker is out of controlled shutdown again, which fencing does."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.controlled_shutdown_offset = offset

    def longest_silent(self, broker_ids: Iterable[BrokerId], now_ns: int) -> BrokerId | None:
        """Of these brokers the one whose session expired first, the lowest id among equals; None if all are alive."""
        expired = [
            (self._last_contact_ns(broker_id), broker_id) for broker_id in broker_ids if not self.is_valid(broker_id, now_ns)
        ]
        return min(expired)[1] if expired else None

    def next_expiry_ns(self, broker_ids: Iterable[BrokerId], now_ns: int) -> int:
        """When the first of these sessions expires if nobody is heard of; a session from now where there are none."""
        contacts = [self._last_contact_ns(broker_id) for broker_id in broker_ids]
        return min(contacts, default=now_ns) + self._session_timeout_ns

    def _last_contact_ns(self, broker_id: BrokerId) -> int:
        session = self._sessions.get(broker_id)
        # Never heard of counts as expired, not as fresh: an unfenced broker may not stay so without a session.
        return -self._session_timeout_ns if session is None else session.last_contact_ns
