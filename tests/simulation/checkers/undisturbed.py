"""Checks what a dead disk must not delay and how soon the controller must act: the rest of I12 and I16, the time limits of
I6.

Shell of the tests. A broker must not take a healthy disk offline, and must create a replica on it at once, whatever its
other disks do. Once a directory is offline in a broker whose heartbeats get through, the controller must soon drop it from
the registration. These rules have time limits. Time counts only while every node that must act is able to.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from broker.daemon import BrokerDaemon
from common.ids import BrokerEpoch, DirectoryId, TopicIdPartition, uuid_text
from common.time_units import NS_PER_MS, NS_PER_S
from tests.simulation.checkers.image import ImageModel
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEnvironment, SimulatedEvent
from tests.simulation.violations import InvariantViolated

CREATION_BOUND_NS = 1 * NS_PER_S
# Within this time the controller must remove an offline directory of an unfenced broker from the broker's registration. A
# broker whose heartbeats do not arrive is fenced before that.
TOLD_BOUND_NS = 8 * NS_PER_S
# A dead broker must be fenced within broker.session.timeout.ms plus this slack, which covers the latency of the controller's
# own disk.
FENCING_SLACK_NS = 3 * NS_PER_S


class UndisturbedChecker:
    """Checks the rules of this module. `disk_at` returns the disk that belongs at a path."""

    def __init__(self, disk_at: Callable[[str], SimulatedDisk]) -> None:
        self._disk_at = disk_at
        self._creating_since: dict[tuple[BrokerDaemon, TopicIdPartition, DirectoryId], int] = {}
        self._untold_since: dict[tuple[int, BrokerEpoch, DirectoryId], int] = {}
        self._silent_since: dict[tuple[int, int], int] = {}
        self._claimed_ns: dict[SimulatedEnvironment, int] = {}

    def look_at_creations(self, brokers: Mapping[int, BrokerDaemon], now_ns: int) -> None:
        """Checks I12 for brokers that are not paused. Raises InvariantViolated."""
        before, self._creating_since = self._creating_since, {}
        for broker_id, broker in brokers.items():
            replicas = broker.replicas
            for key, directory_id in replicas._creation._creating.items():
                path = broker._directories.known.online.get(directory_id)
                if path is None or not self._disk_at(path).is_well:
                    continue
                since_ns = self._creating_since[broker, key, directory_id] = before.get((broker, key, directory_id), now_ns)
                if now_ns - since_ns > CREATION_BOUND_NS:
                    raise InvariantViolated(
                        "I12",
                        f"broker {broker_id} has been creating partition {key.partition} of {uuid_text(key.topic_id)} "
                        f"on the healthy disk {path} for {(now_ns - since_ns) / NS_PER_S:.1f} s",
                    )

    def look_at_failures(
        self, brokers: Mapping[int, BrokerDaemon], image: ImageModel, now_ns: int, *, is_controller_well: bool
    ) -> None:
        """Checks I16 for brokers that are not paused. Raises InvariantViolated."""
        before, self._untold_since = self._untold_since, {}
        if not is_controller_well:
            return
        for broker_id, broker in brokers.items():
            registered = image.brokers.get(broker_id)
            epoch = broker.lifecycle.broker_epoch
            if registered is None or registered.fenced or registered.epoch != epoch:
                continue
            for directory in broker._directories.known.offline:
                directory_id = directory.directory_id
                if directory_id is None or directory_id not in registered.directories:
                    continue
                place = (broker_id, epoch, directory_id)
                since_ns = self._untold_since[place] = before.get(place, now_ns)
                if now_ns - since_ns > TOLD_BOUND_NS:
                    raise InvariantViolated(
                        "I16",
                        f"broker {broker_id} lost {directory.path} {(now_ns - since_ns) / NS_PER_S:.1f} s ago, is unfenced, "
                        "and it is still registered as online",
                    )

    def look_at_sessions(
        self, dead: Iterable[int], image: ImageModel, now_ns: int, *, session_timeout_ns: int, is_controller_well: bool
    ) -> None:
        """I6: a dead broker is fenced within a time limit. Raises InvariantViolated."""
        before, self._silent_since = self._silent_since, {}
        if not is_controller_well:
            return
        for broker_id in dead:
            registered = image.brokers.get(broker_id)
            if registered is None or registered.fenced:
                continue
            incarnation = (broker_id, registered.epoch)
            since_ns = self._silent_since[incarnation] = before.get(incarnation, now_ns)
            if now_ns - since_ns > session_timeout_ns + FENCING_SLACK_NS:
                raise InvariantViolated(
                    "I6", f"broker {broker_id} has been dead for {(now_ns - since_ns) / NS_PER_S:.1f} s and is not fenced"
                )

    def check_absence(self, event: SimulatedEvent, life: SimulatedEnvironment) -> None:
        """I6: the controller may excuse the silence of brokers only for as long as its own process was paused. Raises
        InvariantViolated."""
        if event.name != "controller_was_stopped":
            return
        claimed_ns = self._claimed_ns[life] = self._claimed_ns.get(life, 0) + event.fields["absence_ms"] * NS_PER_MS
        if claimed_ns > life.paused_ns:
            raise InvariantViolated(
                "I6",
                f"{event.node} excuses silence of {claimed_ns / NS_PER_S:.1f} s by now, and was stopped for "
                f"{life.paused_ns / NS_PER_S:.1f} s",
            )


def check_given_up(event: SimulatedEvent, harmed: Collection[str]) -> None:
    """I12: a broker takes no directory offline except those in `harmed` (paths). Raises InvariantViolated."""
    if event.name in ("log_dir_failed", "log_dir_offline_at_start") and event.fields["log_dir"] not in harmed:
        raise InvariantViolated(
            "I12", f"{event.node} gives up {event.fields['log_dir']}, which nothing was done to: {event.fields['cause']}"
        )
