"""Bugs in the rules about feature levels. The recorded migration of a cluster without JBOD, or the scenario that belongs to
the bug, must find each of them.

The drawn plans of the simulator change no levels, so these bugs are not among those that its seeds must find.
"""

import pytest

from broker.core import directory_support, hosted_replicas
from broker.core.lifecycle import BrokerLifecycle
from broker.daemon import BrokerDaemon
from common.metadata.state import MetadataState
from controller.core import feature_losses, registration, update_features
from tests.simulation.planting import Edit, PlantedBug
from tests.simulation.scenario import ScenarioFailed, play, scenario_files

SCENARIO = "migration-cluster_without_jbod"

BUGS = (
    PlantedBug(
        "a broker registers once in its life",
        "Its directories have not changed, so there is nothing to say.",
        (Edit(BrokerDaemon._lacking_registration, "not registration.directories", "False"),),
    ),
    PlantedBug(
        "every registration fences the broker",
        "A broker that registers is starting.",
        (
            Edit(
                registration._register_again,
                "_Terms(previous.epoch, previous.fenced,",
                "_Terms(previous.epoch, True,",
            ),
        ),
    ),
    PlantedBug(
        "every registration takes a new epoch",
        "An epoch is the offset of a registration.",
        (
            Edit(
                registration._register_again,
                "_Terms(previous.epoch, previous.fenced,",
                "_Terms(BrokerEpoch(turn.next_write_offset), previous.fenced,",
            ),
        ),
    ),
    PlantedBug(
        "a safe downgrade is not refused",
        "Whoever asks for a downgrade will know what is lost.",
        (Edit(update_features.update_features, "if losses and ", "if False and "),),
    ),
    PlantedBug(
        "an unsafe downgrade keeps the directories of partitions",
        "The lower level does not look at them.",
        (Edit(feature_losses.generate_records_before, "enumerate(losses.assigned_partitions)", "enumerate(())"),),
    ),
    PlantedBug(
        "an unsafe downgrade keeps the registered directories",
        "The lower level does not look at them.",
        (
            Edit(
                feature_losses.generate_records_after,
                "for id_ in sorted(brokers)",
                "for id_ in sorted(brokers) if False",
            ),
        ),
    ),
    PlantedBug(
        "a registration without directories loses them all",
        "What a registration leaves out is lost.",
        (
            Edit(
                MetadataState._knows_directories,
                "bool(record.log_dirs) or is_directory_assignment_supported(self.metadata_version)",
                "True",
            ),
        ),
    ),
)

# Those with a scenario of their own.
OTHER_BUGS = (
    (
        "migration-two_rises_at_once",
        PlantedBug(
            "a broker amends its registration once in its life",
            "The level has risen, and the broker has registered for it.",
            (Edit(BrokerLifecycle._must_register_again, "self._lacking != self._amended", "self._amended is None"),),
        ),
    ),
    (
        "compatibility-disk_failure_after_a_downgrade",
        PlantedBug(
            "a broker goes on without one of its directories at any level",
            "The other directories are as good as ever.",
            (Edit(directory_support.reason_to_end, "not offline or", "True or"),),
        ),
    ),
    (
        "compatibility-fewer_directories_after_a_downgrade",
        PlantedBug(
            "a broker is unfenced without the log of an ISR member",
            "Below 3.7-IV2 there are no assignments to wait for.",
            (Edit(hosted_replicas.is_settled, "return not place.is_missing", "return True"),),
        ),
    ),
    (
        "compatibility-downgrade_with_a_lost_replica",
        PlantedBug(
            "an unsafe downgrade forgets which replicas are LOST",
            "It deletes whatever the lower level cannot express.",
            (Edit(feature_losses.Losses.reason_to_refuse, "if not self.lost_leaders", "if True"),),
        ),
    ),
    (
        "compatibility-disk_failure_during_a_controlled_shutdown",
        PlantedBug(
            "a broker that is shutting down halts for a directory",
            "Below 3.7-IV2 a broker ends when a directory fails.",
            (
                Edit(
                    BrokerDaemon._ends_without_directory,
                    "in (BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN)",
                    "in ()",
                ),
            ),
        ),
    ),
)


def recorded(scenario: str) -> str:
    (path,) = (each for each in scenario_files() if each.stem == scenario)
    return path.read_text()


@pytest.mark.parametrize(
    ("scenario", "bug"),
    [*((SCENARIO, bug) for bug in BUGS), *OTHER_BUGS],
    ids=lambda each: each.name if isinstance(each, PlantedBug) else "",
)
def test_the_recorded_scenario_finds(scenario: str, bug: PlantedBug) -> None:
    """With the bug, the scenario fails or shows something else."""
    expected = recorded(scenario)
    with bug.planted():
        try:
            shown = play(expected, seed=1)
        except (ScenarioFailed, ExceptionGroup, AssertionError):
            return
    assert shown != expected
