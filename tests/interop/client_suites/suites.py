"""How each suite is run: its tests, the cluster that it wants, and the plugin that gives it our brokers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.client_suites import sources

# The newest Kafka whose requests Diskraft knows in full. The suites choose and skip their tests by it.
KAFKA_VERSION = "4.3.0"

# What the suites' own brokers are configured with. Their members have sessions of seconds, and wait for no others to join.
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "2",
}


@dataclass(frozen=True, slots=True)
class Suite:
    """A client's suite. `tests` are below the folder that `find_source` returns, `in_ci` are those that CI has time for.
    `seconds_max` is for all of them."""

    name: str
    find_source: Callable[[], Path]
    plugin: str
    tests: tuple[str, ...]
    in_ci: tuple[str, ...]
    seconds_max: float
    broker: Mapping[str, str]
    brokers: int = 3
    options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """The suite's own settings of pytest."""


KAFKA_PYTHON = Suite(
    name="kafka-python",
    find_source=sources.kafka_python,
    plugin="kafka_python_broker",
    tests=("test/integration",),
    in_ci=("test/integration",),
    seconds_max=600,
    broker=BROKER | {"num.partitions": "4", "default.replication.factor": "3"},
    options=("-p", "no:asyncio"),
)

AIOKAFKA = Suite(
    name="aiokafka",
    find_source=sources.aiokafka,
    plugin="aiokafka_broker",
    tests=tuple(
        f"tests/test_{name}.py"
        for name in (
            "admin",
            "client",
            "conn",
            "consumer",
            "coordinator",
            "pep492",
            "producer",
            "sasl",
            "sender",
            "transactional_consumer",
            "transactional_producer",
        )
    ),
    in_ci=(
        "tests/test_admin.py",
        "tests/test_client.py",
        "tests/test_conn.py",
        "tests/test_pep492.py",
        "tests/test_producer.py",
    ),
    seconds_max=1200,
    # Some of its tests presume a single broker. Nor does another replica have to be waited for after a write with acks=1,
    # when a test reads the end of the log at once.
    broker=BROKER | {"num.partitions": "2"},
    brokers=1,
    options=("--docker-image", f"diskraft:2.13_{KAFKA_VERSION}"),
    settings={"asyncio_mode": "auto", "markers": "ssl: needs certificates"},
)

SUITES = {suite.name: suite for suite in (KAFKA_PYTHON, AIOKAFKA)}
