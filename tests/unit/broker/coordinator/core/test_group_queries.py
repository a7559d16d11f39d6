"""DescribeGroups, ListGroups and DeleteGroups."""

import pytest

from common.protocol.codec import encode
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsResponse
from tests.unit.broker.coordinator.core.group_world import GROUP, OLD_CALLER, RANGE, SESSION_MS, GroupWorld

LONG = "g" * 32_767


def test_a_stable_group_shows_what_its_members_handed_in() -> None:
    world = GroupWorld()
    (member_id,) = world.stable_group(1)
    expected = DescribedGroupMember(
        member_id=member_id,
        client_id="client",
        client_host="/127.0.0.1",
        member_metadata=RANGE["range"],
        member_assignment=member_id.encode(),
    )
    assert world.describe() == DescribedGroup(
        group_id=GROUP, group_state="Stable", protocol_type="consumer", protocol_data="range", members=[expected]
    )


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_a_rebalancing_group_shows_only_who_is_in_it(state: str) -> None:
    world = GroupWorld()
    members = world.completing_group() if state == "CompletingRebalance" else [world.join_with_new_id()[0]]
    described = world.describe()
    assert (described.group_state, described.protocol_type, described.protocol_data) == (state, "consumer", "")
    assert [each.member_id for each in described.members] == members
    assert {(each.member_metadata, each.member_assignment) for each in described.members} == {(b"", b"")}


def test_a_new_generation_has_no_assignment_yet() -> None:
    world = GroupWorld()
    (member_id,) = world.stable_group(1)
    world.join(member_id)
    described = world.describe()
    assert described.group_state == "CompletingRebalance"
    assert [each.member_assignment for each in described.members] == [b""]


def test_static_members_show_their_name() -> None:
    world = GroupWorld()
    world.join(instance="one")
    assert [each.group_instance_id for each in world.describe().members] == ["one"]


def test_a_group_that_does_not_exist_is_dead() -> None:
    """Newer clients also get an error."""
    world = GroupWorld()
    assert world.describe(caller=OLD_CALLER) == DescribedGroup(group_id=GROUP, group_state="Dead")
    described = world.describe()
    assert (described.group_state, described.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert described.error_message == "Group g not found."


def test_an_error_that_quotes_a_long_group_id_can_be_answered() -> None:
    """A client may send an id that takes all 32,767 bytes of a string."""
    described = GroupWorld().describe(group=LONG)
    assert (described.error_code, described.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, LONG)
    assert encode(DescribeGroupsResponse(groups=[described]), 6)


def test_the_group_with_an_empty_id_is_described_and_deleted_like_any_other() -> None:
    """Old clients commit under an empty group id, and Kafka keeps these offsets: as a group that can be listed, described
    and deleted. Members cannot join it."""
    world = GroupWorld()
    assert world.describe("").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.delete_group("") == "GROUP_ID_NOT_FOUND"
    world.commit(7, group="")
    assert world.listed() == {"": "Empty"}
    assert world.describe("") == DescribedGroup(group_id="", group_state="Empty")
    assert world.delete_group("") == "NONE"
    assert (world.listed(), world.fetch(group="")) == ({}, {})


def world_of_four() -> GroupWorld:
    """A shard with a group in each state, called by it."""
    world = GroupWorld(group_initial_rebalance_delay_ms=0)
    world.commit(7, group="empty")
    world.join_with_new_id(group="stable")
    world.advance(0)
    member_id = next(world.group("stable").members).member_id
    world.sync(member_id, {}, group="stable")
    world.join_with_new_id(group="completing")
    world.advance(0)
    world.join_with_new_id(group="preparing")
    return world


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ([], [], "empty stable completing preparing"),
        (["Stable"], [], "stable"),
        ([" stable ", "EMPTY"], [], "empty stable"),
        (["PreparingRebalance", "completingrebalance"], [], "completing preparing"),
        (["Dead"], [], ""),
        (["no such state"], [], ""),
        ([], ["classic"], "empty stable completing preparing"),
        ([], ["Classic", "consumer"], "empty stable completing preparing"),
        ([], ["consumer"], ""),
        (["Stable"], ["consumer"], ""),
        (["Stable"], ["CLASSIC"], "stable"),
    ],
)
def test_groups_are_listed_by_state_and_type(states: list[str], types: list[str], found: str) -> None:
    assert set(world_of_four().listed(states, types)) == set(found.split())


def test_a_listed_group_has_its_type_and_protocol_type() -> None:
    world = world_of_four()
    world.listed()
    listed = {each.group_id: each for each in world.answer(world.asked - 1).groups}
    assert {each.group_type for each in listed.values()} == {"classic"}
    assert (listed["empty"].protocol_type, listed["stable"].protocol_type) == ("", "consumer")


@pytest.mark.parametrize(
    ("group", "error"),
    [
        ("missing", "GROUP_ID_NOT_FOUND"),
        ("stable", "NON_EMPTY_GROUP"),
        ("completing", "NON_EMPTY_GROUP"),
        ("preparing", "NON_EMPTY_GROUP"),
        ("empty", "NONE"),
    ],
)
def test_only_an_empty_group_can_be_deleted(group: str, error: str) -> None:
    world = world_of_four()
    records = len(world.log)
    assert world.delete_group(group) == error
    assert (len(world.log) > records) == (error == "NONE")


def test_a_deleted_group_leaves_nothing_behind() -> None:
    """Neither here nor in the log."""
    world = GroupWorld()
    members = world.stable_group()
    world.leave(*members)
    world.commit(7)
    world.new_id()
    assert world.delete_group() == "NONE"
    assert world.listed() == {}
    assert world.fetch() == {}
    assert not world.timers
    for compacted in (False, True):
        loaded = world.replayed(compacted=compacted)
        assert not list(loaded.groups)
        assert len(loaded.offsets) == 0


def test_a_group_may_be_made_again_after_its_deletion() -> None:
    world = GroupWorld()
    world.commit(7)
    world.delete_group()
    world.stable_group()
    assert world.generation() == 1
    world.advance(SESSION_MS)
    assert world.delete_group() == "NONE"
