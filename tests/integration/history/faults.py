"""The faults of the history check: one at a time for disks, and others meanwhile for processes (shell).

A disk that loses power or is replaced takes with it what was only there. So the next disk fails only once every replica is
in sync again; until then faults hit processes, whose writes stay in the page cache. Whatever is killed or paused is back
before `one_round` returns.
"""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.cluster import WatchedCluster, continue_process, stop_process
from tests.integration.history.processes import Clients
from tools.lab import disk_faults
from tools.lab.disk_lab import replace_disk, revive_disk
from tools.lab.local_cluster import LocalNode

DISK_WAYS: tuple[Callable[[Path], None], ...] = (
    disk_faults.cut_power,
    disk_faults.shut_down_flushing,
    disk_faults.shut_down_flushing_journal,
)
# Some pauses are shorter than broker.session.timeout.ms and a member's session timeout, some are longer.
PAUSE_SECONDS = (0.2, 9.0)
AWAY_SECONDS = 6.0
OFFSETS_TOPIC = "__consumer_offsets"


class Faults:
    """Lets faults happen, chosen by the random numbers alone."""

    def __init__(self, cluster: WatchedCluster, clients: Clients, topic: str, rng: random.Random) -> None:
        self._cluster = cluster
        self._clients = clients
        self._topic = topic
        self._rng = rng
        self._kinds: dict[Callable[[], str], int] = {
            self._lose_disk: 3,
            self._lose_power: 1,
            self._kill_nodes: 3,
            self._pause_node: 3,
            self._pause_client: 1,
            self._kill_client: 2,
        }
        """How often each happens, relative to the others."""
        self._first = list(self._kinds)

    def one_round(self) -> str:
        """Lets one fault happen and ends it. Returns what it was."""
        # Every kind once before any happens again: a short run meets them all.
        if self._first:
            return self._first.pop(self._rng.randrange(len(self._first)))()
        (kind,) = self._rng.choices(list(self._kinds), list(self._kinds.values()))
        return kind()

    # --- disks ---------------------------------------------------------------------------------------------------

    def _lose_disk(self) -> str:
        """A disk dies under a running broker, is mounted again or replaced by an empty one, and the broker restarts. In half
        of the cases another process is paused or killed while the disk is gone."""
        self._until_in_sync()
        broker = self._rng.choice(self._cluster.brokers)
        path = Path(self._rng.choice(broker.files.data_dirs))
        way = self._rng.choice(DISK_WAYS)
        is_replaced, meanwhile = self._rng.random() < 0.5, self._rng.choice((None, None, self._kill_nodes, self._pause_node))
        what = f"{broker.files.name} {path.name} {way.__name__}, {'replaced' if is_replaced else 'mounted again'}"
        way(path)
        broker.wait_for("log_dir_failure_acknowledged")
        if meanwhile is not None:
            what += f"; meanwhile {meanwhile()}"
        assert broker.stop() == 0
        self._bring_back(broker, [path], is_replaced=is_replaced)
        return what

    def _lose_power(self) -> str:
        """A broker is killed and all its disks lose what was not synced. One of them may be replaced."""
        self._until_in_sync()
        broker = self._rng.choice(self._cluster.brokers)
        paths = [Path(path) for path in broker.files.data_dirs]
        # The broker may see the death of its last disk before it is killed.
        self._cluster.expect_end(broker, "the last log directory")
        for path in paths:
            disk_faults.cut_power(path)
        broker.kill()
        is_replaced = self._rng.random() < 0.5
        time.sleep(self._rng.uniform(0, AWAY_SECONDS))
        for path in paths[1:]:
            revive_disk(path)
        self._bring_back(broker, paths[:1], is_replaced=is_replaced)
        return f"{broker.files.name} loses power, {'one disk is replaced' if is_replaced else 'every disk comes back'}"

    def _bring_back(self, broker: LocalNode, paths: list[Path], *, is_replaced: bool) -> None:
        for path in paths:
            (replace_disk if is_replaced else revive_disk)(path)
        if is_replaced:
            self._cluster.format(broker)
        broker.start()
        broker.wait_for("broker_running")

    def _until_in_sync(self) -> None:
        for topic in (self._topic, OFFSETS_TOPIC):
            self._cluster.until_in_sync(topic)

    # --- processes -----------------------------------------------------------------------------------------------

    def _kill_nodes(self) -> str:
        """kill -9 of one or two daemons, which come back after a while."""
        victims = self._rng.sample(self._running(), self._rng.choice((1, 1, 2)))
        away = self._rng.choice((0.0, self._rng.uniform(0, AWAY_SECONDS)))
        for victim in victims:
            victim.kill()
        time.sleep(away)
        for victim in victims:
            victim.start()
        for victim in victims:
            victim.wait_for("controller_active" if victim.files.role == "controller" else "broker_running")
        return f"kill -9 of {', '.join(each.files.name for each in victims)} for {away:.1f} s"

    def _pause_node(self) -> str:
        """SIGSTOP and SIGCONT of one daemon. After a long pause it wakes up as a leader that has been replaced."""
        victim = self._rng.choice(self._running())
        seconds = self._rng.uniform(*PAUSE_SECONDS)
        stop_process(victim)
        time.sleep(seconds)
        continue_process(victim)
        return f"pause of {victim.files.name} for {seconds:.1f} s"

    def _pause_client(self) -> str:
        name = self._clients.pick(self._rng, "")
        seconds = self._rng.uniform(*PAUSE_SECONDS)
        self._clients.signal(name, signal.SIGSTOP)
        time.sleep(seconds)
        self._clients.signal(name, signal.SIGCONT)
        return f"pause of {name} for {seconds:.1f} s"

    def _kill_client(self) -> str:
        name = self._clients.pick(self._rng, self._rng.choice(("producer", "member")))
        self._clients.replace(name)
        return f"kill -9 of {name}"

    def _running(self) -> list[LocalNode]:
        return [node for node in self._cluster.nodes.values() if node.pid is not None]
