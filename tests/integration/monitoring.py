"""Runs a real Prometheus beside a cluster, queries its API, and reads the expressions of the dashboard and the alert rules.

If a program is missing, the test is skipped with a clear message. In CI the test fails instead, so that the missing coverage
is noticed.
"""

import json
import os
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest

from tools.lab.local_cluster import LocalCluster, free_ports

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "disks.json"
SECONDS_MAX = 60.0
POLL_SECONDS = 0.2
METRIC_NAME = re.compile(r"\b(?:kafka|diskraft)_[a-z0-9_]+\b")


def not_testable(reason: str) -> NoReturn:
    """Skips the test, or fails it in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must be able to run this: {reason}")
    pytest.skip(f"this was NOT tested: {reason}")


def need_program(name: str, package: str) -> str:
    """Returns the program's path. Skips the test if the program is missing."""
    found = shutil.which(name)
    if found is None:
        not_testable(f"{name} is missing (Debian: apt install {package})")
    return found


def until(probe: Callable[[], T | None], what: str, *, seconds: float = SECONDS_MAX) -> T:
    """Polls `probe` until its result is truthy (not None, False, empty or zero), and returns this result. A test has to
    poll, because it cannot await a change in another process."""
    deadline = time.monotonic() + seconds
    while True:
        found = probe()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(POLL_SECONDS)


class Prometheus:
    """The HTTP API of a running server."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Runs an instant query. Returns the labels and the value of each series. An invalid expression fails the test."""
        found = self._get("query", query=expression)
        return [(series["metric"], float(series["value"][1])) for series in found["result"]]

    def value(self, expression: str) -> float | None:
        """Returns the value of the only series, or None if there is no series."""
        found = self.query(expression)
        assert len(found) <= 1, (expression, found)
        return found[0][1] if found else None

    def firing(self, name: str) -> list[dict[str, str]]:
        """Returns the labels of each firing alert of this name."""
        alerts = self._get("alerts")["alerts"]
        return [alert["labels"] for alert in alerts if alert["state"] == "firing" and alert["labels"]["alertname"] == name]

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            content = json.load(answer)
        assert content["status"] == "success", (parameters, content)
        return content["data"]


@contextmanager
def prometheus_beside(cluster: LocalCluster, folder: Path, targets: Sequence[str]) -> Iterator[Prometheus]:
    """Runs a Prometheus that scrapes these targets and has the repository's alert rules. Always ends it afterwards."""
    program = need_program("prometheus", "prometheus")
    folder.mkdir()
    # This differs from deploy/prometheus/prometheus.yml only in the targets and the intervals.
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "diskraft", "static_configs": [{"targets": list(targets)}]}],
    }
    file = folder / "prometheus.yml"
    file.write_text(json.dumps(configuration))
    (port,) = free_ports(1)
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        server = Prometheus(port)
        until(server.is_ready, f"Prometheus is ready (see {folder / 'prometheus.log'})")
        yield server
    finally:
        process.terminate()
        process.wait(30)


def scrape(target: str) -> str:
    """Returns a node's metrics in the text format."""
    with urllib.request.urlopen(f"http://{target}/metrics", timeout=60) as answer:
        return bytes(answer.read()).decode()


def exposed_names(exposition: str) -> set[str]:
    """Returns the names of all metrics in the text."""
    lines = (line for line in exposition.splitlines() if line and not line.startswith("#"))
    return {re.split(r"[{ ]", line, maxsplit=1)[0] for line in lines}


def dashboard_expressions() -> list[str]:
    """Returns every PromQL expression of the dashboard, with Grafana's variables filled in."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    variables = [variable["definition"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    found += [re.sub(r"label_values\((.*), \w+\)$", r"\1", definition) for definition in variables]
    values = {"$__rate_interval": "1m", "$instance": ".+", "$job": "diskraft"}
    for variable, value in values.items():
        found = [expression.replace(variable, value) for expression in found]
    return found


def rule_expressions() -> list[str]:
    """Returns every PromQL expression of the alerts."""
    return re.findall(r"^ +expr: (?:>-\n)?((?:.|\n)*?)\n +(?:for|labels):", RULES.read_text(), re.MULTILINE)
