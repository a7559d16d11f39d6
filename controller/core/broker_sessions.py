"""Tracks each broker's last contact and how far the broker has applied the metadata (core).

Counterpart of Kafka's BrokerHeartbeatManager. This is soft state: never written to the log, never rebuilt from it, and
dropped when the controller loses leadership. A new active controller gives every unfenced broker one full session. A broker
that stays silent is fenced when that session expires. Silence before this controller became active does not count.

The metadata decides whether a broker is fenced, not its session. A fenced broker may have a session here, but the expiry of
that session has no consequences.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from common.ids import BrokerId, DirectoryId, Offset

NO_OFFSET = Offset(-1)


@dataclass(slots=True)
class BrokerSession:
    """One broker's soft state. Invariant: the session belongs to the broker's current incarnation; a new incarnation starts
    without a session."""

    # The time of the broker's last heartbeat, or the start of this controller's term if none has arrived yet. The session
    # expires one session timeout later. Invariant: never in the future, never decreases. Changed by heartbeats and by
    # `excuse`.
    last_contact_ns: int
    # The last metadata offset that the broker reports as applied; NO_OFFSET until its first heartbeat to this controller.
    # Changed by every heartbeat.
    metadata_offset: Offset = NO_OFFSET
    # The other active brokers must have applied the metadata up to this offset before this broker may exit: the offset
    # covers the records that moved leaderships away from the broker. Set when controlled shutdown begins, raised when a
    # later heartbeat writes more records. None outside controlled shutdown; also None between a change of controller and the
    # next heartbeat.
    controlled_shutdown_offset: Offset | None = None
    # What the broker asked for when there was nothing to change in any partition, and the state's `election_changes` then. A
    # lost directory, or None for the controlled shutdown.
    settled: dict[DirectoryId | None, int] = field(default_factory=dict)


class BrokerSessions:
    """The sessions of all brokers that were unfenced when this controller became active or have sent it a heartbeat."""

    def __init__(self, session_timeout_ns: int) -> None:
        # How long a broker may be silent before its session expires. Constant.
        self._session_timeout_ns = session_timeout_ns
        # One session per broker. A broker without an entry counts as expired. Entries are added by `begin` and by a broker's
        # first heartbeat, and removed only when the broker is unregistered or replaced by a new incarnation; expired
        # sessions stay.
        self._sessions: dict[BrokerId, BrokerSession] = {}

    def begin(self, broker_ids: Iterable[BrokerId], now_ns: int) -> None:
        """Starts a full session for each of these brokers. Called when this controller becomes active."""
        for broker_id in broker_ids:
            self._sessions[broker_id] = BrokerSession(now_ns)

    def touch(self, broker_id: BrokerId, metadata_offset: Offset, now_ns: int) -> None:
        """Renews the session. Called for every heartbeat, even one that timed out in the event queue."""
        session = self._sessions.get(broker_id)
        if session is None:
            self._sessions[broker_id] = BrokerSession(now_ns, metadata_offset)
        else:
            session.last_contact_ns = now_ns
            session.metadata_offset = metadata_offset

    def excuse(self, duration_ns: int, now_ns: int) -> None:
        """Extends all sessions by the time for which this controller's own event loop did not run."""
        for session in self._sessions.values():
            # `min` keeps the last contact from lying in the future if a heartbeat arrived after the event loop resumed.
            session.last_contact_ns = min(session.last_contact_ns + duration_ns, now_ns)

    def remove(self, broker_id: BrokerId) -> None:
        """Forgets the broker, because it was unregistered or a new incarnation replaces it."""
        self._sessions.pop(broker_id, None)

    def is_valid(self, broker_id: BrokerId, now_ns: int) -> bool:
        """Whether the broker's last contact is within the session timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and now_ns < session.last_contact_ns + self._session_timeout_ns

    def metadata_offset(self, broker_id: BrokerId) -> Offset:
        session = self._sessions.get(broker_id)
        return NO_OFFSET if session is None else session.metadata_offset

    def controlled_shutdown_offset(self, broker_id: BrokerId) -> Offset | None:
        session = self._sessions.get(broker_id)
        return None if session is None else session.controlled_shutdown_offset

    def set_controlled_shutdown_offset(self, broker_id: BrokerId, offset: Offset | None) -> None:
        """Sets the broker's `controlled_shutdown_offset`. None clears it when controlled shutdown ends, for example when the
        broker is fenced."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.controlled_shutdown_offset = offset

    def is_settled(self, broker_id: BrokerId, what: DirectoryId | None, election_changes: int) -> bool:
        """Whether nothing has changed since there was nothing to change. `what` is a lost directory, or None for the
        controlled shutdown."""
        session = self._sessions.get(broker_id)
        return session is not None and session.settled.get(what) == election_changes

    def note_settled(self, broker_id: BrokerId, what: DirectoryId | None, election_changes: int) -> None:
        """Notes that there is nothing to change in any partition."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.settled[what] = election_changes

    def longest_silent(self, broker_ids: Iterable[BrokerId], now_ns: int) -> BrokerId | None:
        """Returns the broker whose session expired first (the lowest id if several expired at the same time). None if all
        sessions are valid."""
        expired = [
            (self._last_contact_ns(broker_id), broker_id) for broker_id in broker_ids if not self.is_valid(broker_id, now_ns)
        ]
        return min(expired)[1] if expired else None

    def next_expiry_ns(self, broker_ids: Iterable[BrokerId], now_ns: int) -> int:
        """Returns when the first of these brokers' sessions expires if no more heartbeats arrive; one session timeout from
        now if no broker is given."""
        contacts = [self._last_contact_ns(broker_id) for broker_id in broker_ids]
        return min(contacts, default=now_ns) + self._session_timeout_ns

    def _last_contact_ns(self, broker_id: BrokerId) -> int:
        session = self._sessions.get(broker_id)
        # A broker without a session counts as expired. Otherwise such a broker could stay unfenced without ever sending a
        # heartbeat.
        return -self._session_timeout_ns if session is None else session.last_contact_ns
