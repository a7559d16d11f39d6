"""Replica placement: spread over brokers and racks, unusable brokers last, deterministic for a given seed."""

import random
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import pytest

from common.ids import BrokerId
from common.metadata.directory_ids import MIGRATING, UNASSIGNED
from common.protocol.errors import ApiError, ErrorCode
from controller.core.placement import PlacementBroker, default_directory, place_replicas
from tests.unit.controller.core.context import ControllerContext, directory


def brokers(racks: Mapping[int, str | None], unusable: tuple[int, ...] = ()) -> list[PlacementBroker]:
    return [PlacementBroker(BrokerId(each), rack, each not in unusable) for each, rack in racks.items()]


def place(
    racks: Mapping[int, str | None], partitions: int, factor: int, *, unusable: tuple[int, ...] = (), seed: int = 1
) -> list[tuple[BrokerId, ...]]:
    return place_replicas(
        brokers(racks, unusable), partitions=partitions, replication_factor=factor, rng=random.Random(seed)
    )


NO_RACKS = dict.fromkeys(range(1, 6), None)
THREE_RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}


@pytest.mark.parametrize("seed", range(5))
def test_every_replica_is_on_another_broker(seed: int) -> None:
    """No two replicas of a partition are on the same broker, for any seed."""
    for replicas in place(NO_RACKS, 40, 3, seed=seed):
        assert len(set(replicas)) == 3


@pytest.mark.parametrize("seed", range(5))
def test_leaders_and_replicas_are_spread_evenly(seed: int) -> None:
    """A number of partitions that is a multiple of the number of brokers gives each broker the same share."""
    placed = place(NO_RACKS, 20, 3, seed=seed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {4}
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {12}


def test_followers_of_one_leader_vary() -> None:
    """If a broker fails, its load moves to more than one other broker."""
    placed = place(NO_RACKS, 20, 2)
    for leader in NO_RACKS:
        assert len({replicas[1] for replicas in placed if replicas[0] == leader}) == 4


@pytest.mark.parametrize("seed", range(5))
def test_replicas_are_in_as_many_racks_as_there_are(seed: int) -> None:
    """Three replicas use three racks. With four replicas, one rack has two."""
    for replicas in place(THREE_RACKS, 24, 3, seed=seed):
        assert {THREE_RACKS[broker] for broker in replicas} == {"a", "b", "c"}
    for replicas in place(THREE_RACKS, 24, 4, seed=seed):
        assert {THREE_RACKS[broker] for broker in replicas} == {"a", "b", "c"}


@pytest.mark.parametrize("seed", range(5))
def test_no_rack_has_two_replicas_more_than_another_one(seed: int) -> None:
    """Of four replicas in two racks, two are left when a rack fails. A rack that has no other broker takes fewer."""
    two_racks = {1: "a", 2: "a", 3: "a", 4: "b", 5: "b", 6: "b"}
    for replicas in place(two_racks, 24, 4, seed=seed):
        assert Counter(two_racks[broker] for broker in replicas) == {"a": 2, "b": 2}
    uneven = {1: "a", 2: "a", 3: "a", 4: "a", 5: "b", 6: "c", 7: "c"}
    for replicas in place(uneven, 28, 5, seed=seed):
        assert Counter(uneven[broker] for broker in replicas) == {"a": 2, "b": 1, "c": 2}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("racks", ["aaabbc", "abbcc", "aabbbc"])
def test_brokers_of_a_rack_get_the_same_share(racks: str, seed: int) -> None:
    """So they do where the racks have different sizes. The followers of a leader vary all the same."""
    rack_of = dict(enumerate(racks))
    placed = place(rack_of, 12 * len(racks), 3, seed=seed)
    shares = Counter(broker for replicas in placed for broker in replicas)
    for rack in "abc":
        in_rack = [shares[BrokerId(broker)] for broker in rack_of if rack_of[broker] == rack]
        assert max(in_rack) == min(in_rack)
        pairs = {(each[0], other) for each in placed for other in each[1:] if rack_of[other] == rack}
        outside = [broker for broker in rack_of if rack_of[broker] != rack]
        assert len(pairs) == len(outside) * len(in_rack)


def test_neighbouring_leaders_are_in_different_racks() -> None:
    """The rotation of leaders alternates between racks."""
    placed = place(THREE_RACKS, 12, 1)
    racks = [THREE_RACKS[replicas[0]] for replicas in placed]
    assert all(one != other for one, other in pairwise(racks))


def test_unusable_brokers_are_the_last_choice() -> None:
    """An unusable broker gets a replica only if no usable broker is left, even if that puts two replicas into one rack. It
    is never the first replica."""
    for replicas in place(THREE_RACKS, 20, 3, unusable=(5, 6)):
        assert not set(replicas) & {5, 6}
    for replicas in place(THREE_RACKS, 20, 5, unusable=(5, 6)):
        assert set(replicas[:4]) == {1, 2, 3, 4}
        assert replicas[4] in (5, 6)


def test_the_same_draw_gives_the_same_placement() -> None:
    """The caller's random source is the only source of randomness."""
    assert place(THREE_RACKS, 10, 3, seed=3) == place(THREE_RACKS, 10, 3, seed=3)
    assert len({tuple(place(THREE_RACKS, 10, 3, seed=seed)) for seed in range(10)}) > 1


def test_too_few_brokers() -> None:
    """Placement fails if more replicas than registered brokers are requested, or if no broker is usable."""
    for arguments in ((NO_RACKS, 1, 6, ()), (NO_RACKS, 1, 1, (1, 2, 3, 4, 5)), ({}, 1, 1, ())):
        racks, partitions, factor, unusable = arguments
        with pytest.raises(ApiError) as caught:
            place(racks, partitions, factor, unusable=unusable)
        assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_default_directories() -> None:
    """A broker's only directory is the default. With several directories, or for an unregistered broker, it is UNASSIGNED.
    Below metadata.version 17 it is MIGRATING."""
    controller = ControllerContext()
    controller.register(1, ["a"])
    controller.register(2, ["b", "c"])
    assert default_directory(controller.state, BrokerId(1)) == directory("a")
    assert default_directory(controller.state, BrokerId(2)) == UNASSIGNED
    assert default_directory(controller.state, BrokerId(3)) == UNASSIGNED
    old = ControllerContext(level=16)
    old.register(1, ["a"])
    assert default_directory(old.state, BrokerId(1)) == MIGRATING
