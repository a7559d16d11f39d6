"""A pytest plugin for kafka-python's suite, which can use a broker that is there already (KAFKA_URI).

It supplies `test.service`, a module that starts Kafka and is missing from the published source. It also gives the suite's
topics three replicas, where the suite's own cluster of one broker has room for one.
"""

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPLICAS = 3
# Adds partitions to its topic on broker 0 alone, and all partitions of a topic have equally many replicas.
ONE_REPLICA = ("test_create_partitions",)


class ExternalService:
    """The broker that is there. It was started before the suite and ends after it."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def open(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""

    def dump_logs(self) -> None:
        """The runner keeps the brokers' logs."""


class SpawnedService:
    """A broker that the suite starts itself, with TLS or SASL: not to be had."""

    def __init__(self, *_: object, **__: object) -> None:
        raise NotImplementedError("Diskraft has neither TLS nor SASL yet")


def _name_modules() -> None:
    """Makes `test` the suite's package. Otherwise it would be the one of Python's standard library."""
    package, service = ModuleType("test"), ModuleType("test.service")
    package.__path__ = [str(Path(os.environ["PROJECT_ROOT"]) / "test")]
    vars(service).update(ExternalService=ExternalService, SpawnedService=SpawnedService)
    sys.modules.update({"test": package, "test.service": service})


_name_modules()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> None:
    if fixturedef.argname == "topic":
        request.getfixturevalue("kafka_broker").replicas = 1 if request.node.name in ONE_REPLICA else REPLICAS
