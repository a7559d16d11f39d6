"""Runs a client's suite against clusters of ours, and returns what came of each test.

A suite waits for no longer than its authors' machine needs, often for less than a second, and a client may have races of its
own. So tests that failed against expectation run once more, alone, and their second outcome counts. What a broker does wrong
fails again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.interop.client_suites.containers import toxiproxy, write_docker
from tests.interop.client_suites.runner import NoSource, Outcome
from tests.interop.client_suites.suites.suite import Suite
from tools.lab.local_cluster import LocalCluster, NodeFiles, free_ports, is_free

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

    with _cluster(suite, folder, home) as bootstrap:
        outcomes = run(tests, "first", bootstrap)
        if again := doubtful(outcomes):
            outcomes |= run(again, "again", bootstrap)
        return outcomes


@contextmanager
def _cluster(suite: Suite, folder: Path, home: Path) -> Iterator[str]:
    """Yields where a running cluster is to be found. It is empty if the tests make clusters of their own."""
    if suite.brokers == 0:
        yield ""
        return
    if taken := [port for port in suite.ports if not is_free(port)]:
        raise NoSource(f"the tests look for our brokers at the ports {suite.ports}, of which {taken} are in use")
    cluster = LocalCluster.create(
        folder / "cluster",
        brokers=suite.brokers,
        disks=DISKS,
        loop=False,
        first_node_id=suite.first_node_id,
        overrides=suite.broker,
    )
    with ExitStack() as stack:
        # A test may have started a broker again, in a process that `cluster` does not know of.
        stack.callback(lambda: LocalCluster.load(cluster.folder).kill())
        stack.callback(cluster.kill)
        bootstrap = cluster.bootstrap
        listening = suite.ports
        if suite.in_containers:
            listening = tuple(free_ports(suite.brokers))
            ids = [broker.files.node_id for broker in cluster.brokers]
            upstreams = dict(zip(ids, zip(suite.ports, listening, strict=True), strict=True))
            bootstrap = stack.enter_context(toxiproxy(folder, upstreams))
            write_docker(home / "docker", cluster.folder)
        for number, broker in enumerate(cluster.brokers):
            with Path(broker.files.config).open("a") as config:
                config.writelines(f"{line}\n" for line in _listeners(suite, broker.files, number, listening))
        cluster.start()
        yield bootstrap


def _listeners(suite: Suite, files: NodeFiles, number: int, listening: Sequence[int]) -> list[str]:
    """Returns the lines of a broker's configuration that say where it is. `number` counts the brokers from 0."""
    own = f"PLAINTEXT://{files.address}"
    racks = [f"broker.rack={files.node_id}"] if suite.has_racks else []
    if not suite.ports:
        # The suites' brokers are configured with the address that they advertise, and one test looks for that.
        return [f"advertised.listeners={own}", *racks]
    return [
        f"listeners={own},CLIENTS://127.0.0.1:{listening[number]}",
        f"advertised.listeners={own},CLIENTS://localhost:{suite.ports[number]}",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        *racks,
    ]
