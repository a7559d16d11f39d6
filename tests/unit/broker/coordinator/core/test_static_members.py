"""Static members (KIP-345): they come back under the same name without a rebalance, and the former self is fenced."""

import pytest

from common.protocol.errors import ErrorCode
from common.protocol.messages.join_group import JoinGroupResponse
from common.protocol.messages.leave_group import MemberIdentity
from tests.unit.broker.coordinator.core.group_world import (
    OLD_CALLER,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    GroupWorld,
    subscription,
)


def static_group(world: GroupWorld, *instances: str, assigned: bool = True) -> list[str]:
    """Makes a group of these static members; returns their ids, the leader's first."""
    waiters = [world.join(instance=instance) for instance in instances]
    world.end_initial_rebalance()
    members = [world.answer(waiter).member_id for waiter in waiters]
    if assigned:
        world.assign(members)
    return members


def test_a_static_member_joins_at_once_under_its_own_name() -> None:
    world = GroupWorld()
    waiter = world.join(instance="one")
    world.end_initial_rebalance()
    answer: JoinGroupResponse = world.answer(waiter)
    assert answer.member_id == "one-id1"
    assert [each.group_instance_id for each in answer.members] == ["one"]


def test_a_restarted_follower_gets_a_new_id_and_its_old_assignment() -> None:
    """No rebalance happens, and the new id is in the log."""
    world = GroupWorld()
    leader, follower = static_group(world, "one", "two")
    answer: JoinGroupResponse = world.answer(world.join(instance="two"))
    assert (answer.error_code, answer.generation_id, answer.leader) == (ErrorCode.NONE, 1, leader)
    assert (answer.skip_assignment, answer.members) == (False, [])
    assert answer.member_id != follower
    assert world.synced(world.sync(answer.member_id, instance="two")) == follower.encode()
    assert world.state() == "Stable"
    world.reload()
    assert world.heartbeat(answer.member_id, instance="two") == "NONE"


def test_a_returned_member_has_a_session_of_its_own() -> None:
    world = GroupWorld()
    leader, _ = static_group(world, "one", "two")
    world.advance(SESSION_MS - 1)
    world.heartbeat(leader, instance="one")
    returned = world.answer(world.join(instance="two")).member_id
    world.advance(SESSION_MS - 1)
    world.heartbeat(leader, instance="one")
    assert world.state() == "Stable"
    world.advance(1)
    assert world.heartbeat(returned, instance="two") == "UNKNOWN_MEMBER_ID"


def test_a_restarted_leader_must_not_assign() -> None:
    """KIP-814: it learns of the members and that the assignment stands."""
    world = GroupWorld()
    leader, follower = static_group(world, "one", "two")
    answer: JoinGroupResponse = world.answer(world.join(instance="one"))
    assert answer.leader == answer.member_id != leader
    assert answer.skip_assignment
    assert [each.member_id for each in answer.members] == [answer.member_id, follower]
    assert world.synced(world.sync(answer.member_id)) == leader.encode()


def test_a_restarted_leader_of_an_older_version_is_told_that_another_leads() -> None:
    """It cannot be told to skip the assignment, so it is made to believe that it follows."""
    world = GroupWorld()
    leader, _ = static_group(world, "one", "two")
    answer: JoinGroupResponse = world.answer(world.join(instance="one", caller=OLD_CALLER))
    assert (answer.leader, answer.members, answer.skip_assignment) == (leader, [], False)
    assert world.group().leader_id == answer.member_id


def test_the_former_self_is_fenced() -> None:
    world = GroupWorld()
    _, follower = static_group(world, "one", "two")
    world.join(instance="two")
    assert world.heartbeat(follower, instance="two") == "FENCED_INSTANCE_ID"
    assert world.heartbeat(follower) == "UNKNOWN_MEMBER_ID"
    assert world.error(world.sync(follower, instance="two")) == "FENCED_INSTANCE_ID"
    assert world.error(world.join(follower, instance="two")) == "FENCED_INSTANCE_ID"
    assert world.commit(1, member_id=follower, generation=1, instance="two") == "FENCED_INSTANCE_ID"
    assert world.leave(MemberIdentity(member_id=follower, group_instance_id="two")) == ["FENCED_INSTANCE_ID"]


def test_an_instance_id_that_nobody_has_is_unknown() -> None:
    world = GroupWorld()
    leader, _ = static_group(world, "one", "two")
    assert world.heartbeat(leader, instance="three") == "UNKNOWN_MEMBER_ID"


def test_a_request_of_the_former_self_that_waits_is_answered() -> None:
    """Both a join and a sync under way."""
    world = GroupWorld()
    first = world.join(instance="one")
    second = world.join(instance="one")
    assert world.error(first) == "FENCED_INSTANCE_ID"
    world.end_initial_rebalance()
    assert world.error(second) == "NONE"
    world.join(instance="two")
    world.join(world.answer(second).member_id)
    members = [member.member_id for member in world.group().members]
    sync = world.sync(members[1])
    world.join(instance="two")
    assert world.error(sync) == "FENCED_INSTANCE_ID"


