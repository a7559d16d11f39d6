"""Runs the suite of a Python client, with a plugin that gives it our brokers."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.client_suites.runner import Outcome, Runner, SuiteFailed, read_outcomes, run_logged

# The newest Kafka whose requests Diskraft knows in full. The suites choose and skip their tests by it.
KAFKA_VERSION = "4.3.0"
ADAPTERS = Path(__file__).with_name("adapters")
TEST_SECONDS_MAX = 100
# Exit statuses of pytest: all passed, some failed. Every other says that the suite did not run as it should.
PYTEST_RAN = (0, 1)


@dataclass(frozen=True, slots=True)
class PytestRunner(Runner):
    """`tests` is the folder of the tests, in the one that `find_source` returns."""

    find_source: Callable[[], Path]
    tests: str
    plugin: str
    options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """The suite's own settings of pytest."""

    def prepare(self, home: Path) -> None:
        # The suite's tests only: beside them its client would lie uncompiled, and would be imported.
        shutil.copytree(self.find_source() / self.tests, home / self.tests)
        lines = [f"{key} = {value}\n" for key, value in self.settings.items()]
        (home / "pytest.ini").write_text("[pytest]\n" + "".join(lines))
        shutil.copytree(ADAPTERS, home / "plugins", ignore=shutil.ignore_patterns("__pycache__"))

    def run(
        self, home: Path, tests: Sequence[str], *, bootstrap: str, folder: Path, seconds_max: float
    ) -> dict[str, Outcome]:
        outcomes, output = folder / "outcomes.jsonl", folder / "pytest.log"
        plugins = [option for name in ("outcomes", self.plugin) for option in ("-p", name)]
        limits = ["-p", "no:randomly", "-p", "no:cacheprovider", "--timeout", str(TEST_SECONDS_MAX), "--durations", "20"]
        status = run_logged(
            [sys.executable, "-m", "pytest", *plugins, *limits, *self.options, *tests],
            cwd=home,
            environment=_environment(bootstrap, home, outcomes),
            output=output,
            seconds_max=seconds_max,
        )
        if status not in PYTEST_RAN:
            raise SuiteFailed(f"pytest ended with status {status} (see {output})")
        return read_outcomes(outcomes)


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
