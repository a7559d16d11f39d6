"""Chooses the brokers of new replicas, and the directory if a broker has only one (core).

Counterpart of Kafka's StripedReplicaPlacer.

1. Leaders rotate through all usable brokers.
2. Each follower goes to one of the racks that have the fewest replicas of the partition, so no rack has two more than
   another one that could take a further one. The first candidate shifts after each full rotation, so that the partitions of
   one leader do not all have the same followers. Within a rack, the brokers take turns.
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
    turns = _RackTurns(usable, shift)
    result: list[tuple[BrokerId, ...]] = []
    for partition in range(partitions):
        turn = start + partition
        leader = turn % len(usable)
        others = _rotated(usable[leader + 1 :] + usable[:leader], shift + partition // len(usable))
        others = turns.ordered(usable[leader], others)
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


class _RackTurns:
    """Lets the brokers of each rack take turns as followers. In the order of the leaders, the distance between two brokers
    of a rack depends on the sizes of the other racks: the first one after a long gap would be chosen most often."""

    def __init__(self, usable: Sequence[PlacementBroker], shift: int) -> None:
        # How many partitions follow until each broker has led the same number.
        self._rotation = self._left = len(usable)
        self._members: dict[str | None, list[PlacementBroker]] = {}
        for broker in usable:
            self._members.setdefault(broker.rack, []).append(broker)
        self._has_turns = len({len(members) for members in self._members.values()}) > 1
        # For each rack, how many partitions had their leaders in other racks, plus the shift.
        self._turns = dict.fromkeys(self._members, shift)

    def ordered(self, leader: PlacementBroker, others: list[PlacementBroker]) -> list[PlacementBroker]:
        """Returns `others`, with the brokers of each rack other than the leader's in the order of their turns. Where all
        racks have the same size, every distance is the same, and the order is kept."""
        if not self._has_turns:
            return others
        queues = {}
        for rack, members in self._members.items():
            if rack != leader.rack:
                queues[rack] = iter(_rotated(members, self._turns[rack]))
                self._turns[rack] += 1
        self._left -= 1
        if self._left == 0:
            self._left = self._rotation
            self._shift()
        return [next(queues[broker.rack]) if broker.rack in queues else broker for broker in others]

    def _shift(self) -> None:
        """Shifts the turns that would otherwise give each leader the same followers again."""
        for rack, members in self._members.items():
            if self._rotation % len(members) == 0:
                self._turns[rack] += 1


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
