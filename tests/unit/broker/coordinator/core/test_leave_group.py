"""LeaveGroup in every state."""

import pytest

from common.protocol.errors import ErrorCode
from common.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from common.records.group_records import decode_group
from tests.unit.broker.coordinator.core.group_world import INITIAL_DELAY_MS, GroupWorld


def test_the_others_rebalance_when_a_member_leaves() -> None:
    world = GroupWorld()
    leader, follower = world.stable_group()
    assert world.leave(follower) == ["NONE"]
    assert world.heartbeat(leader) == "REBALANCE_IN_PROGRESS"
    assert len(world.answer(world.join(leader)).members) == 1


def test_the_eldest_member_leads_when_the_leader_leaves() -> None:
    world = GroupWorld()
    leader, second, third = world.stable_group(3)
    world.leave(leader)
    waiters = [world.join(third), world.join(second)]
    assert {world.answer(waiter).leader for waiter in waiters} == {second}


def test_the_group_is_empty_when_the_last_member_leaves() -> None:
    """The empty group is written at once, so that its offsets expire in time."""
    world = GroupWorld()
    members = world.stable_group()
    assert world.leave(*members) == ["NONE", "NONE"]
    assert world.state() == "Empty"
    _, value = world.log[-1]
    assert value is not None
    written = decode_group(value)
    assert (written.generation, written.protocol_type, written.protocol, written.leader) == (2, "consumer", None, None)
    assert (written.current_state_timestamp, written.members) == (world.now_ms, [])
    assert not world.timers


def test_several_members_leave_with_one_rebalance() -> None:
    """Each has its own result, also those that are not there."""
    world = GroupWorld()
    leader, second, third = world.stable_group(3)
    assert world.leave(second, "stranger", third, second, "") == [
        "NONE",
        "UNKNOWN_MEMBER_ID",
        "NONE",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
    ]
    assert world.answer(world.join(leader)).generation_id == 2


def test_the_last_one_awaited_completes_the_rebalance_by_leaving() -> None:
    world = GroupWorld()
    leader, follower = world.stable_group()
    waiter = world.join(leader)
    world.leave(follower)
    assert world.answer(waiter).generation_id == 2


def test_a_member_that_leaves_while_its_join_waits_is_answered() -> None:
    world = GroupWorld()
    _, first = world.join_with_new_id()
    member_id, second = world.join_with_new_id()
    world.leave(member_id)
    assert world.error(second) == "UNKNOWN_MEMBER_ID"
    world.end_initial_rebalance()
    assert len(world.answer(first).members) == 1


def test_a_member_that_is_removed_while_its_sync_waits_is_answered() -> None:
    """An administrator removes it. In Kafka such a request waits until the client gives up."""
    world = GroupWorld()
    leader, follower = world.completing_group()
    waiter = world.sync(follower)
    world.leave(follower)
    assert world.error(waiter) == "UNKNOWN_MEMBER_ID"
    assert world.answer(world.join(leader)).generation_id == 2


def test_a_pending_member_leaves_without_a_rebalance() -> None:
    world = GroupWorld()
    world.stable_group()
    pending = world.new_id()
    assert world.leave(pending) == ["NONE"]
    assert world.state() == "Stable"
    assert world.error(world.join(pending)) == "UNKNOWN_MEMBER_ID"


def test_nobody_waits_for_a_pending_member_that_left() -> None:
    world = GroupWorld()
    leader, follower = world.stable_group()
    pending = world.new_id()
    waiters = [world.join(leader), world.join(follower)]
    assert world.waiting == set(waiters)
    world.leave(pending)
    assert [world.error(waiter) for waiter in waiters] == ["NONE", "NONE"]


def test_the_initial_rebalance_goes_on_when_a_pending_member_leaves() -> None:
    world = GroupWorld()
    _, waiter = world.join_with_new_id()
    world.leave(world.new_id())
    assert waiter in world.waiting
    world.advance(INITIAL_DELAY_MS)
    assert world.error(waiter) == "NONE"


def test_a_group_that_does_not_exist_has_no_members_to_leave() -> None:
    world = GroupWorld()
    assert world.leave("one", "two", group="missing") == ["UNKNOWN_MEMBER_ID"] * 2


def test_an_empty_group_id_is_invalid() -> None:
    world = GroupWorld()
    waiter = world.waiter()
    request = LeaveGroupRequest(members=[MemberIdentity(member_id="m")])
    world.carry_out(*world.shard.leave_group(world.now, waiter, request))
    assert world.answer(waiter).error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("instance", [None, "unknown"])
def test_without_a_member_id_only_a_known_instance_can_be_removed(instance: str | None) -> None:
    world = GroupWorld()
    world.stable_group()
    assert world.leave(MemberIdentity(group_instance_id=instance)) == ["UNKNOWN_MEMBER_ID"]
    assert world.state() == "Stable"


def test_leaving_and_joining_again_gives_a_new_id() -> None:
    world = GroupWorld()
    (member_id,) = world.stable_group(1)
    world.leave(member_id)
    again, waiter = world.join_with_new_id()
    assert again != member_id
    world.end_initial_rebalance()
    assert world.answer(waiter).generation_id == 3
