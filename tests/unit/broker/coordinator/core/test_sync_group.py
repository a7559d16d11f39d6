"""SyncGroup and Heartbeat in every state, and how the sync phase ends."""

import pytest

from common.protocol.errors import ErrorCode
from common.protocol.messages.sync_group import SyncGroupResponse
from common.records.group_records import decode_group
from tests.unit.broker.coordinator.core.group_world import REBALANCE_MS, SESSION_MS, GroupWorld


def group_in(world: GroupWorld, state: str) -> tuple[str, str]:
    """Makes a group of two in this state; returns its leader and its follower, who still know the last generation."""
    leader, follower = world.completing_group() if state == "CompletingRebalance" else world.stable_group()
    if state == "PreparingRebalance":
        world.join(leader)
    elif state == "Empty":
        world.leave(leader, follower)
    assert world.state() == state
    return leader, follower


@pytest.mark.parametrize(
    ("state", "error"),
    [("Empty", "UNKNOWN_MEMBER_ID"), ("PreparingRebalance", "REBALANCE_IN_PROGRESS"), ("Stable", "NONE")],
)
def test_a_follower_syncs_in_each_state(state: str, error: str) -> None:
    """In CompletingRebalance it waits, as other tests show."""
    world = GroupWorld()
    _, follower = group_in(world, state)
    assert world.error(world.sync(follower, generation=1)) == error


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"generation": 0}, "ILLEGAL_GENERATION"),
        ({"generation": 2}, "ILLEGAL_GENERATION"),
        ({"protocol_type": "connect"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"protocol_name": "other"}, "INCONSISTENT_GROUP_PROTOCOL"),
        ({"instance": "one"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_wrong_sync_is_refused(state: str, options: dict[str, str], error: str) -> None:
    world = GroupWorld()
    _, follower = group_in(world, state)
    assert world.error(world.sync(follower, **options)) == error  # type: ignore[arg-type]


def test_a_sync_with_the_groups_own_protocol_is_accepted() -> None:
    world = GroupWorld()
    _, follower = world.stable_group()
    answer: SyncGroupResponse = world.answer(world.sync(follower, protocol_type="consumer", protocol_name="range"))
    assert (answer.protocol_type, answer.protocol_name, answer.assignment) == ("consumer", "range", follower.encode())


@pytest.mark.parametrize("group", ["", "missing"])
def test_a_group_that_does_not_exist_has_no_members(group: str) -> None:
    world = GroupWorld()
    error = "UNKNOWN_MEMBER_ID" if group else "INVALID_GROUP_ID"
    assert world.error(world.sync("m", generation=1, group=group)) == error
    assert world.heartbeat("m", generation=1, group=group) == error


def test_members_wait_for_the_leaders_assignment() -> None:
    world = GroupWorld()
    leader, *followers = world.completing_group(3)
    waiters = [world.sync(each) for each in followers]
    assert world.waiting == set(waiters)
    world.sync(leader, {leader: b"0", followers[0]: b"1", followers[1]: b"2", "stranger": b"3"})
    assert [world.synced(waiter) for waiter in waiters] == [b"1", b"2"]
    assert world.state() == "Stable"


def test_the_assignment_is_written_with_the_members() -> None:
    world = GroupWorld()
    leader, follower = world.completing_group()
    world.sync(leader, {leader: b"0", follower: b"1"})
    _, value = world.log[-1]
    assert value is not None
    written = decode_group(value)
    assert (written.protocol_type, written.protocol, written.generation) == ("consumer", "range", 1)
    assert (written.leader, written.current_state_timestamp) == (leader, world.now_ms)
    assert [(each.member_id, each.assignment) for each in written.members] == [(leader, b"0"), (follower, b"1")]
    assert {(each.client_id, each.client_host) for each in written.members} == {("client", "/127.0.0.1")}
    assert {(each.session_timeout, each.rebalance_timeout) for each in written.members} == {(SESSION_MS, REBALANCE_MS)}


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    world = GroupWorld()
    leader, follower = world.completing_group()
    waiter = world.sync(follower)
    world.sync(leader, {leader: b"0"})
    assert world.synced(waiter) == b""
    assert world.state() == "Stable"


def test_a_late_follower_gets_its_assignment_from_the_stable_group() -> None:
    world = GroupWorld()
    leader, follower = world.completing_group()
    world.sync(leader, {follower: b"1"})
    assert world.synced(world.sync(follower)) == b"1"


def test_a_second_sync_of_the_same_member_takes_the_place_of_the_first() -> None:
    world = GroupWorld()
    leader, follower = world.completing_group()
    first, second = world.sync(follower), world.sync(follower)
    assert world.error(first) == "REBALANCE_IN_PROGRESS"
    world.sync(leader, {follower: b"1"})
    assert world.synced(second) == b"1"


def test_only_the_leader_assigns() -> None:
    world = GroupWorld()
    _, follower = world.completing_group()
    waiter = world.sync(follower, {follower: b"all"})
    assert waiter in world.waiting


def test_a_leader_that_never_assigns_is_removed() -> None:
    """It heartbeats, so only the sync timer can end the phase. The follower then leads."""
    world = GroupWorld()
    leader, follower = world.completing_group()
    waiter = world.sync(follower)
    for _ in range(REBALANCE_MS // 5_000):
        assert waiter in world.waiting
        assert world.heartbeat(leader) == "NONE"
        world.advance(5_000)
    assert world.error(waiter) == "REBALANCE_IN_PROGRESS"
    assert world.heartbeat(leader) == "UNKNOWN_MEMBER_ID"
    assert world.answer(world.join(follower)).leader == follower


def test_a_follower_that_never_syncs_is_removed_from_the_stable_group() -> None:
    world = GroupWorld()
    leader, follower = world.completing_group()
    world.sync(leader, {leader: b"0"})
    for _ in range(REBALANCE_MS // 5_000):
        assert world.heartbeat(follower) == world.heartbeat(leader) == "NONE"
        world.advance(5_000)
    assert world.heartbeat(follower) == "UNKNOWN_MEMBER_ID"
    assert world.heartbeat(leader) == "REBALANCE_IN_PROGRESS"


def test_the_sync_timer_ends_with_the_phase() -> None:
    """When all have synced, when the last one leaves, and when the group rebalances."""
    world = GroupWorld()
    world.stable_group()
    assert ("sync", "g") not in world.timers
    world = GroupWorld()
    leader, follower = world.completing_group()
    world.sync(leader)
    assert ("sync", "g") in world.timers
    world.leave(follower)
    assert ("sync", "g") not in world.timers
    world = GroupWorld()
    leader, _ = world.completing_group()
    world.sync(leader)
    world.join(leader)
    assert ("sync", "g") not in world.timers


def test_a_member_waits_for_its_assignment_beyond_its_session() -> None:
    """The waiting request stands for the heartbeats. Afterwards the session begins anew."""
    world = GroupWorld()
    leader, follower = world.completing_group()
    waiter = world.sync(follower)
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        world.heartbeat(leader)
    world.sync(leader, {follower: b"1"})
    assert world.synced(waiter) == b"1"
    world.advance(SESSION_MS - 1)
    world.heartbeat(leader)
    assert world.state() == "Stable"
    world.advance(1)
    assert world.heartbeat(leader) == "REBALANCE_IN_PROGRESS"
    assert world.heartbeat(follower) == "UNKNOWN_MEMBER_ID"


def test_the_session_begins_when_the_join_is_answered() -> None:
    """While a new member waited it had more time."""
    world = GroupWorld()
    world.completing_group()
    world.advance(SESSION_MS - 1)
    assert world.state() == "CompletingRebalance"
    world.advance(1)
    assert world.state() == "Empty"


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("Empty", "UNKNOWN_MEMBER_ID"),
        ("PreparingRebalance", "REBALANCE_IN_PROGRESS"),
        ("CompletingRebalance", "NONE"),
        ("Stable", "NONE"),
    ],
)
def test_heartbeats_in_each_state(state: str, error: str) -> None:
    world = GroupWorld()
    _, follower = group_in(world, state)
    assert world.heartbeat(follower, generation=1) == error


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Stable"])
def test_a_heartbeat_of_another_generation_or_stranger_is_refused(state: str) -> None:
    world = GroupWorld()
    _, follower = group_in(world, state)
    assert world.heartbeat(follower, generation=0) == "ILLEGAL_GENERATION"
    assert world.heartbeat(follower, generation=2) == "ILLEGAL_GENERATION"
    assert world.heartbeat("stranger") == "UNKNOWN_MEMBER_ID"
    assert world.heartbeat("") == "UNKNOWN_MEMBER_ID"


def test_heartbeats_keep_a_member_alive() -> None:
    world = GroupWorld()
    (member_id,) = world.stable_group(1)
    for _ in range(5):
        world.advance(SESSION_MS - 1)
        assert world.heartbeat(member_id) == "NONE"
    world.advance(SESSION_MS)
    assert world.heartbeat(member_id) == "UNKNOWN_MEMBER_ID"
    assert world.state() == "Empty"


def test_a_group_too_large_to_be_written_is_not_stable() -> None:
    """The members get an error and the group rebalances, as it does in Kafka if the append fails for the size."""
    world = GroupWorld(batch_bytes_max=1_000)
    leader, follower = world.completing_group()
    records = len(world.log)
    waiters = [world.sync(follower), world.sync(leader, {follower: bytes(2_000)})]
    assert [world.error(waiter) for waiter in waiters] == ["UNKNOWN_SERVER_ERROR"] * 2
    assert world.state() == "PreparingRebalance"
    assert {member.member_assignment for member in world.describe().members} == {b""}
    assert len(world.log) == records
    rejoined = [world.join(leader), world.join(follower)]
    assert [world.error(waiter) for waiter in rejoined] == ["NONE", "NONE"]
    world.sync(leader, {follower: b"1"})
    assert world.synced(world.sync(follower)) == b"1"


def test_an_unloaded_shard_answers_all_who_wait() -> None:
    """A join of one group and a sync of another."""
    world = GroupWorld()
    _, follower = world.completing_group()
    waiters = [world.sync(follower), world.join_with_new_id(group="other")[1]]
    world.deliver(world.shard.unloaded(ErrorCode.NOT_COORDINATOR))
    assert [world.error(waiter) for waiter in waiters] == ["NOT_COORDINATOR"] * 2
    assert world.waiting == set()
