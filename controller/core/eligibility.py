"""Decides which replicas may lead and be in the ISR (core; KIP-841 and KIP-858).

A replica is eligible if its broker is registered, not fenced and not in controlled shutdown, and its directory is online
according to `BrokerRegistration.has_online_directory`, the only place that decides this. An operation that changes a
registration must elect by the registration *as it will be*, passed as `after`. Otherwise a heartbeat that unfences a broker
and reports a failed directory would elect a leader on that directory.
"""

from common.ids import BrokerId, DirectoryId
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState


class Eligibility:
    """Decides from the brokers' registrations whether replicas are eligible. For one broker, `subject`, the registration as
    it will be after the operation can be used instead of the current one."""

    __slots__ = ("_after", "_brokers", "_subject")

    def __init__(
        self, state: MetadataState, *, subject: BrokerId | None = None, after: BrokerRegistration | None = None
    ) -> None:
        """`after` is the future registration of the broker `subject`; None means that it will be unregistered."""
        self._brokers = state.brokers
        self._subject = subject
        self._after = after

    def registration(self, broker_id: BrokerId) -> BrokerRegistration | None:
        return self._after if broker_id == self._subject else self._brokers.get(broker_id)

    def is_active(self, broker_id: BrokerId) -> bool:
        """Whether the broker is registered, unfenced and not in controlled shutdown."""
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
