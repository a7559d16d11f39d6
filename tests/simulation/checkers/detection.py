"""What a broker must find out about its disks, and in which time: the first part of I13, and what "acknowledged" means.

Shell of the tests. Only the lab knows that a disk is dead; the checker asks the disks, and a broker that still counts such a
directory as online after the bound has not looked. Easy to get wrong: a disk that is full, slow or damaged in places may
well stay online; and a broker that is paused can find out nothing.
"""

from collections.abc import Callable, Mapping

from broker.daemon import BrokerDaemon
from common.time_units import NS_PER_MS
from tests.simulation.checkers.image import ImageModel
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEvent
from tests.simulation.violations import InvariantViolated

# Besides the deadline of the probe that was under way, one interval, and the deadline of the probe that finds it.
SLACK_NS = 1_000 * NS_PER_MS

BrokerAndPath = tuple[BrokerDaemon, str]


class DetectionChecker:
    """`disk_at` gives the disk that belongs to a path, whether it is mounted there or not."""

    def __init__(
        self, disk_at: Callable[[str], SimulatedDisk], *, probe_interval_ns: int, operation_timeout_ns: int
    ) -> None:
        self._disk_at = disk_at
        self._bound_ns = probe_interval_ns + 2 * operation_timeout_ns + SLACK_NS
        self._unusable_since: dict[BrokerAndPath, int] = {}
        # How many fsyncs had failed on the disk when the broker was seen with it first.
        self._failed_before: dict[BrokerAndPath, int] = {}

    def look(self, brokers: Mapping[int, BrokerDaemon], now_ns: int) -> None:
        """Looks at the disks of every online directory of the brokers that run. Raises InvariantViolated."""
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

    def _is_to_be_given_up(self, broker: BrokerDaemon, path: str) -> bool:
        disk = self._disk_at(path)
        # One fsync that failed is enough, however well the next ones do.
        return disk.is_unusable or disk.failed_fsyncs > self._failed_before.setdefault((broker, path), disk.failed_fsyncs)


def check_acknowledged(event: SimulatedEvent, image: ImageModel) -> None:
    """I16: a broker believes that the controller knows a failure only when that is committed. Raises InvariantViolated."""
    if event.name != "log_dir_failure_acknowledged":
        return
    broker_id = int(event.node.rpartition("-")[2])
    registered = image.brokers.get(broker_id)
    # The last directory stays registered, because an empty list says something else; its broker is fenced instead.
    if registered is not None and not registered.fenced and event.fields["directory_id"] in registered.directories:
        raise InvariantViolated(
            "I16", f"broker {broker_id} takes the failure of a directory for acknowledged that is registered as online"
        )
