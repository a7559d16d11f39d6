"""Runs a client's suite against clusters of ours, and returns what came of each test.

A suite waits for no longer than its authors' machine needs, often for less than a second, and a client may have races of its
own. So tests that failed against expectation run once more, alone, and their second outcome counts. What a broker does wrong
fails again.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.interop.client_suites.runner import Outcome
from tests.interop.client_suites.suites import Suite
from tools.lab.local_cluster import LocalCluster

DISKS = 2

# Of the outcomes of all tests, the ids of those that are to run again.
Doubtful = Callable[[Mapping[str, Outcome]], tuple[str, ...]]


def run_suite(suite: Suite, tests: tuple[str, ...], folder: Path, doubtful: Doubtful) -> dict[str, Outcome]:
    """Starts a cluster in `folder` if the suite wants one, runs the tests and returns the outcome of each by its id. Leaves
    the output of the tests and the logs of the daemons in the folder. Raises NoSource and SuiteFailed."""
    home = folder / "suite"
    home.mkdir(parents=True)
    suite.runner.prepare(home)

    def run(tests: tuple[str, ...], name: str, bootstrap: str) -> dict[str, Outcome]:
        (folder / name).mkdir()
        return suite.runner.run(home, tests, bootstrap=bootstrap, folder=folder / name, seconds_max=suite.seconds_max)

    with _cluster(suite, folder / "cluster") as bootstrap:
        outcomes = run(tests, "first", bootstrap)
        if again := doubtful(outcomes):
            outcomes |= run(again, "again", bootstrap)
        return outcomes


@contextmanager
def _cluster(suite: Suite, folder: Path) -> Iterator[str]:
    """Yields the address of a running cluster. It is empty if the tests make clusters of their own."""
    if suite.brokers == 0:
        yield ""
        return
    cluster = LocalCluster.create(
        folder, brokers=suite.brokers, disks=DISKS, loop=False, first_node_id=0, overrides=suite.broker
    )
    try:
        # The suites' brokers are configured with the address that they advertise, and one test looks for that.
        for broker in cluster.brokers:
            with Path(broker.files.config).open("a") as config:
                config.write(f"advertised.listeners=PLAINTEXT://{broker.files.address}\n")
        cluster.start()
        yield cluster.bootstrap
    finally:
        cluster.kill()
