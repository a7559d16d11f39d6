"""Whether the node of a container is healthy, for the container runtime (shell).

Healthy is a broker that is running (not starting, fenced or recovering), and a node whose loop published its metrics a
moment ago; both stand in what the node shows Prometheus. Without a Prometheus listener it is a port that accepts. Easy to
get wrong: this runs every few seconds in every container, so it imports next to nothing.
"""

import re
import socket
import sys

FINAL_FILE = "/opt/kafka/config/server.properties"
TIMEOUT_SECONDS = 3.0
AGE_SECONDS_MAX = 20.0
BROKER_RUNNING = 3.0


def main(path: str = FINAL_FILE) -> int:
    """0 when the node is healthy; else 1 and one line that says what is wrong."""
    problem = find_problem(path)
    if problem is None:
        return 0
    print(problem)
    return 1


def find_problem(path: str) -> str | None:
    """What is wrong with the node whose configuration this is, in one line."""
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
    """What is wrong with the node that exposes this."""
    age = _value(exposition, "diskraft_metrics_snapshot_age_seconds")
    if age is None or age > AGE_SECONDS_MAX:
        return f"the node's loop has not reported for {age} s"
    if not is_broker:
        return None
    state = _value(exposition, "kafka_server_kafkaserver_brokerstate")
    return None if state == BROKER_RUNNING else f"the broker is in state {state}, not running ({BROKER_RUNNING:g})"


def _read(path: str) -> dict[str, str]:
    # The file was written by docker_run: one key=value a line, where only colons and the like carry a backslash.
    with open(path, encoding="utf-8") as lines:
        pairs = (line.rstrip("\n").partition("=") for line in lines if not line.startswith("#"))
        return {key: value.replace("\\", "") for key, _, value in pairs}


def _first_listener(properties: dict[str, str]) -> str:
    return properties.get("listeners", "PLAINTEXT://127.0.0.1:9092").split(",")[0].partition("://")[2]


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if host in ("", "0.0.0.0", "[::]"):
        host = "127.0.0.1"
    return socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS)


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
