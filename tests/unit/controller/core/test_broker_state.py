"""The state transition of a heartbeat, for every state and every request."""

from itertools import product

import pytest

from controller.core.broker_state import BrokerControlState, BrokerWish, calculate_next_broker_state

FENCED = BrokerControlState.FENCED
UNFENCED = BrokerControlState.UNFENCED
LEAVING = BrokerControlState.CONTROLLED_SHUTDOWN
NOW = BrokerControlState.SHUTDOWN_NOW

# For each present state: (wants fence, wants shut down, caught up, leads) -> next state.
# All rows assume that the other brokers have seen the shutdown.
TABLE = {
    FENCED: {
        (False, False, False, False): FENCED,
        (False, False, False, True): FENCED,
        (False, False, True, False): UNFENCED,
        (False, False, True, True): UNFENCED,
        (False, True, False, False): NOW,
        (False, True, False, True): NOW,
        (False, True, True, False): NOW,
        (False, True, True, True): NOW,
        (True, False, False, False): FENCED,
        (True, False, False, True): FENCED,
        (True, False, True, False): FENCED,
        (True, False, True, True): FENCED,
        (True, True, False, False): NOW,
        (True, True, False, True): NOW,
        (True, True, True, False): NOW,
        (True, True, True, True): NOW,
    },
    UNFENCED: {
        (False, False, False, False): UNFENCED,
        (False, False, False, True): UNFENCED,
        (False, False, True, False): UNFENCED,
        (False, False, True, True): UNFENCED,
        (False, True, False, False): NOW,
        (False, True, False, True): LEAVING,
        (False, True, True, False): NOW,
        (False, True, True, True): LEAVING,
        (True, False, False, False): FENCED,
        (True, False, False, True): FENCED,
        (True, False, True, False): FENCED,
        (True, False, True, True): FENCED,
        (True, True, False, False): NOW,
        (True, True, False, True): NOW,
        (True, True, True, False): NOW,
        (True, True, True, True): NOW,
    },
    LEAVING: {
        (fence, shut_down, caught_up, leads): LEAVING if leads else NOW
        for fence, shut_down, caught_up, leads in product((False, True), repeat=4)
    },
}


@pytest.mark.parametrize(
    ("current", "asked", "expected"),
    [(current, asked, following) for current, row in TABLE.items() for asked, following in row.items()],
)
def test_every_state_and_request(
    current: BrokerControlState, asked: tuple[bool, bool, bool, bool], expected: BrokerControlState
) -> None:
    """Each of the 48 combinations of state and request has exactly the next state written down above."""
    fence, shut_down, caught_up, leads = asked
    wish = BrokerWish(
        wants_fence=fence,
        wants_shut_down=shut_down,
        is_caught_up=caught_up,
        leads_partitions=leads,
        is_shutdown_seen=True,
    )
    assert calculate_next_broker_state(current, wish) is expected


def test_controlled_shutdown_waits_until_the_others_have_seen_it() -> None:
    """A broker in controlled shutdown that leads nothing any more still waits until the active brokers have applied the
    records that moved its leaderships."""
    wish = BrokerWish(wants_fence=False, wants_shut_down=True, is_caught_up=True, is_shutdown_seen=False)
    assert calculate_next_broker_state(LEAVING, wish) is LEAVING


@pytest.mark.parametrize("shut_down", [False, True])
@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("current", [FENCED, UNFENCED, LEAVING])
def test_a_broker_without_directories_is_never_unfenced(current: BrokerControlState, leads: bool, shut_down: bool) -> None:
    """A broker that lost its last directory is fenced after the heartbeat, whatever it asks for."""
    wish = BrokerWish(
        wants_fence=False,
        wants_shut_down=shut_down,
        is_caught_up=True,
        leads_partitions=leads,
        has_lost_everything=True,
    )
    assert calculate_next_broker_state(current, wish).is_fenced


def test_an_unknown_directory_keeps_a_broker_fenced_and_fences_none() -> None:
    """An unknown id prevents unfencing, but does not fence an unfenced broker."""
    wish = BrokerWish(wants_fence=False, wants_shut_down=False, is_caught_up=True, may_not_be_unfenced=True)
    assert calculate_next_broker_state(FENCED, wish) is FENCED
    assert calculate_next_broker_state(UNFENCED, wish) is UNFENCED
