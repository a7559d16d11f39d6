"""Long operations in slices, on whole clusters: every slice is so small that ordinary operations have several."""

import pytest

from broker.controller_link import metadata_follower
from controller import quorum_controller
from controller.core import long_decisions
from controller.quorum_controller import QuorumController
from tests.simulation.swarm import run_seed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def tiny_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller decides about one partition in a step, replays and appends two records in a step, and makes a metadata
    transaction of four records. Brokers replay two records of a transaction in a step."""
    monkeypatch.setattr(long_decisions, "PARTITIONS_PER_SLICE", 1)
    monkeypatch.setattr(quorum_controller, "RECORDS_PER_SLICE", 2)
    monkeypatch.setattr(metadata_follower, "REPLAY_SLICE", 2)
    defaults = QuorumController.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "records_per_batch_max", 3)


@pytest.mark.usefixtures("tiny_slices")
def test_a_seed_of_trouble_ends_well_in_slices() -> None:
    """Disks, links and daemons fail between the slices too. Every node has the same image at the same offset, nothing that
    was acknowledged is lost, and all replicas are in sync in the end."""
    report = run_seed(7)
    assert report.faults
    assert report.acknowledged > 0
