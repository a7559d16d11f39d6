"""Broker sessions: which are valid, which expires first, and how long they last under a new active controller."""

from common.ids import BrokerId, Offset
from controller.core.broker_sessions import NO_OFFSET, BrokerSessions

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def test_a_session_lasts_for_the_timeout_after_the_last_contact() -> None:
    """A session is valid until just before the timeout, and expired exactly at the timeout."""
    sessions = BrokerSessions(100)
    sessions.touch(ONE, Offset(5), 1_000)
    assert sessions.is_valid(ONE, 1_099)
    assert not sessions.is_valid(ONE, 1_100)
    sessions.touch(ONE, Offset(6), 1_050)
    assert sessions.is_valid(ONE, 1_100)
    assert sessions.metadata_offset(ONE) == 6


def test_a_new_active_controller_gives_every_unfenced_broker_a_full_session() -> None:
    """The time before the new controller was active does not count. All sessions expire one timeout later if no heartbeat
    arrives."""
    sessions = BrokerSessions(100)
    sessions.begin([ONE, TWO], 5_000)
    assert sessions.longest_silent([ONE, TWO], 5_099) is None
    assert sessions.longest_silent([ONE, TWO], 5_100) == ONE
    assert sessions.metadata_offset(ONE) == NO_OFFSET


def test_the_longest_silent_broker_comes_first() -> None:
    """Brokers are returned in order of expiry. If two expire at the same time, the lower id comes first."""
    sessions = BrokerSessions(100)
    sessions.touch(THREE, Offset(0), 10)
    sessions.touch(TWO, Offset(0), 20)
    sessions.touch(ONE, Offset(0), 20)
    assert sessions.longest_silent([ONE, TWO, THREE], 130) == THREE
    assert sessions.longest_silent([ONE, TWO], 130) == ONE
    assert sessions.longest_silent([], 130) is None


def test_an_unfenced_broker_without_a_session_counts_as_expired() -> None:
    """Otherwise a broker that never sent a heartbeat could stay unfenced."""
    sessions = BrokerSessions(100)
    assert sessions.longest_silent([ONE], 0) == ONE
    assert not sessions.is_valid(ONE, 0)


def test_the_controllers_own_absence_is_no_silence_of_the_brokers() -> None:
    """The controller was stopped for 500 ns. Broker 1's last heartbeat came before the stop, so its session is extended by
    500 ns. Broker 2 has sent a heartbeat since, so its session lasts at most one timeout from now."""
    sessions = BrokerSessions(100)
    sessions.touch(ONE, Offset(0), 40)
    sessions.touch(TWO, Offset(0), 560)
    sessions.excuse(500, 570)
    assert sessions.is_valid(ONE, 639)
    assert not sessions.is_valid(ONE, 640)
    assert not sessions.is_valid(TWO, 670)


def test_next_expiry_is_the_earliest_end_of_a_session() -> None:
    """The shell sleeps until this time, when the next broker may have to be fenced."""
    sessions = BrokerSessions(100)
    assert sessions.next_expiry_ns([], 50) == 150
    sessions.touch(ONE, Offset(0), 40)
    sessions.touch(TWO, Offset(0), 30)
    assert sessions.next_expiry_ns([ONE, TWO], 50) == 130
    sessions.remove(TWO)
    assert sessions.next_expiry_ns([ONE], 50) == 140


def test_the_controlled_shutdown_offset_goes_with_the_session() -> None:
    """The offset is set and cleared for a broker with a session, and ignored for an unknown broker."""
    sessions = BrokerSessions(100)
    sessions.set_controlled_shutdown_offset(ONE, Offset(7))
    assert sessions.controlled_shutdown_offset(ONE) is None
    sessions.touch(ONE, Offset(0), 0)
    sessions.set_controlled_shutdown_offset(ONE, Offset(7))
    assert sessions.controlled_shutdown_offset(ONE) == 7
    sessions.set_controlled_shutdown_offset(ONE, None)
    assert sessions.controlled_shutdown_offset(ONE) is None
