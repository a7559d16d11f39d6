"""The rule for whether a directory counts as online, and small look-ups."""

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
        # With several registered directories, membership decides.
        (broker(A, B), A, True),
        (broker(A, B), C, False),
        (broker(A, lost=(B,)), B, False),
        # A single directory is no exception. A two-disk broker that started with one dead disk registers only one.
        (broker(A), A, True),
        (broker(A), B, False),
        # A broker without registered directories predates directory assignment, so any directory counts as online.
        (broker(), A, True),
        # A replica whose directory is not known yet counts as online, because its broker has yet to report the directory.
        (broker(A, B), UNASSIGNED, True),
        (broker(A, B), MIGRATING, True),
        (broker(), UNASSIGNED, True),
        (broker(), MIGRATING, True),
        # LOST is always offline.
        (broker(A, B), LOST, False),
        (broker(A), LOST, False),
        (broker(), LOST, False),
        # Any other id is offline if it is not registered.
        (broker(A), DirectoryId(uuid(0)), False),
    ],
)
def test_a_directory_is_online_unless_lost_or_missing_from_a_known_list(
    registration: BrokerRegistration, directory_id: DirectoryId, online: bool
) -> None:
    """Checks the table in docs/DESIGN.md, "Which replica is online"."""
    assert registration.has_online_directory(directory_id) is online


def test_endpoints_and_features_are_found_by_name() -> None:
    """Endpoints and features are looked up by name. For an unknown name the result is None."""
    registration = broker(A)
    assert registration.endpoint("INTERNAL") == BrokerEndpoint("INTERNAL", "h", 9093, 0)
    assert registration.endpoint("CONTROLLER") is None
    assert registration.feature("metadata.version") == SupportedFeature("metadata.version", 1, 22)
    assert registration.feature("group.version") is None


def partition(replicas: tuple[int, ...], directories: tuple[DirectoryId, ...]) -> PartitionRegistration:
    members = tuple(map(BrokerId, replicas))
    return PartitionRegistration(members, directories, members, (), (), members[0], 0, LeaderEpoch(0), PartitionEpoch(0))


def test_directory_of_a_replica() -> None:
    """Each replica's directory is found by its broker. A broker that has no replica of the partition raises KeyError."""
    registration = partition((3, 1, 2), (A, B, LOST))
    assert [registration.directory(BrokerId(each)) for each in (1, 2, 3)] == [B, LOST, A]
    with pytest.raises(KeyError):
        registration.directory(BrokerId(4))
