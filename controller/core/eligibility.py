"""Which replicas may lead and be in the ISR (core; KIP-841 and KIP-858).

A replica is eligible when its broker is registered, not fenced, not in controlled shutdown, and the replica's directory is
online by `BrokerRegistration.has_online_directory`, the one rule for that. Easy to get wrong: an operation that changes a
registration must elect by the registration *as it will be*, or one heartbeat that unfences a broker and reports a failed
directory elects a leader on it; that is what `after` is for.
"""

from common.ids import BrokerId, DirectoryId
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState


class Eligibility:
    """The brokers as the state has them, with at most one seen as it will be once the operation's records are replayed."""

    __slots__ = ("_after", "_brokers", "_subject")

    def __init__(
        self, state: MetadataState, *, subject: BrokerId | None = None, after: BrokerRegistration | None = None
    ) -> None:
        """`after` is how the broker `subject` will be registered; None means that it will not be registered at all."""
        self._brokers = state.brokers
        self._subject = subject
        self._after = after

    def registration(self, broker_id: BrokerId) -> BrokerRegistration | None:
        return self._after if broker_id == self._subject else self._brokers.get(broker_id)

    def is_active(self, broker_id: BrokerId) -> bool:
        """Registered, unfenced and not on its way out."""
        registration = self.registration(broker_id)
        return registration is not None and not registration.fenced and not registration.in_controlled_shutdown

    def is_eligible(self, broker_id: BrokerId, directory_id: DirectoryId) -> bool:
        """Whether a replica in this directory of this broker may lead and be in the ISR."""
        registration = self.registration(broker_id)
        return (
            registration is not None
            and not registration.fenced
            and not registration.in_controlled_shutdown
            and registration.has_online_directory(directory_id)
        )
