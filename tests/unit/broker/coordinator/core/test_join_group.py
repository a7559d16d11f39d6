"""JoinGroup: who becomes a member, when the join phase ends, and who leads with which protocol."""

from dataclasses import replace

import pytest

from broker.coordinator.core.group_member import protocols_of
from common.protocol.codec import encode
from common.protocol.errors import ErrorCode
from common.protocol.messages.heartbeat import HeartbeatRequest
from common.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from common.records.group_records import GroupMetadataValue, decode_group
from tests.unit.broker.coordinator.core.group_world import (
    CALLER,
    INITIAL_DELAY_MS,
    OLD_CALLER,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    GroupWorld,
    subscription,
)


def test_a_new_member_is_given_an_id_and_joins_with_it() -> None:
    """KIP-394: the first JoinGroup is answered with an id, and leaves nothing behind but a pending member."""
    world = GroupWorld()
    first: JoinGroupResponse = world.answer(world.join())
    assert first == JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="client-id1")
    assert world.state() == "Empty"
    waiter = world.join("client-id1")
    assert world.state() == "PreparingRebalance"
    world.advance(INITIAL_DELAY_MS)
    answer: JoinGroupResponse = world.answer(waiter)
    assert (answer.error_code, answer.generation_id, answer.member_id) == (ErrorCode.NONE, 1, "client-id1")
    assert (answer.protocol_type, answer.protocol_name, answer.leader) == ("consumer", "range", "client-id1")
    assert [(each.member_id, each.metadata) for each in answer.members] == [("client-id1", RANGE["range"])]
    assert world.state() == "CompletingRebalance"


@pytest.mark.parametrize("name", ["ö" * 16_383, "x" * 32_767])
def test_a_long_name_is_cut_for_the_id_of_its_member(name: str) -> None:
    """The name of a client may take all bytes of a string, and the member's id is longer than that."""
    world = GroupWorld()
    waiter = world.join(instance=name, group="static")
    world.advance(INITIAL_DELAY_MS)
    for member_id in (world.new_id(caller=replace(CALLER, client_id=name)), world.answer(waiter).member_id):
        assert member_id.startswith(name[:10_000])
        assert encode(HeartbeatRequest(group_id="g", member_id=member_id), 4)


def test_an_old_client_becomes_a_member_at_once() -> None:
    world = GroupWorld()
    waiter = world.join(caller=OLD_CALLER)
    world.advance(INITIAL_DELAY_MS)
    assert world.answer(waiter).member_id == "client-id1"


def test_a_new_group_is_written_when_its_first_member_asks_to_join() -> None:
    world = GroupWorld()
    world.join()
    ((_, value),) = world.log
    assert value is not None
    assert decode_group(value) == GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=world.now_ms
    )
    world.join()
    assert len(world.log) == 1


def test_a_pending_member_that_never_joins_is_forgotten() -> None:
    """After its session timeout the id is unknown."""
    world = GroupWorld()
    member_id = world.new_id()
    world.advance(SESSION_MS)
    assert world.error(world.join(member_id)) == "UNKNOWN_MEMBER_ID"


