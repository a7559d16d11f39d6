"""When a broker whose process was stopped must catch up before it serves again. Until it has, its session is in doubt."""

from broker.core.lease import ABSENCE_MIN_NS, Lease
from common.time_units import NS_PER_S

SESSION = 9 * NS_PER_S


def running(lease: Lease, from_ns: int, to_ns: int) -> None:
    """Checks the lease as often as a process that keeps running does, so that the lease never comes into doubt."""
    for now_ns in range(from_ns, to_ns + 1, ABSENCE_MIN_NS // 4):
        lease.look(now_ns)


def test_a_stop_over_the_end_of_the_session_is_doubted() -> None:
    """The doubt ends once the broker has applied everything committed up to a time after the stop. The answer to a request
    from before the stop does not end it."""
    lease = Lease(SESSION)
    lease.renew(0)
    running(lease, 0, 5 * NS_PER_S)
    lease.look(12 * NS_PER_S)
    assert lease.doubted_since_ns == 12 * NS_PER_S
    assert lease.absence_ns == 7 * NS_PER_S
    lease.confirm(11 * NS_PER_S)
    assert lease.doubted_since_ns == 12 * NS_PER_S
    lease.confirm(12 * NS_PER_S)
    assert lease.doubted_since_ns is None


def test_a_stop_within_the_session_is_not() -> None:
    """If the stop ends within the session, the controller cannot have fenced this broker."""
    lease = Lease(SESSION)
    lease.renew(0)
    running(lease, 0, NS_PER_S)
    lease.look(9 * NS_PER_S)
    assert lease.doubted_since_ns is None


def test_a_broker_that_runs_without_a_controller_serves_on() -> None:
    """If the session ended while the process ran, only a stop that lasts as long as a whole session raises doubt."""
    lease = Lease(SESSION)
    lease.renew(0)
    running(lease, 0, 20 * NS_PER_S)
    lease.look(22 * NS_PER_S)
    assert lease.doubted_since_ns is None
    lease.look(31 * NS_PER_S)
    assert lease.doubted_since_ns == 31 * NS_PER_S


def test_a_second_stop_renews_the_doubt() -> None:
    """A request sent between two stops says nothing about the time of the second stop, so its answer does not end the
    doubt."""
    lease = Lease(SESSION)
    lease.renew(0)
    lease.look(0)
    lease.look(12 * NS_PER_S)
    lease.look(15 * NS_PER_S)
    lease.confirm(13 * NS_PER_S)
    assert lease.doubted_since_ns == 15 * NS_PER_S


def test_a_broker_that_was_never_unfenced_has_nothing_to_doubt() -> None:
    """A broker that was never unfenced leads nothing that could be in doubt."""
    lease = Lease(SESSION)
    lease.look(0)
    lease.look(100 * NS_PER_S)
    assert lease.doubted_since_ns is None
