"""KnownNodes: which address a request is sent to, and when the metadata is fetched again."""

import random
from functools import partial
from operator import eq

from admin.known_nodes import METADATA_AGE_MAX_NS, KnownNodes, Role
from common.configuration.endpoints import HostPort

BOOT, OTHER_BOOT = HostPort("boot", 1), HostPort("boot", 2)
ONE, TWO, THREE = HostPort("b", 1), HostPort("b", 2), HostPort("b", 3)


def nodes() -> KnownNodes:
    known = KnownNodes([BOOT, OTHER_BOOT], random.Random(1))
    known.replace({1: ONE, 2: TWO, 3: THREE}, controller_id=2, source=BOOT, now_ns=0)
    return known


def nobody(_address: HostPort) -> bool:
    return False


def test_a_broker_and_the_controller_have_their_addresses() -> None:
    """An unknown broker has no address. The controller has none either while the metadata names no controller."""
    known = nodes()
    assert known.address_of(3, nobody) == THREE
    assert known.address_of(Role.CONTROLLER, nobody) == TWO
    assert known.address_of(9, nobody) is None
    known.replace({1: ONE}, controller_id=-1, source=BOOT, now_ns=0)
    assert known.address_of(Role.CONTROLLER, nobody) is None


def test_any_broker_is_drawn_at_random() -> None:
    """Without connections and failures, each broker may be drawn. Bootstrap servers are not drawn, since the brokers are
    known."""
    known = nodes()
    assert {known.address_of(Role.ANY_BROKER, nobody) for _ in range(50)} == {ONE, TWO, THREE}


def test_a_live_connection_is_preferred_to_a_new_one() -> None:
    """A connection to a bootstrap server also counts, because a bootstrap server is a broker too."""
    known = nodes()
    for connected in (TWO, BOOT):
        assert {known.address_of(Role.ANY_BROKER, partial(eq, connected)) for _ in range(20)} == {connected}


def test_the_source_of_the_metadata_is_preferred_to_other_connections() -> None:
    """A change that a program has just made is visible at once at the broker to which it sent the change, and only later at
    the others. So the client should stay with one broker."""
    known = nodes()
    assert {known.address_of(Role.ANY_BROKER, lambda _: True) for _ in range(20)} == {BOOT}
    known.note_failure(BOOT)
    assert BOOT not in {known.address_of(Role.ANY_BROKER, lambda _: True) for _ in range(20)}


def test_brokers_that_failed_come_last() -> None:
    """Brokers with fewer consecutive failures come first. A success resets the count."""
    known = nodes()
    assert known.note_failure(ONE)
    assert not known.note_failure(ONE)
    known.note_failure(TWO)
    assert known.to_ask(nobody) == [THREE, TWO, ONE, BOOT, OTHER_BOOT]
    known.note_success(ONE)
    known.note_failure(THREE)
    known.note_failure(THREE)
    assert known.to_ask(nobody) == [ONE, TWO, THREE, BOOT, OTHER_BOOT]


def test_without_metadata_only_the_bootstrap_servers_are_asked() -> None:
    """The bootstrap servers are asked in the order in which they were given."""
    known = KnownNodes([BOOT, OTHER_BOOT], random.Random(1))
    assert known.needs_metadata(0)
    assert known.to_ask(nobody) == [BOOT, OTHER_BOOT]
    assert known.address_of(1, nobody) is None


def test_metadata_is_fetched_again_when_it_is_old_or_distrusted() -> None:
    """After a failed attempt the metadata is not trusted any more, because the broker may have left the cluster."""
    known = nodes()
    assert not known.needs_metadata(METADATA_AGE_MAX_NS - 1)
    assert known.needs_metadata(METADATA_AGE_MAX_NS)
    known.note_failure(ONE)
    assert known.needs_metadata(1)
    known.replace({}, controller_id=-1, source=BOOT, now_ns=1)
    assert not known.needs_metadata(2)
    known.distrust()
    assert known.needs_metadata(2)
