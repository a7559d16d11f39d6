"""A member of a consumer group (core). Counterpart of Kafka's ConsumerGroupMember and MemberState.

A member goes from epoch to epoch by itself. What it owns is known from its heartbeats:

            a newer target, nothing to revoke
           +------------------------------------+
           |                                    v
        STABLE ---- must revoke ----> UNREVOKED_PARTITIONS ---- all revoked ----> STABLE or UNRELEASED_PARTITIONS
           |                                                                          |          ^
           +-- others still own what it is to get --> UNRELEASED_PARTITIONS ----------+----------+
                                                                      with each partition that is released

A member in UNREVOKED_PARTITIONS stays in its epoch until it has confirmed the revocation. In the other two states it is in
the epoch of the target assignment to which it was last reconciled.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from broker.coordinator.core.consumer_group.assignment import Assignment, Epochs
from common.ids import TopicId

# The epochs of requests that are no heartbeats of a member in the group.
JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2


class MemberState(IntEnum):
    """The value is the number in records. UNKNOWN is a state that a later release has written."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMembership:
    """What a member that speaks the classic protocol has said with its JoinGroup."""

    session_timeout_ms: int
    # The protocols by name with the member's metadata for each, the preferred one first. Invariant: not empty.
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_name(self) -> str:
        """The protocol that JoinGroup answers with. The coordinator assigns, so it is only a name."""
        return self.protocols[0][0]

    @property
    def metadata(self) -> bytes:
        """A consumer subscribes to the same topics by each of its protocols."""
        return self.protocols[0][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member as of its last change. It is replaced, never changed."""

    member_id: str
    # The name of a static member (KIP-345), None for a dynamic one.
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    # None if the member subscribes by names only.
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    # The assignor that the member asks for, None if it takes any.
    server_assignor: str | None = None
    # None of a member that sends ConsumerGroupHeartbeat.
    classic: ClassicMembership | None = None

    # LEAVING_STATIC_EPOCH while a static member is away. Never falls otherwise.
    epoch: int = JOINING_EPOCH
    # A member that has missed the answer with its new epoch sends this one again.
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    # What the member owns or has just been told to own. Invariant: no other member of the group has any of it.
    assigned: Assignment = field(default_factory=dict)
    # What the member has owned and not yet confirmed as revoked. Invariant: as for `assigned`; and empty, except in
    # UNREVOKED_PARTITIONS.
    pending_revocation: Assignment = field(default_factory=dict)
    # The epoch in which the member was given each partition of the two (KIP-1251). Invariant: has these and no others.
    assignment_epochs: Epochs = field(default_factory=dict)

    @property
    def is_away(self) -> bool:
        """Whether this is a static member that has left and may come back."""
        return self.epoch == LEAVING_STATIC_EPOCH

    def may_commit(self, epoch: int, topic_id: TopicId, index: int) -> bool:
        """Whether the member has had the partition without a break since it was in this epoch."""
        given_in = self.assignment_epochs.get(topic_id, {}).get(index)
        return given_in is not None and given_in <= epoch

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch
