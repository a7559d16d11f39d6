"""The checkers of a simulated cluster: everything in the page of faults (I1 to I19) that can be judged so far.

Shell of the tests. `Checkers(cluster, history).install()` before the trouble begins: from then on a violation ends the run
at once, whoever is running. After the heal `await at_quiescence()`, at the very end `at_end()`. Nothing is hooked into the
production modules: the checkers are one more listener of each node's metadata log, and look at the nodes from outside at a
fixed pace of virtual time.
"""

from common.raft.core.quorum import LeaderAndEpoch
from common.raft.core.record_batches import CommittedBatch
from common.raft.driver import QuorumDriver
from common.raft.listener import LoadedSnapshot
from tests.simulation.checkers.image import ImageChecker
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.history import History
from tests.simulation.violations import InvariantViolated
from tools.node import Node

__all__ = ["Checkers", "InvariantViolated"]

LOOK_INTERVAL_NS = 10_000_000


class Checkers:
    """See the module's docstring."""

    def __init__(self, cluster: SimulatedCluster, history: History) -> None:
        self.image = ImageChecker()
        self._cluster = cluster
        self._history = history
        self._attached: dict[int, Node] = {}
        self._has_failed = False

    def install(self) -> None:
        """From now on every committed batch and, at a fixed pace, every replica is looked at."""
        self._look()

    async def at_quiescence(self) -> None:
        """After the heal, when nothing is to be waited for any more. Raises InvariantViolated."""

    def at_end(self) -> None:
        """The clients are gone. Raises InvariantViolated."""

    def _look(self) -> None:
        if self._has_failed:
            return
        loop = self._cluster.world.loop
        loop.call_at_ns(loop.now_ns + LOOK_INTERVAL_NS, self._look)
        self._attach_to_new_nodes()

    def _attach_to_new_nodes(self) -> None:
        for node_id, node in self._cluster.nodes.items():
            driver = _driver_of(node)
            if driver is not None and self._attached.get(node_id) is not node:
                self._attached[node_id] = node
                driver.register(_Listener(self, self._cluster.name(node_id)))

    def raise_later(self, violation: InvariantViolated) -> None:
        """Ends the run with this violation, whatever code found it in whatever daemon's step."""
        if not self._has_failed:
            self._has_failed = True
            self._cluster.world.loop.call_soon(_raise, violation)


class _Listener:
    """A MetadataListener of one node: what it says is committed goes to the checkers."""

    def __init__(self, checkers: Checkers, node: str) -> None:
        self._checkers = checkers
        self._node = node

    def handle_commit(self, batch: CommittedBatch) -> None:
        try:
            self._checkers.image.committed(self._node, batch.base_offset, batch.last_offset, batch.epoch, batch.records)
        except InvariantViolated as violation:
            self._checkers.raise_later(violation)

    def handle_load_snapshot(self, snapshot: LoadedSnapshot) -> None:
        try:
            self._checkers.image.loaded(self._node, snapshot.end_offset, snapshot.records)
        except InvariantViolated as violation:
            self._checkers.raise_later(violation)

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Who leads is judged by the epochs of the batches."""


def _driver_of(node: Node) -> QuorumDriver | None:
    if node.controller is not None:
        driver = node.controller.controller._driver
        assert isinstance(driver, QuorumDriver)
        return driver
    return None if node.broker is None else node.broker._driver


def _raise(violation: InvariantViolated) -> None:
    raise violation
