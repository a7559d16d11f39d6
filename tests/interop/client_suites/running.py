"""Runs a client's suite in a pytest of its own, and returns what came of each test.

A suite waits for no longer than its authors' machine needs, often for less than a second, and a client may have races of its
own. So tests that failed against expectation run once more, alone, and their second outcome counts. What a broker does wrong
fails again.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop.client_suites.suites import KAFKA_VERSION, Suite
from tools.lab.local_cluster import LocalCluster

ADAPTERS = Path(__file__).with_name("adapters")
DISKS = 2
TEST_SECONDS_MAX = 100
# Exit statuses of pytest: all passed, some failed. Every other says that the suite did not run as it should.
PYTEST_RAN = (0, 1)


class SuiteFailed(Exception):
    """The suite did not run to its end. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one test: "passed", "failed" or "skipped", and the reason if it did not pass."""

    outcome: str
    reason: str


# Of the outcomes of all tests, the ids of those that are to run again.
Doubtful = Callable[[Mapping[str, Outcome]], tuple[str, ...]]


def run_suite(suite: Suite, tests: tuple[str, ...], folder: Path, doubtful: Doubtful) -> dict[str, Outcome]:
    """Starts a cluster in `folder`, runs the tests and returns the outcome of each by its id. Leaves the output of pytest
    and the logs of the daemons in the folder. Raises NoSource and SuiteFailed."""
    source = suite.find_source()
    cluster = LocalCluster.create(
        folder / "cluster", brokers=suite.brokers, disks=DISKS, loop=False, first_node_id=0, overrides=suite.broker
    )
    try:
        # The suites' brokers are configured with the address that they advertise, and one test looks for that.
        for broker in cluster.brokers:
            with Path(broker.files.config).open("a") as config:
                config.write(f"advertised.listeners=PLAINTEXT://{broker.files.address}\n")
        cluster.start()
        home = _prepare(suite, source, folder)
        outcomes = _run_pytest(suite, home, tests, cluster.bootstrap, folder / "first")
        if again := doubtful(outcomes):
            outcomes |= _run_pytest(suite, home, again, cluster.bootstrap, folder / "again")
        return outcomes
    finally:
        cluster.kill()


def _prepare(suite: Suite, source: Path, folder: Path) -> Path:
    """Copies the suite's tests into `folder` and returns where they are."""
    home = folder / "suite"
    # The suite's tests only: beside them its client would lie uncompiled, and would be imported.
    name = Path(suite.tests[0]).parts[0]
    shutil.copytree(source / name, home / name)
    (home / "pytest.ini").write_text("[pytest]\n" + "".join(f"{key} = {value}\n" for key, value in suite.settings.items()))
    shutil.copytree(ADAPTERS, home / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    return home


def _run_pytest(suite: Suite, home: Path, tests: tuple[str, ...], bootstrap: str, folder: Path) -> dict[str, Outcome]:
    folder.mkdir()
    outcomes, output = folder / "outcomes.jsonl", folder / "pytest.log"
    plugins = [option for name in ("outcomes", suite.plugin) for option in ("-p", name)]
    limits = ["-p", "no:randomly", "-p", "no:cacheprovider", "--timeout", str(TEST_SECONDS_MAX), "--durations", "20"]
    with output.open("wb") as log:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *plugins, *limits, *suite.options, *tests],
                cwd=home,
                env=os.environ | _environment(bootstrap, home, outcomes),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=suite.seconds_max,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SuiteFailed(f"{suite.name} took longer than {suite.seconds_max:g} s (see {output})") from None
    if done.returncode not in PYTEST_RAN:
        raise SuiteFailed(f"pytest ended with status {done.returncode} (see {output})")
    return _read(outcomes)


def _environment(bootstrap: str, home: Path, outcomes: Path) -> dict[str, str]:
    first = bootstrap.split(",", maxsplit=1)[0]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(home / "plugins"), os.environ.get("PYTHONPATH")])),
        "OUTCOMES": str(outcomes),
        "KAFKA_VERSION": KAFKA_VERSION,
        "BOOTSTRAP": bootstrap,
        # Read by kafka-python's suite. It looks for Kafka's folder before it decides to use another broker.
        "KAFKA_URI": f"kafka://{first}",
        "KAFKA_ROOT": str(home),
        "PROJECT_ROOT": str(home),
    }


def _read(outcomes: Path) -> dict[str, Outcome]:
    found = map(json.loads, outcomes.read_text().splitlines())
    return {each["test"]: Outcome(each["outcome"], each["reason"]) for each in found}
