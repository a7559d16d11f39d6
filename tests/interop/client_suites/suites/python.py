"""The suites of the clients for Python."""

from tests.interop.client_suites import sources
from tests.interop.client_suites.pytest_runner import KAFKA_VERSION, PytestRunner
from tests.interop.client_suites.suites.suite import BROKER, Suite

KAFKA_PYTHON = Suite(
    name="kafka-python",
    runner=PytestRunner(sources.kafka_python, "test", plugin="kafka_python_broker", options=("-p", "no:asyncio")),
    tests=("test/integration",),
    in_ci=("test/integration",),
    seconds_max=600,
    broker=BROKER | {"num.partitions": "4", "default.replication.factor": "3"},
)

AIOKAFKA = Suite(
    name="aiokafka",
    runner=PytestRunner(
        sources.aiokafka,
        "tests",
        plugin="aiokafka_broker",
        options=("--docker-image", f"diskraft:2.13_{KAFKA_VERSION}"),
        settings={"asyncio_mode": "auto", "markers": "ssl: needs certificates"},
    ),
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
)
