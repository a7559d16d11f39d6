"""A node is healthy if its event loop publishes metrics and, for a broker, if the broker is running."""

import socket
import threading
from pathlib import Path

import javaproperties
import pytest

from tools.node.docker_health import find_problem, judge

FRESH = "diskraft_metrics_snapshot_age_seconds 0.5\n"


@pytest.mark.parametrize(
    ("exposition", "is_broker", "problem"),
    [
        (FRESH, False, None),
        (FRESH + "kafka_server_kafkaserver_brokerstate 3.0\n", True, None),
        (FRESH + "kafka_server_kafkaserver_brokerstate 2.0\n", True, "the broker is in state 2.0, not running (3)"),
        (FRESH, True, "the broker is in state None, not running (3)"),
        (
            "diskraft_metrics_snapshot_age_seconds 60.0\n",
            False,
            "the node's event loop has not published metrics for 60.0 s",
        ),
        ("", False, "the node's event loop has not published metrics for None s"),
    ],
)
def test_every_state_of_a_node_is_judged(exposition: str, is_broker: bool, problem: str | None) -> None:
    """Checks which problem, if any, the health check reports for each state of a node."""
    assert judge(exposition, is_broker=is_broker) == problem


def configuration(folder: Path, **properties: str) -> str:
    """Writes a file as docker_run does, with escaped colons. Returns its path."""
    path = folder / "server.properties"
    lines = {key.replace("_", "."): value for key, value in properties.items()}
    path.write_text(javaproperties.dumps(lines, timestamp=False))
    return str(path)


@pytest.mark.parametrize(("listens_on", "host"), [("127.0.0.1", "0.0.0.0"), ("::1", "[::1]")])
def test_the_metrics_of_the_configured_listener_are_asked(tmp_path: Path, listens_on: str, host: str) -> None:
    """A server that answers once stands in for the node. A listener on 0.0.0.0 is reached over loopback."""
    family = socket.AF_INET6 if ":" in listens_on else socket.AF_INET
    with socket.create_server((listens_on, 0), family=family) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                body = FRESH + "kafka_server_kafkaserver_brokerstate 3.0\n"
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + body.encode())

        thread = threading.Thread(target=answer)
        thread.start()
        port = server.getsockname()[1]
        path = configuration(tmp_path, process_roles="broker", diskraft_prometheus_listener=f"{host}:{port}")
        assert find_problem(path) is None
        thread.join()


def test_without_metrics_an_open_port_is_enough(tmp_path: Path) -> None:
    """The node is healthy if the port of its first listener is open. A closed port is a problem."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        path = configuration(tmp_path, process_roles="broker", listeners=f"PLAINTEXT://:{port},OTHER://:1")
        assert find_problem(path) is None
    assert str(find_problem(path)).startswith("the node does not answer: ")


def test_before_the_node_is_configured_it_is_not_healthy(tmp_path: Path) -> None:
    """The configuration file is written when the node starts. Until then the health check fails."""
    assert str(find_problem(str(tmp_path / "absent"))).startswith("the node does not answer: ")
