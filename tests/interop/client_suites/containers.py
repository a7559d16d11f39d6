"""What a suite expects of docker compose beside the brokers: Toxiproxy before each of them, and a `docker` that stops and
starts them.

`python -m tests.interop.client_suites.containers FOLDER compose stop kafka-2` is that `docker`, for a cluster in a folder.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.interop.client_suites.runner import NoSource, SuiteFailed
from tests.interop.clients.interface import NotHere
from tests.interop.clients.programs import build_with_go
from tests.interop.our_tools import ROOT
from tools.lab.local_cluster import LocalCluster, LocalNode, free_ports

TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
BIN = ROOT / "build" / "client-suites" / "toxiproxy-2.12.0"
START_SECONDS_MAX = 30
POLL_SECONDS = 0.05
SERVICE = "kafka-"


@contextmanager
def toxiproxy(folder: Path, upstreams: Mapping[int, tuple[int, int]]) -> Iterator[str]:
    """Runs Toxiproxy and yields its URL. `upstreams` has by the broker's id the port at which its proxy kafkaN listens, and
    the port that it connects to. Raises NoSource and SuiteFailed."""
    try:
        build_with_go("install", TOXIPROXY, GOBIN=str(BIN))
    except NotHere as error:
        raise NoSource(str(error)) from error
    proxies = [
        {"name": f"kafka{number}", "listen": f"127.0.0.1:{port}", "upstream": f"127.0.0.1:{behind}", "enabled": True}
        for number, (port, behind) in upstreams.items()
    ]
    config = folder / "toxiproxy.json"
    config.write_text(json.dumps(proxies))
    (port,) = free_ports(1)
    command = [str(BIN / "server"), "-host", "127.0.0.1", "-port", str(port), "-config", str(config)]
    with config.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        _wait_until_listening(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_until_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(POLL_SECONDS)
    raise SuiteFailed("Toxiproxy does not listen")


def write_docker(path: Path, cluster: Path) -> None:
    """Writes a program that calls `main`."""
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m {__spec__.name} "{cluster}" "$@"\n')
    path.chmod(0o755)


def main() -> None:
    folder, *asked = sys.argv[1:]
    match asked:
        case ["compose", "stop", service]:
            _broker(folder, service).stop()
        case ["compose", "start", service]:
            broker = _broker(folder, service)
            if broker.pid is None:
                broker.start()
                broker.wait_for("broker_running")
        case _:
            sys.exit(f"this docker cannot {' '.join(asked)}")


def _broker(folder: str, service: str) -> LocalNode:
    return LocalCluster.load(Path(folder)).broker(int(service.removeprefix(SERVICE)))


if __name__ == "__main__":
    main()
