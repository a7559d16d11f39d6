"""DescribeGroups and ListGroups (core)."""

from typing import Final

from broker.coordinator.core.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from broker.coordinator.core.consumer_group.consumer_group import CONSUMER_TYPE, ConsumerGroup
from broker.coordinator.core.group_state import GroupState
from common.protocol.errors import ErrorCode, cut_message
from common.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from common.protocol.messages.list_groups import ListedGroup, ListGroupsRequest

CLASSIC_TYPE: Final = "classic"


def describe_group(group: ClassicGroup) -> DescribedGroup:
    """Describes the group. Only a stable group shows its protocol and its members' metadata."""
    is_stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=group.metadata_of(member) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members
        ],
    )


def describe_missing_group(group_id: str, *, knows_missing_groups: bool, is_consumer_group: bool) -> DescribedGroup:
    """Describes a group that does not exist, or that ConsumerGroupDescribe describes, as dead. Older clients take an error
    for a failure of the request."""
    described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if knows_missing_groups:
        described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        described.error_message = cut_message(
            f"Group {group_id} {'is not a classic group' if is_consumer_group else 'not found'}."
        )
    return described


def list_group(group: ClassicGroup | ConsumerGroup) -> ListedGroup:
    protocol_type = group.protocol_type if isinstance(group, ClassicGroup) else CONSUMER_PROTOCOL_TYPE
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=protocol_type or "",
        group_state=group.state.value,
        group_type=_type(group),
    )


def _type(group: ClassicGroup | ConsumerGroup) -> str:
    return CLASSIC_TYPE if isinstance(group, ClassicGroup) else CONSUMER_TYPE


class GroupFilter:
    """What a ListGroups request asks for. Case and surrounding spaces of states and types do not matter. To be made once for
    all shards: a request of a few MiB may name 100,000s of states."""

    def __init__(self, request: ListGroupsRequest) -> None:
        self._states = {state.strip().lower() for state in request.states_filter}
        self._types = {each.strip().lower() for each in request.types_filter}

    def admits(self, group: ClassicGroup | ConsumerGroup) -> bool:
        has_type = not self._types or _type(group) in self._types
        return has_type and (not self._states or group.state.value.lower() in self._states)
