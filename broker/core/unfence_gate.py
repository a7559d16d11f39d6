"""What a new incarnation waits for before it asks to be unfenced (core, KIP-858).

docs/DESIGN.md, "Registration and fencing", has the rule. At the first metadata image that contains its registration, the
broker collects its replicas that are not settled (`hosted_replicas.is_settled`). It asks to be unfenced once the *applied*
metadata settles all of them. The set is fixed once: assignments that come up later do not count, and a running broker
never fences itself because of them.

Below metadata.version 17 the controller records no assignments. Then the broker waits only for replicas that are missing
(`HostedReplicas.is_missing`), each until it leaves the ISR, or until the level rises and the metadata says LOST.
"""

from collections.abc import Callable, Iterable

from broker.core.hosted_replicas import ReplicaPlace, is_settled
from common.ids import TopicIdPartition


class UnfenceGate:
    """Opens once every replica of the fixed set is settled."""

    def __init__(self) -> None:
        # The replicas that are not settled yet; None until the set is fixed. Invariant: only shrinks from then on.
        self._waiting: dict[TopicIdPartition, None] | None = None

    @property
    def is_fixed(self) -> bool:
        return self._waiting is not None

    @property
    def is_open(self) -> bool:
        return self._waiting is not None and not self._waiting

    @property
    def waiting(self) -> tuple[TopicIdPartition, ...]:
        """The replicas that keep the gate shut, for logs and metrics."""
        return tuple(self._waiting or ())

    def fix(self, replicas: Iterable[TopicIdPartition], place_of: Callable[[TopicIdPartition], ReplicaPlace]) -> None:
        """Fixes the set to those of `replicas` that are not settled. Must be called only once."""
        assert self._waiting is None, "the set is fixed once per incarnation"
        self._waiting = {replica: None for replica in replicas if not is_settled(place_of(replica))}

    def update(self, place_of: Callable[[TopicIdPartition], ReplicaPlace]) -> None:
        """Drops the replicas that are settled by now."""
        if self._waiting is None:
            return
        for replica in list(self._waiting):
            if is_settled(place_of(replica)):
                del self._waiting[replica]
