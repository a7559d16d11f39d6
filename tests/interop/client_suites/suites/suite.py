"""What there is to know about a suite: its tests, the cluster that it wants, and what runs it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.interop.client_suites.runner import Runner

# What the suites' own brokers are configured with. Their members have sessions of seconds, and wait for no others to join.
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "2",
}


@dataclass(frozen=True, slots=True)
class Suite:
    """A client's suite. `in_ci` are the tests that CI has time for. `seconds_max` is for all of them. `brokers` is 0 if each
    test has a cluster of its own. `ports` are those of localhost at which the tests look for the brokers, if they cannot be
    told others. `has_racks`: each broker is in a rack of its own. With `in_containers` the tests expect what `containers`
    has."""

    name: str
    runner: Runner
    tests: tuple[str, ...]
    in_ci: tuple[str, ...]
    seconds_max: float
    broker: Mapping[str, str] = field(default_factory=dict)
    brokers: int = 3
    first_node_id: int = 0
    ports: tuple[int, ...] = ()
    has_racks: bool = False
    in_containers: bool = False
