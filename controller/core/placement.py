"""Chooses the brokers of new replicas, and the directory if a broker has only one (core).

Counterpart of Kafka's StripedReplicaPlacer.

1. Leaders rotate through all usable brokers.
2. Each follower goes to one of the racks that have the fewest replicas of the partition, so no rack has two more than
   another one that could take a further one. The first candidate shifts after each full rotation, so that the partitions of
   one leader do not all have the same followers.
3. A broker that is fenced or shutting down is the last choice, and never the first replica.
4. Only the starting points are random, drawn from the caller's random source.
5. A broker whose directories are all cordoned gets no replica (KIP-1066).
6. A broker with several directories chooses the directory itself (KIP-858).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from common.ids import BrokerId, DirectoryId
from common.metadata import metadata_version
from common.metadata.directory_ids import MIGRATING, UNASSIGNED
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode


class RandomSource(Protocol):
    """The part of random.Random that placement needs."""

    def randrange(self, stop: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class PlacementBroker:
    """A registered broker. `is_usable` means neither fenced nor shutting down."""

    broker_id: BrokerId
    rack: str | None
    is_usable: bool


def placement_brokers(state: MetadataState) -> list[PlacementBroker]:
    """Returns the registered brokers, sorted by id, without those whose directories are all cordoned."""
    return [
        PlacementBroker(broker_id, registration.rack, not (registration.fenced or registration.in_controlled_shutdown))
        for broker_id, registration in sorted(state.brokers.items())
        if not registration.is_cordoned
    ]


def default_directory(state: MetadataState, broker_id: BrokerId) -> DirectoryId:
    """Returns the directory to record for a new replica until the broker assigns one."""
    if not metadata_version.is_directory_assignment_supported(state.metadata_version):
        return MIGRATING
    registration = state.brokers.get(broker_id)
    if registration is None:
        return UNASSIGNED
    if not registration.directories:
        return MIGRATING
    return registration.directories[0] if len(registration.directories) == 1 else UNASSIGNED


def place_replicas(
    brokers: Sequence[PlacementBroker], *, partitions: int, replication_factor: int, rng: RandomSource
) -> list[tuple[BrokerId, ...]]:
    """Returns each partition's replicas, preferred leader first. Raises ApiError(INVALID_REPLICATION_FACTOR)."""
    if replication_factor > len(brokers):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs as many brokers, {len(brokers)} are registered and have a log "
            "directory that is not cordoned",
        )
    usable = _interleaved([broker for broker in brokers if broker.is_usable])
    if not usable:
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "every broker is fenced or shutting down")
    unusable = _interleaved([broker for broker in brokers if not broker.is_usable])
    start, shift = rng.randrange(len(usable)), rng.randrange(len(usable))
    result: list[tuple[BrokerId, ...]] = []
    for partition in range(partitions):
        turn = start + partition
        leader = turn % len(usable)
        others = _rotated(usable[leader + 1 :] + usable[:leader], shift + partition // len(usable))
        chosen = [usable[leader]]
        _choose(chosen, others, replication_factor)
        _choose(chosen, _rotated(unusable, turn), replication_factor)
        result.append(tuple(broker.broker_id for broker in chosen))
    return result


def _interleaved(brokers: Iterable[PlacementBroker]) -> list[PlacementBroker]:
    """Orders the brokers so that neighbours are in different racks, as far as possible."""
    racks: dict[str, list[PlacementBroker]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack or "", []).append(broker)
    waiting = [racks[rack] for rack in sorted(racks)]
    result: list[PlacementBroker] = []
    for row in range(max(map(len, waiting), default=0)):
        result += [rack[row] for rack in waiting if row < len(rack)]
    return result


def _rotated(brokers: list[PlacementBroker], by: int) -> list[PlacementBroker]:
    if not brokers:
        return brokers
    cut = by % len(brokers)
    return brokers[cut:] + brokers[:cut]


def _choose(chosen: list[PlacementBroker], candidates: Sequence[PlacementBroker], size: int) -> None:
    """Extends `chosen` up to `size`, each time with the first candidate from a rack that has the fewest replicas."""
    left = list(candidates)
    replicas = Counter(broker.rack for broker in chosen)
    fewest = 0
    while left and len(chosen) < size:
        pick = next((broker for broker in left if replicas[broker.rack] == fewest), None)
        if pick is None:
            fewest += 1
            continue
        left.remove(pick)
        chosen.append(pick)
        replicas[pick.rack] += 1
