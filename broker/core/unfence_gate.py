"""What a new incarnation waits for before it asks to be unfenced (core, KIP-858).

The rule is in docs/DESIGN.md, "Registration and fencing".

At the first image at or past its registration the broker fixes the set of its replicas that are not settled
(`hosted_replicas.is_settled`), and asks to unfence when each of these is settled in *applied* metadata. The set is fixed
once: assignments that come up later never count, and a running broker never fences itself for them.
"""

from collections.abc import Callable, Iterable

from broker.core.hosted_replicas import ReplicaPlace, is_settled
from common.ids import TopicIdPartition


class UnfenceGate:
    """Open once every replica of the fixed set is settled. Below metadata.version 17 it is opened with an empty set."""

    def __init__(self) -> None:
        # None until the set is fixed. Invariant: only shrinks from then on.
        self._waiting: dict[TopicIdPartition, None] | None = None

    @property
    def is_fixed(self) -> bool:
        return self._waiting is not None

    @property
    def is_open(self) -> bool:
        return self._waiting is not None and not self._waiting

    @property
    def waiting(self) -> tuple[TopicIdPartition, ...]:
        """What is still waited for, for the operator."""
        return tuple(self._waiting or ())

    def fix(self, replicas: Iterable[TopicIdPartition], place_of: Callable[[TopicIdPartition], ReplicaPlace]) -> None:
        """Fixes the set: those of `replicas` that are not settled. May be called once."""
        assert self._waiting is None, "the set is fixed once per incarnation"
        self._waiting = {replica: None for replica in replicas if not is_settled(place_of(replica))}

    def update(self, place_of: Callable[[TopicIdPartition], ReplicaPlace]) -> None:
        """Drops what is settled by now."""
        if self._waiting is None:
            return
        for replica in list(self._waiting):
            if is_settled(place_of(replica)):
                del self._waiting[replica]
