"""A pytest plugin for aiokafka's suite: answers for the fixtures that would start Kafka in a container.

The address of a running broker is in the environment variable BOOTSTRAP. What the suite needs besides a broker
(certificates, a Kerberos server, Kafka's scripts inside the container) is an object without attributes, so a test that
needs it fails.
"""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
from _pytest.fixtures import SubRequest

# Nobody listens there.
NO_PORT = 1


def _broker() -> SimpleNamespace:
    host, port = os.environ["BOOTSTRAP"].split(",")[0].rsplit(":", 1)
    return SimpleNamespace(
        host=host,
        port=int(port),
        ssl_port=NO_PORT,
        sasl_plain_port=NO_PORT,
        sasl_ssl_port=NO_PORT,
        container=None,
        hosts=[f"{host}:{port}"],
    )


def _pretend_docker() -> None:
    """The suite's conftest names a class of Docker's client, which need not be installed."""
    docker = ModuleType("docker")
    vars(docker)["models"] = SimpleNamespace(containers=SimpleNamespace(Container=object))
    sys.modules.setdefault("docker", docker)


_pretend_docker()

# What is not to be had. Not None, with which a hook says that it has no answer.
NOTHING = object()
ANSWERS: dict[str, object] = {
    "docker": NOTHING,
    "kafka_image": NOTHING,
    "kafka_server": _broker(),
    "ssl_folder": NOTHING,
    "acl_manager": NOTHING,
    "kafka_config": NOTHING,
    "kerberos_utils": NOTHING,
}


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: SubRequest) -> object | None:
    answer = ANSWERS.get(fixturedef.argname)
    if answer is not None:
        fixturedef.cached_result = (answer, fixturedef.cache_key(request), None)
    return answer
