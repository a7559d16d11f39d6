"""The rule by which a directory counts as online, and small look-ups."""

import pytest

from common.ids import BrokerEpoch, BrokerId, DirectoryId, IncarnationId, LeaderEpoch, PartitionEpoch
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.registrations import (
    BrokerEndpoint,
    BrokerRegistration,
    PartitionRegistration,
    SupportedFeature,
)
from tests.unit.common.metadata.builders import directory, uuid

A, B, C = directory(1), directory(2), directory(3)


def broker(*directories: DirectoryId, lost: tuple[DirectoryId, ...] = ()) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=BrokerId(1),
        epoch=BrokerEpoch(7),
        incarnation_id=IncarnationId(uuid(9)),
        endpoints=(BrokerEndpoint("CLIENT", "h", 9092, 0), BrokerEndpoint("INTERNAL", "h", 9093, 0)),
        features=(SupportedFeature("metadata.version", 1, 22),),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        directories=directories,
        lost_directories=lost,
    )


@pytest.mark.parametrize(
    ("registration", "directory_id", "online"),
    [
        # Several directories registered: membership decides.
        (broker(A, B), A, True),
        (broker(A, B), C, False),
        (broker(A, lost=(B,)), B, False),
        # A single directory is no exception: a two-disk broker that started with one dead disk registers one.
        (broker(A), A, True),
        (broker(A), B, False),
        # No directory registered: the broker is older than directory assignment.
        (broker(), A, True),
        # Not known where: online, because the broker alone can tell and has not.
        (broker(A, B), UNASSIGNED, True),
        (broker(A, B), MIGRATING, True),
        (broker(), UNASSIGNED, True),
        (broker(), MIGRATING, True),
        # LOST is offline always.
        (broker(A, B), LOST, False),
        (broker(A), LOST, False),
        (broker(), LOST, False),
        # A reserved id without a meaning is an id like any other.
        (broker(A), DirectoryId(uuid(0)), False),
    ],
)
def test_a_directory_is_online_unless_lost_or_missing_from_a_known_list(
    registration: BrokerRegistration, directory_id: DirectoryId, online: bool
) -> None:
    """The one table of who counts as online: docs/DESIGN.md, "Which replica is online"."""
    assert registration.has_online_directory(directory_id) is online


def test_endpoints_and_features_are_found_by_name() -> None:
    """A missing name gives None."""
    registration = broker(A)
    assert registration.endpoint("INTERNAL") == BrokerEndpoint("INTERNAL", "h", 9093, 0)
    assert registration.endpoint("CONTROLLER") is None
    assert registration.feature("metadata.version") == SupportedFeature("metadata.version", 1, 22)
    assert registration.feature("group.version") is None


def partition(replicas: tuple[int, ...], directories: tuple[DirectoryId, ...]) -> PartitionRegistration:
    members = tuple(map(BrokerId, replicas))
    return PartitionRegistration(members, directories, members, (), (), members[0], 0, LeaderEpoch(0), PartitionEpoch(0))


def test_directory_of_a_replica() -> None:
    """Each replica's directory is found by its broker; a broker without replica is a KeyError."""
    registration = partition((3, 1, 2), (A, B, LOST))
    assert [registration.directory(BrokerId(each)) for each in (1, 2, 3)] == [B, LOST, A]
    with pytest.raises(KeyError):
        registration.directory(BrokerId(4))
