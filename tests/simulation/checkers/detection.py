"""How soon a broker must notice a dead disk (the first part of I13), and what "acknowledged" means (I16).

Shell of the tests. The checker asks the simulated disks which of them are dead. A broker that still has such a directory
online after the bound has failed to probe it. A disk that is full, slow or partly damaged may stay online. A paused broker
cannot notice anything and is not checked.
"""

from collections.abc import Callable, Mapping

from broker.daemon import BrokerDaemon
from common.time_units import NS_PER_MS
from tests.simulation.checkers.image import ImageModel
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEvent
from tests.simulation.violations import InvariantViolated

# A broker must notice a dead disk within the sum of the probe interval, the deadlines of two probes (the one that is running
# when the disk dies, and the one that notices), and this slack.
SLACK_NS = 1_000 * NS_PER_MS

BrokerAndPath = tuple[BrokerDaemon, str]


class DetectionChecker:
    """Checks that brokers notice dead disks in time. `disk_at` returns the disk that belongs at a path, even while it is not
    mounted there."""

    def __init__(
        self,
        disk_at: Callable[[str], SimulatedDisk],
        *,
        probe_interval_ns: int,
        operation_timeout_ns: int,
        suspect_after_ns: int,
    ) -> None:
        self._disk_at = disk_at
        self._bound_ns = probe_interval_ns + 2 * operation_timeout_ns + SLACK_NS
        self._suspect_after_ns = suspect_after_ns
        # How long a broker may be wrong about the silence of a directory. It looks ten times in `suspect_after_ns`.
        self._misjudged_bound_ns = suspect_after_ns * 7 // 10
        self._misjudged_since: dict[BrokerAndPath, int] = {}
        # When each directory was last silent for `suspect_after_ns`.
        self._silent_ns: dict[BrokerAndPath, int] = {}
        # When each directory was looked at last, and how long it had been silent.
        self._looked: dict[BrokerAndPath, tuple[int, int]] = {}
        self._unusable_since: dict[BrokerAndPath, int] = {}
        # How many fsyncs had failed on the disk when this broker was first seen using it.
        self._failed_before: dict[BrokerAndPath, int] = {}

    def look(self, brokers: Mapping[int, BrokerDaemon], now_ns: int) -> None:
        """Checks the disk of every online directory of these running brokers. Raises InvariantViolated."""
        since_before, self._unusable_since = self._unusable_since, {}
        for broker_id, broker in brokers.items():
            for path in broker._directories.known.online.values():
                if self._is_to_be_given_up(broker, path):
                    since_ns = since_before.get((broker, path), now_ns)
                    self._unusable_since[broker, path] = since_ns
                    if now_ns - since_ns > self._bound_ns:
                        raise InvariantViolated(
                            "I13",
                            f"broker {broker_id} has {path} online; its disk has been unusable for "
                            f"{(now_ns - since_ns) / 1e9:.1f} s",
                        )

    def look_at_suspicions(self, brokers: Mapping[int, BrokerDaemon], now_ns: int) -> None:
        """Checks that these running brokers suspect the directories that are silent or were silent lately, and no others.
        Raises InvariantViolated."""
        before, self._misjudged_since = self._misjudged_since, {}
        for broker_id, broker in brokers.items():
            replicas = broker.replicas
            if not replicas._is_loaded or replicas._reconciliation._is_stopped:
                continue
            for directory_id, path in broker._directories.known.online.items():
                silent_ns = broker._directories.log_dirs[directory_id].silence_ns
                is_suspected = directory_id in replicas.suspected
                looked_ns, was_silent_ns = self._looked.get((broker, path), (now_ns, 0))
                self._looked[broker, path] = now_ns, silent_ns
                if was_silent_ns + now_ns - looked_ns >= self._suspect_after_ns:
                    # It may have been silent for so long between the two looks, and the broker may have seen that.
                    self._silent_ns[broker, path] = now_ns
                if silent_ns >= self._suspect_after_ns:
                    self._silent_ns[broker, path] = now_ns
                    is_judged = is_suspected
                else:
                    is_judged = not is_suspected or now_ns - self._silent_ns.get((broker, path), 0) < self._suspect_after_ns
                if is_judged:
                    continue
                since_ns = self._misjudged_since[broker, path] = before.get((broker, path), now_ns)
                if now_ns - since_ns > self._misjudged_bound_ns:
                    judgement = "suspects" if is_suspected else "does not suspect"
                    raise InvariantViolated(
                        "I13",
                        f"broker {broker_id} {judgement} {path}, in which nothing has finished for {silent_ns / 1e9:.1f} s",
                    )

    def _is_to_be_given_up(self, broker: BrokerDaemon, path: str) -> bool:
        disk = self._disk_at(path)
        # A single failed fsync is reason enough to give up the directory, even if the next ones succeed.
        return disk.is_unusable or disk.failed_fsyncs > self._failed_before.setdefault((broker, path), disk.failed_fsyncs)


def check_acknowledged(event: SimulatedEvent, image: ImageModel) -> None:
    """I16: a broker treats a directory failure as acknowledged only after the controller has committed it. Raises
    InvariantViolated."""
    if event.name != "log_dir_failure_acknowledged":
        return
    broker_id = int(event.node.rpartition("-")[2])
    registered = image.brokers.get(broker_id)
    # The last directory stays registered, because an empty list means "unchanged" in the record. The broker is fenced
    # instead.
    if registered is not None and not registered.fenced and event.fields["directory_id"] in registered.directories:
        raise InvariantViolated(
            "I16", f"broker {broker_id} takes the failure of a directory for acknowledged that is registered as online"
        )