def test_pending_members_delay_a_rebalance_until_their_session_ends() -> None:
    """The others wait for a client that is about to join, but not for ever."""
    world = GroupWorld()
    leader, follower = world.stable_group()
    world.new_id()
    waiters = [world.join(leader), world.join(follower)]
    assert not world.answers.keys() & set(waiters)
    world.advance(SESSION_MS)
    assert [world.error(waiter) for waiter in waiters] == ["NONE", "NONE"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group": ""}, "INVALID_GROUP_ID"),
        ({"session_ms": 5_999}, "INVALID_SESSION_TIMEOUT"),
        ({"session_ms": 1_800_001}, "INVALID_SESSION_TIMEOUT"),
        ({"session_ms": -1}, "INVALID_SESSION_TIMEOUT"),
        ({"protocols": {}}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol_type": ""}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"member_id": "unknown"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_wrong_request_makes_no_group(options: dict[str, str], error: str) -> None:
    world = GroupWorld()
    assert world.error(world.join(**options)) == error  # type: ignore[arg-type]
    assert world.log == []
    assert world.listed() == {}


def test_the_bounds_of_the_session_timeout_are_allowed() -> None:
    world = GroupWorld(group_min_session_timeout_ms=100, group_max_session_timeout_ms=200)
    for session_ms, error in [(99, "INVALID_SESSION_TIMEOUT"), (100, "MEMBER_ID_REQUIRED"), (200, "MEMBER_ID_REQUIRED")]:
        assert world.error(world.join(session_ms=session_ms)) == error


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_members_must_share_a_protocol(state: str) -> None:
    """In every state of a group with members, a client of another type or without a common protocol is refused."""
    world = GroupWorld()
    make_group(world, state)
    assert world.error(world.join(protocols={"other": b""})) == "INCONSISTENT_GROUP_PROTOCOL"
    assert world.error(world.join(protocol_type="connect")) == "INCONSISTENT_GROUP_PROTOCOL"
    assert world.error(world.join(protocols={"other": b"", **RANGE})) == "MEMBER_ID_REQUIRED"
    assert world.state() == state


def make_group(world: GroupWorld, state: str) -> list[str]:
    """Makes a group of two in this state; returns the ids of its members, the leader's first."""
    if state == "PreparingRebalance":
        return [world.join_with_new_id()[0] for _ in range(2)]
    return world.completing_group() if state == "CompletingRebalance" else world.stable_group()


def test_the_initial_rebalance_waits_while_members_arrive() -> None:
    """Each arrival extends the delay by another period, counted from the end of the last."""
    world = GroupWorld()
    _, first = world.join_with_new_id()
    world.advance(INITIAL_DELAY_MS - 1)
    _, second = world.join_with_new_id()
    world.advance(INITIAL_DELAY_MS)
    assert world.waiting == {first, second}
    world.advance(1)
    assert world.waiting == set()
    assert world.answer(first).generation_id == 1
    assert len(world.answer(first).members) == 2


def test_the_initial_rebalance_ends_after_the_rebalance_timeout_of_the_first_member() -> None:
    world = GroupWorld()
    _, first = world.join_with_new_id(rebalance_ms=8_000)
    for _ in range(7):
        world.advance(1_000)
        world.join_with_new_id(rebalance_ms=100_000)
    assert first in world.waiting
    world.advance(1_000)
    assert world.waiting == set()
    assert len(world.answer(first).members) == 8


def test_without_an_initial_delay_the_first_member_starts_alone() -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=0)
    _, waiter = world.join_with_new_id()
    world.advance(0)
    assert world.answer(waiter).generation_id == 1


def test_without_a_rebalance_timeout_the_session_timeout_counts() -> None:
    """Version 0 of JoinGroup has none."""
    world = GroupWorld()
    leader, follower = world.stable_group(rebalance_ms=-1)
    waiter = world.join(leader, rebalance_ms=-1)
    for _ in range(SESSION_MS // 1_000):
        assert waiter in world.waiting
        world.heartbeat(follower)
        world.advance(1_000)
    assert len(world.answer(waiter).members) == 1


def test_the_protocol_is_what_most_members_prefer_among_those_of_all() -> None:
    world = GroupWorld()
    for names in (["a", "b", "c"], ["c", "b", "a"], ["d", "c", "a"]):
        _, waiter = world.join_with_new_id(protocols={name: name.encode() for name in names})
    world.end_initial_rebalance()
    assert world.answer(waiter).protocol_name == "c"
    assert [each.metadata for each in world.answer(1).members] == [b"c", b"c", b"c"]


def test_a_protocol_given_twice_counts_once() -> None:
    """Otherwise more members would seem to support it than there are."""
    requested = [
        JoinGroupRequestProtocol(name=name, metadata=each) for name, each in [("a", b"1"), ("b", b"2"), ("a", b"3")]
    ]
    assert list(protocols_of(requested).items()) == [("a", b"1"), ("b", b"2")]


def test_only_the_leader_learns_of_the_members() -> None:
    world = GroupWorld()
    joined = [world.join_with_new_id() for _ in range(3)]
    world.end_initial_rebalance()
    answers = [world.answer(waiter) for _, waiter in joined]
    assert {answer.leader for answer in answers} == {joined[0][0]}
    assert [len(answer.members) for answer in answers] == [3, 0, 0]


def test_a_new_member_makes_a_stable_group_rebalance() -> None:
    """The members learn of it by their heartbeats, rejoin, and the generation rises when all have."""
    world = GroupWorld()
    leader, follower = world.stable_group()
    newcomer, waiter = world.join_with_new_id()
    assert [world.heartbeat(each) for each in (leader, follower)] == ["REBALANCE_IN_PROGRESS"] * 2
    waiters = [world.join(leader), world.join(follower), waiter]
    assert {world.answer(each).generation_id for each in waiters} == {2}
    assert world.state() == "CompletingRebalance"
    world.assign([leader, follower, newcomer])
    assert world.state() == "Stable"


def test_a_member_that_does_not_rejoin_in_time_is_removed() -> None:
    """The rebalance ends after the longest rebalance timeout of its members, although the member still heartbeats."""
    world = GroupWorld()
    leader, follower = world.stable_group()
    waiter = world.join(leader)
    for _ in range(REBALANCE_MS // 5_000):
        assert waiter in world.waiting
        assert world.heartbeat(follower) == "REBALANCE_IN_PROGRESS"
        world.advance(5_000)
    assert [each.member_id for each in world.answer(waiter).members] == [leader]
    assert world.heartbeat(follower) == "UNKNOWN_MEMBER_ID"


def test_another_member_leads_if_the_leader_does_not_rejoin() -> None:
    world = GroupWorld()
    leader, follower = world.stable_group()
    waiter = world.join(follower, protocols={"range": subscription("other")})
    world.advance(REBALANCE_MS)
    assert world.answer(waiter).leader == follower
    assert world.heartbeat(leader) == "UNKNOWN_MEMBER_ID"


def test_the_leader_of_a_stable_group_may_rebalance_it_with_the_same_metadata() -> None:
    """It may have seen that a topic has new partitions."""
    world = GroupWorld()
    leader, follower = world.stable_group()
    waiter = world.join(leader)
    assert waiter in world.waiting
    assert world.heartbeat(follower) == "REBALANCE_IN_PROGRESS"


def test_a_follower_with_the_same_metadata_gets_the_current_generation() -> None:
    """It has missed the answer to its JoinGroup. Nothing changes for the others."""
    world = GroupWorld()
    leader, follower = world.stable_group()
    answer: JoinGroupResponse = world.answer(world.join(follower))
    assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (ErrorCode.NONE, 1, leader, [])
    assert world.state() == "Stable"


def test_a_member_that_missed_the_answer_gets_it_again_before_the_assignment() -> None:
    world = GroupWorld()
    leader, follower = world.completing_group()
    assert len(world.answer(world.join(leader)).members) == 2
    assert world.answer(world.join(follower)).generation_id == 1
    assert world.state() == "CompletingRebalance"


@pytest.mark.parametrize("state", ["CompletingRebalance", "Stable"])
def test_new_metadata_makes_the_group_rebalance(state: str) -> None:
    """Also that of a follower, and also if the group has not got its assignment yet."""
    world = GroupWorld()
    leader, follower = make_group(world, state)
    waiter = world.join(follower, protocols={"range": subscription("other")})
    assert world.state() == "PreparingRebalance"
    assert world.answer(world.join(leader)).generation_id == 2
    assert world.answer(waiter).generation_id == 2


def test_a_member_that_rejoins_with_a_sync_under_way_is_told_to_forget_it() -> None:
    world = GroupWorld()
    _leader, follower = world.completing_group()
    sync = world.sync(follower)
    world.join(follower, protocols={"range": subscription("other")})
    assert world.error(sync) == "REBALANCE_IN_PROGRESS"


def test_a_second_join_of_the_same_member_takes_the_place_of_the_first() -> None:
    """The first request is answered, so that it does not wait for ever."""
    world = GroupWorld()
    member_id, first = world.join_with_new_id()
    second = world.join(member_id)
    assert world.error(first) == "REBALANCE_IN_PROGRESS"
    world.end_initial_rebalance()
    assert world.error(second) == "NONE"


def test_a_full_group_takes_no_more_members() -> None:
    world = GroupWorld(group_max_size=2)
    members = world.stable_group()
    waiter = world.join()
    assert world.answer(waiter) == JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert world.error(world.join(members[1])) == "NONE"
    assert world.state() == "Stable"


def test_a_pending_member_of_a_group_that_has_become_full_is_turned_away() -> None:
    world = GroupWorld(group_max_size=1)
    late = world.new_id()
    _, waiter = world.join_with_new_id()
    assert world.error(world.join(late)) == "GROUP_MAX_SIZE_REACHED"
    assert world.error(world.join(late)) == "GROUP_MAX_SIZE_REACHED"
    world.end_initial_rebalance()
    assert world.error(waiter) == "NONE"


def test_a_loaded_group_that_is_too_large_loses_the_last_to_rejoin() -> None:
    """The setting was lowered while the broker was down."""
    world = GroupWorld()
    members = world.stable_group(3)
    smaller = GroupWorld(group_max_size=2)
    smaller.log = world.log
    smaller.reload()
    assert smaller.state() == "PreparingRebalance"
    waiters = [smaller.join(each) for each in members]
    assert [smaller.error(each) for each in waiters] == ["NONE", "NONE", "GROUP_MAX_SIZE_REACHED"]
    assert smaller.describe().group_state == "CompletingRebalance"


def test_a_new_member_may_wait_longer_than_its_session_but_not_for_ever() -> None:
    """A client that has given up leaves a member behind, which is removed after five minutes."""
    world = GroupWorld()
    leader, follower = world.stable_group(rebalance_ms=1_000_000)
    _, waiter = world.join_with_new_id(rebalance_ms=1_000_000)
    for _ in range(300):
        assert waiter in world.waiting
        world.advance(1_000)
        world.heartbeat(leader)
        world.heartbeat(follower)
    assert world.error(waiter) == "UNKNOWN_MEMBER_ID"
    assert world.group().size == 2


def test_a_group_whose_members_have_all_gone_before_the_first_generation_is_empty() -> None:
    world = GroupWorld()
    member_id, waiter = world.join_with_new_id()
    assert world.leave(member_id) == ["NONE"]
    assert world.error(waiter) == "UNKNOWN_MEMBER_ID"
    world.advance(INITIAL_DELAY_MS)
    assert (world.state(), world.generation()) == ("Empty", 1)
