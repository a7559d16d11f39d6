"""The broker states as the controller sees them, and the transition that a heartbeat makes (core).

Counterpart of BrokerControlState and calculateNextBrokerState of Kafka's BrokerHeartbeatManager. The transition is a pure
function of plain values, tested for every (state, request) pair.

Easy to get wrong: CONTROLLED_SHUTDOWN does not end when the broker's last leadership has moved. It ends when every other
active broker has *applied* that change. Until then, brokers may still send clients to the old leader.
"""

from dataclasses import dataclass
from enum import Enum

from common.metadata.registrations import BrokerRegistration


class BrokerControlState(Enum):
    """The states of a broker. SHUTDOWN_NOW is only the outcome of a heartbeat, never a current state: the broker is fenced
    and may exit."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerWish:
    """What a heartbeat asks for, and what the controller needs to know to grant it."""

    wants_fence: bool
    wants_shut_down: bool
    # Whether the broker has applied its own registration.
    is_caught_up: bool
    # Whether the broker still leads a partition outside the directories that this heartbeat reports as failed. Always False
    # for a broker that is not shutting down.
    leads_partitions: bool = False
    # Whether every other active broker has applied the records that moved leaderships away from this broker.
    is_shutdown_seen: bool = False
    # Whether this heartbeat named a directory id that this incarnation never registered.
    may_not_be_unfenced: bool = False
    # Whether this heartbeat reported the last online directory as failed.
    has_lost_everything: bool = False


def current_broker_state(registration: BrokerRegistration) -> BrokerControlState:
    """Returns the broker's state according to the metadata."""
    if registration.fenced:
        return BrokerControlState.FENCED
    return BrokerControlState.CONTROLLED_SHUTDOWN if registration.in_controlled_shutdown else BrokerControlState.UNFENCED


def calculate_next_broker_state(current: BrokerControlState, wish: BrokerWish) -> BrokerControlState:
    """Returns the state of the broker after a heartbeat with this `wish`."""
    if current is BrokerControlState.FENCED:
        return _next_after_fenced(wish)
    if current is BrokerControlState.CONTROLLED_SHUTDOWN:
        if not wish.leads_partitions and wish.is_shutdown_seen:
            return BrokerControlState.SHUTDOWN_NOW
        return BrokerControlState.FENCED if wish.has_lost_everything else BrokerControlState.CONTROLLED_SHUTDOWN
    if wish.wants_fence or wish.has_lost_everything:
        return BrokerControlState.SHUTDOWN_NOW if wish.wants_shut_down else BrokerControlState.FENCED
    if wish.wants_shut_down:
        return BrokerControlState.CONTROLLED_SHUTDOWN if wish.leads_partitions else BrokerControlState.SHUTDOWN_NOW
    return BrokerControlState.UNFENCED


def _next_after_fenced(wish: BrokerWish) -> BrokerControlState:
    if wish.wants_shut_down:
        return BrokerControlState.SHUTDOWN_NOW
    if wish.wants_fence or not wish.is_caught_up or wish.may_not_be_unfenced or wish.has_lost_everything:
        return BrokerControlState.FENCED
    return BrokerControlState.UNFENCED