def test_a_member_that_returns_while_the_leader_assigns_starts_a_new_rebalance() -> None:
    """The leader is assigning to the former id."""
    world = GroupWorld()
    leader, follower = static_group(world, "one", "two", assigned=False)
    waiter = world.join(instance="two")
    assert world.state() == "PreparingRebalance"
    world.join(leader, instance="one")
    assert world.answer(waiter).generation_id == 2
    assert world.answer(waiter).member_id != follower


def test_a_member_that_returns_during_the_join_phase_joins_it() -> None:
    world = GroupWorld()
    leader, _ = static_group(world, "one", "two")
    join = world.join(leader, instance="one")
    waiter = world.join(instance="two")
    assert (world.answer(join).generation_id, world.answer(waiter).generation_id) == (2, 2)


def test_a_member_that_returns_with_another_preference_makes_the_group_rebalance() -> None:
    """The group's protocol would change."""
    world = GroupWorld()
    both, swapped = {"a": b"1", "b": b"2"}, {"b": b"2", "a": b"1"}
    waiter = world.join(instance="one", protocols=both)
    world.end_initial_rebalance()
    world.assign([world.answer(waiter).member_id])
    waiter = world.join(instance="one", protocols=swapped)
    assert (world.answer(waiter).generation_id, world.answer(waiter).protocol_name) == (2, "b")


def test_a_member_that_returns_with_another_subscription_changes_what_the_group_reads() -> None:
    world = GroupWorld()
    static_group(world, "one")
    world.join(instance="one", protocols={"range": subscription("u")})
    assert world.group().subscribed_topics == frozenset({"u"})


def test_a_static_member_has_until_the_end_of_its_session_to_come_back() -> None:
    """It does not rejoin a rebalance, and the group waits for it only as long as the rebalance timeout."""
    world = GroupWorld()
    leader, follower = static_group(world, "one", "two")
    waiter = world.join(leader, instance="one")
    for _ in range(REBALANCE_MS // 5_000):
        world.heartbeat(follower, instance="two")
        world.advance(5_000)
    assert [each.group_instance_id for each in world.answer(waiter).members] == ["one", "two"]


def test_a_group_whose_static_members_all_fail_becomes_empty() -> None:
    """Nobody rejoins, so the sessions remove the members one by one."""
    world = GroupWorld()
    static_group(world, "one", "two")
    world.join(instance="three")
    world.advance(10 * REBALANCE_MS)
    assert world.state() == "Empty"
    assert world.waiting == set()


def test_nobody_waits_for_ever_for_a_static_member_that_only_heartbeats() -> None:
    """Nobody joins in the time of the first round. In the second one does, and need not wait for the other."""
    world = GroupWorld()
    leader, follower = static_group(world, "one", "two")
    newcomer = world.new_id()
    world.join(newcomer)
    world.leave(newcomer)
    waiter = None
    for second in range(2 * REBALANCE_MS // 1_000):
        if second == REBALANCE_MS // 1_000 + 5:
            waiter = world.join(leader, instance="one")
        world.heartbeat(leader, instance="one")
        world.heartbeat(follower, instance="two")
        world.advance(1_000)
    assert waiter is not None
    assert world.answer(waiter).generation_id == 2


def test_a_static_member_without_heartbeats_is_removed() -> None:
    world = GroupWorld()
    leader, follower = static_group(world, "one", "two")
    world.advance(SESSION_MS - 1)
    world.heartbeat(leader, instance="one")
    world.advance(1)
    assert world.heartbeat(follower, instance="two") == "UNKNOWN_MEMBER_ID"
    assert world.heartbeat(leader, instance="one") == "REBALANCE_IN_PROGRESS"


@pytest.mark.parametrize("member_id", ["", "its id"])
def test_a_static_member_is_removed_by_its_name(member_id: str) -> None:
    """An administrator need not know the member id."""
    world = GroupWorld()
    _, follower = static_group(world, "one", "two")
    leaving = MemberIdentity(member_id=follower if member_id else "", group_instance_id="two")
    assert world.leave(leaving) == ["NONE"]
    assert world.leave(leaving) == ["UNKNOWN_MEMBER_ID"]
    assert world.group().size == 1


def test_a_pending_id_is_not_for_static_members() -> None:
    world = GroupWorld()
    member_id = world.new_id()
    assert world.error(world.join(member_id, instance="one")) == "UNKNOWN_MEMBER_ID"


def test_a_returned_member_too_large_for_a_record_joins_a_rebalance_instead() -> None:
    """The group cannot be written, so its new id could not be kept."""
    world = GroupWorld(batch_bytes_max=2_000)
    static_group(world, "one")
    waiter = world.join(instance="one", protocols={"range": RANGE["range"] + bytes(3_000)})
    assert world.answer(waiter).generation_id == 2
    assert not world.answer(waiter).skip_assignment
