"""A member of a classic group (core). Counterpart of Kafka's ClassicGroupMember."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from broker.coordinator.core.result import Waiter
from common.protocol.messages.join_group import JoinGroupRequestProtocol

Protocols = Mapping[str, bytes]


@dataclass(slots=True, eq=False, kw_only=True)
class GroupMember:
    """One member. A member that only knows its new id and has not joined with it yet is no GroupMember but pending."""

    # Never changes. A static member that comes back is replaced by a member with a new id.
    member_id: str
    # The name of a static member (KIP-345), None for a dynamic one. Never changes.
    group_instance_id: str | None
    # As of the join that made this member.
    client_id: str
    client_host: str
    # As of the last JoinGroup that took part in a rebalance.
    rebalance_timeout_ms: int
    session_timeout_ms: int
    # The protocols by name with the member's metadata for each, the preferred one first; as of the same JoinGroup. Of a
    # member that was loaded from the log, only the protocol of its generation is known.
    protocols: Protocols
    # What the leader gave this member in the last completed sync. Invariant: empty while a member of a new generation waits
    # for it.
    assignment: bytes = b""
    # The JoinGroup that waits for the rebalance to complete. Invariant: only in PreparingRebalance. Set and cleared by
    # ClassicGroup alone, which counts these members.
    join_waiter: Waiter | None = None
    # The SyncGroup that waits for the leader's assignment. Invariant: only in CompletingRebalance.
    sync_waiter: Waiter | None = None
    # Whether the member has not been in a completed rebalance yet. Its JoinGroup then does not stand for a heartbeat: the
    # client may have given up and joined again as yet another member.
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_alive_by_waiting(self) -> bool:
        """Whether a waiting request keeps the member in the group although its session timer has fired."""
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def has_same_protocols(self, protocols: Protocols) -> bool:
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: Container[str]) -> str:
        """Returns the candidate that the member prefers."""
        return next(name for name in self.protocols if name in candidates)


def protocols_of(requested: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """Returns the protocols by name. Of a name that is given twice, the first counts."""
    protocols: dict[str, bytes] = {}
    for each in requested:
        protocols.setdefault(each.name, each.metadata)
    return protocols
