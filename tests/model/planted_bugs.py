"""The bugs that the search must find, each with the setting that is large enough for it and the property that it breaks."""

from dataclasses import dataclass

from broker.core import reconcile
from broker.core.directory_assignments import DirectoryAssignments
from broker.core.lifecycle import BrokerLifecycle
from controller.core import fencing, heartbeat, registration
from tests.model.cluster import Faults, Size
from tests.model.search import Setting
from tests.simulation.planting import Edit, PlantedBug


@dataclass(frozen=True, slots=True)
class FoundBug:
    """`problem` is a part of what the search says."""

    bug: PlantedBug
    size: Size
    faults: Faults
    problem: str
    is_settled: bool = True

    @property
    def setting(self) -> Setting:
        return Setting(self.bug.name, self.size, self.faults, self.is_settled)


ONE_BROKER = Size(brokers=1)
TWO_BROKERS = Size()

BUGS = (
    FoundBug(
        PlantedBug(
            "one-shot assignments",
            "The controller has got the request, or the next change of the metadata brings the wish again.",
            (
                Edit(
                    DirectoryAssignments.handle_failure,
                    "if not wish.is_settled:",
                    "if False:",
                ),
            ),
        ),
        ONE_BROKER,
        Faults(losses=1),
        "0 of broker 1 is not where the metadata says",
        is_settled=False,
    ),
    FoundBug(
        PlantedBug(
            "unfences before it looks at the lost directories",
            "The broker is unfenced first, then its failures are handled like those of any unfenced broker.",
            (
                Edit(
                    heartbeat.handle_broker_heartbeat,
                    "Eligibility(state, subject=broker_id, after=after)",
                    "Eligibility(state, subject=broker_id, after=replace(after, directories=registration.directories))",
                ),
            ),
        ),
        ONE_BROKER,
        Faults(disks=1, kills=1),
        "the leader of 0 is fenced, or in a directory that is registered offline",
    ),
    FoundBug(
        PlantedBug(
            "creates what is absent",
            "KIP-858: a replica that is assigned to an online directory and does not exist is created.",
            (
                Edit(
                    reconcile._decide_absent_in_isr,
                    "if never_held_data:",
                    "if True:",
                ),
            ),
        ),
        ONE_BROKER,
        Faults(disks=1, kills=1),
        "broker 1 leads 0 with 0 of 1 records",
    ),
    FoundBug(
        PlantedBug(
            "creates what may be on the dead disk",
            "Outside the ISR a new log is filled from the leader, so it does no harm.",
            (
                Edit(
                    reconcile._decide_absent_outside_isr,
                    "or not situation.any_offline or",
                    "or True or",
                ),
            ),
        ),
        TWO_BROKERS,
        Faults(disks=1, kills=2),
        "broker 1 has 0 in two directories",
    ),
    FoundBug(
        PlantedBug(
            "takes every answer for an acknowledgement",
            "The broker has sent a heartbeat since, and the controller has answered it.",
            (
                Edit(
                    BrokerLifecycle._handle_heartbeat_answered,
                    "self._acknowledge(event.offline_directories)",
                    "self._acknowledge(tuple(self._failures))",
                ),
                Edit(
                    BrokerLifecycle._maybe_send,
                    "for d in self._failures if d in",
                    "for d, f in self._failures.items() if not f.acknowledged and d in",
                ),
            ),
        ),
        ONE_BROKER,
        Faults(disks=1, kills=1),
        "0 of broker 1 is offline, and the controller takes it for online",
    ),
    FoundBug(
        PlantedBug(
            "does not report where the log was",
            "The heartbeat has named the directory, so the controller knows of the failure.",
            (
                Edit(
                    reconcile._decide_failed,
                    "return Decision(Action.ASSIGN, failed)",
                    "return Decision(Action.SKIP)",
                ),
            ),
        ),
        ONE_BROKER,
        Faults(disks=1),
        "0 of broker 1 is offline, and the controller takes it for online",
        is_settled=False,
    ),
    FoundBug(
        PlantedBug(
            "a fenced broker keeps its leaderships",
            "It does not answer anybody; the next leaderless sweep finds its partitions.",
            (
                Edit(
                    fencing.generate_fencing_records,
                    "registration.broker_id)\n    change",
                    "BrokerId(-9))\n    change",
                ),
            ),
        ),
        TWO_BROKERS,
        Faults(kills=1),
        "the leader of 0 is fenced, or in a directory that is registered offline",
    ),
    FoundBug(
        PlantedBug(
            "a late registration brings a directory in",
            "The directory was never lost in this incarnation, so it may be registered.",
            (
                Edit(
                    registration._register_again,
                    "if is_first or each in registered)",
                    "if each not in lost)",
                ),
            ),
        ),
        ONE_BROKER,
        Faults(disks=1, kills=1, losses=1),
        "0 of broker 1 is offline, and the controller takes it for online",
    ),
    FoundBug(
        PlantedBug(
            "an answer settles what was wished meanwhile",
            "The request in flight names the same directory, so its answer says that the controller knows.",
            (
                Edit(
                    DirectoryAssignments.wish,
                    "queued.is_wished_again = replica not in self._ready",
                    "pass",
                ),
            ),
        ),
        ONE_BROKER,
        Faults(moves=1, disks=1, losses=1),
        "0 of broker 1 is not where the metadata says",
    ),
    FoundBug(
        PlantedBug(
            "a move whose source fails is not taken back",
            "KAFKA-16297: the heartbeat has named the directory, and the replica is assigned to the other one.",
            (
                Edit(
                    reconcile._decide_failed,
                    "if metadata_directory in (failed, LOST):",
                    "if metadata_directory not in (UNASSIGNED, MIGRATING):",
                ),
            ),
        ),
        ONE_BROKER,
        Faults(moves=1, disks=1),
        "0 of broker 1 is offline, and the controller takes it for online",
    ),
)
