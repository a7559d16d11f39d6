"""The container health check: is the node healthy (shell)?

A broker is healthy if it is running (not starting or recovering). One that the controller has fenced since then stays
healthy: a restart would not help it, and without a controller it would hit all brokers. Besides, every node must have
published its metrics recently, which shows that its event loop runs. The broker's state and the age of the metrics are read
from the Prometheus endpoint. Without a Prometheus listener, a port that accepts connections is enough. The check runs every
few seconds in every container, so it imports as little as possible.
"""

import re
import socket
import sys

FINAL_FILE = "/opt/kafka/config/server.properties"
TIMEOUT_SECONDS = 3.0
AGE_SECONDS_MAX = 20.0
BROKER_RUNNING = 3.0


def main(path: str = FINAL_FILE) -> int:
    """Returns 0 if the node is healthy. Otherwise prints one line with the problem and returns 1."""
    problem = find_problem(path)
    if problem is None:
        return 0
    print(problem)
    return 1


def find_problem(path: str) -> str | None:
    """Returns the problem of the node with this configuration in one line, or None."""
    try:
        properties = _read(path)
        metrics = properties.get("diskraft.prometheus.listener")
        if metrics is None:
            with _connected(_first_listener(properties)):
                return None
        return judge(_scrape(metrics), is_broker="broker" in properties.get("process.roles", ""))
    except (OSError, ValueError) as error:
        return f"the node does not answer: {error}"


def judge(exposition: str, *, is_broker: bool) -> str | None:
    """Returns the problem that a node's metrics show, or None."""
    age = _value(exposition, "diskraft_metrics_snapshot_age_seconds")
    if age is None or age > AGE_SECONDS_MAX:
        return f"the node's event loop has not published metrics for {age} s"
    if not is_broker:
        return None
    state = _value(exposition, "kafka_server_kafkaserver_brokerstate")
    return None if state == BROKER_RUNNING else f"the broker is in state {state}, not running ({BROKER_RUNNING:g})"


def _read(path: str) -> dict[str, str]:
    # docker_run wrote this file: one key=value per line, with backslashes only before colons and the like.
    with open(path, encoding="utf-8") as lines:
        pairs = (line.rstrip("\n").partition("=") for line in lines if not line.startswith("#"))
        return {key: value.replace("\\", "") for key, _, value in pairs}


def _first_listener(properties: dict[str, str]) -> str:
    return properties.get("listeners", "PLAINTEXT://127.0.0.1:9092").split(",")[0].partition("://")[2]


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if host in ("", "0.0.0.0", "[::]"):
        host = "127.0.0.1"
    return socket.create_connection((host.strip("[]"), int(port)), timeout=TIMEOUT_SECONDS)


def _scrape(address: str) -> str:
    with _connected(address) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        chunks = []
        while chunk := connection.recv(1 << 16):
            chunks.append(chunk)
    return b"".join(chunks).decode()


def _value(exposition: str, name: str) -> float | None:
    found = re.search(rf"^{name} (\S+)$", exposition, re.MULTILINE)
    return float(found[1]) if found else None


if __name__ == "__main__":
    sys.exit(main())
