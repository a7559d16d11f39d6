"""ConsumerGroupHeartbeat from members that join and stay: answers, records and timers."""

from collections.abc import Mapping
from typing import Any

import pytest

from broker.coordinator.core.consumer_group import target_assignment
from broker.coordinator.core.consumer_group.assignment import Assignment
from broker.coordinator.core.consumer_group.assignor import Assignor, MemberSpec
from broker.coordinator.core.consumer_group.assignors import ASSIGNORS
from broker.coordinator.core.consumer_group.target_assignment import metadata_hash
from broker.coordinator.core.result import Caller, TimerChange
from common.configuration.group import GroupConfig
from common.ids import TopicId
from common.protocol.codec import encode
from common.records.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    OwnedTopicPartitions,
    TopicPartitions,
)
from common.time_units import NS_PER_MS
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import ConsumerWorld, topic_id
from tests.unit.broker.coordinator.core.group_world import REBALANCE_MS, START_MS

OLD_CLIENT = Caller("client", "/127.0.0.1", brings_member_id=False)
SESSION_MS = 45_000
LONG = "x" * 32_767


def topic(*partitions: int) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic_id(1), partitions=list(partitions))]


def target(member_id: str, *partitions: int) -> tuple[Any, Any]:
    return (
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topic(*partitions) if partitions else []),
    )


def target_epoch(epoch: int) -> tuple[Any, Any]:
    return (
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=START_MS),
    )


def current(
    member_id: str,
    epoch: int,
    previous: int,
    state: int,
    assigned: tuple[int, ...],
    revoking: tuple[int, ...] = (),
    *,
    since: int = 2,
) -> tuple[Any, Any]:
    """`since` is the epoch in which the member was given these partitions."""

    def owned(*partitions: int) -> list[OwnedTopicPartitions]:
        epochs = [since] * len(partitions)
        return [OwnedTopicPartitions(topic_id=topic_id(1), partitions=list(partitions), assignment_epochs=epochs)]

    return (
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=previous,
            state=state,
            assigned_partitions=owned(*assigned) if assigned else [],
            partitions_pending_revocation=owned(*revoking) if revoking else [],
        ),
    )


def group_epoch(world: ConsumerWorld, epoch: int, *names: str) -> tuple[Any, Any]:
    return (
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash(names, world.topics)),
    )


def member(member_id: str, *names: str, **fields: Any) -> tuple[Any, Any]:
    given: dict[str, Any] = {
        "instance_id": None,
        "rack_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": list(names),
        "subscribed_topic_regex": None,
        "rebalance_timeout_ms": REBALANCE_MS,
        "server_assignor": None,
        "classic_member_metadata": None,
    }
    return (
        ConsumerGroupMemberMetadataKey(group_id="g", member_id=member_id),
        ConsumerGroupMemberMetadataValue(**{**given, **fields}),
    )


def session(member_id: str, at_ms: int = START_MS) -> TimerChange:
    return TimerChange(("consumer-session", "g", member_id), (at_ms + SESSION_MS) * NS_PER_MS)


def test_the_first_member_gets_everything() -> None:
    """Its first heartbeat writes the whole group."""
    world = ConsumerWorld()
    answer = world.enter("a", rack="r", assignor="range")
    assert (answer.member_id, answer.heartbeat_interval_ms) == ("a", 5_000)
    assert world.told(answer) == (2, {1: [0, 1, 2, 3]})
    assert world.written == [
        member("a", "t", rack_id="r", server_assignor="range"),
        group_epoch(world, 2, "t"),
        target("a", 0, 1, 2, 3),
        target_epoch(2),
        current("a", 2, 0, 0, (0, 1, 2, 3)),
    ]
    assert world.last_step.timers == [session("a")]
    assert world.consumer_group().state.value == "Stable"


def test_a_heartbeat_without_news_writes_nothing() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.advance(1_000)
    assert world.told(world.beat("a", 2)) == (2, None)
    assert world.written == []
    assert world.last_step.timers == [session("a", START_MS + 1_000)]


def test_a_group_has_times_of_its_own() -> None:
    """The next heartbeat of a member brings a change to it: its answer has the new interval, and the session that it starts
    the new timeout. Other groups keep the server's times."""
    world = ConsumerWorld()
    world.enter("a")
    world.group_configs["g"] = GroupConfig(consumer_heartbeat_interval_ms=6_000, consumer_session_timeout_ms=50_000)
    assert world.beat("a", 2).heartbeat_interval_ms == 6_000
    assert world.last_step.timers == [TimerChange(session("a").key, (START_MS + 50_000) * NS_PER_MS)]
    assert world.enter("a", group="other").heartbeat_interval_ms == 5_000
    assert world.last_step.timers == [TimerChange(("consumer-session", "other", "a"), (START_MS + 45_000) * NS_PER_MS)]
    del world.group_configs["g"]
    assert world.beat("a", 2).heartbeat_interval_ms == 5_000
    assert world.last_step.timers == [session("a")]


def test_a_silent_member_is_removed_after_the_time_of_its_group() -> None:
    """Also by a coordinator that has just loaded the group."""
    for is_reloaded in (False, True):
        world = ConsumerWorld()
        world.group_configs["g"] = GroupConfig(consumer_session_timeout_ms=50_000)
        world.enter("a")
        if is_reloaded:
            world.reload()
        world.advance(49_999)
        assert world.consumer_group().size == 1
        world.advance(1)
        assert world.consumer_group().size == 0


def test_a_partition_is_revoked_before_another_member_gets_it() -> None:
    """The whole way of two partitions from one member to the next, by records and timers."""
    world = ConsumerWorld()
    world.enter("a")
    assert world.told(world.enter("b")) == (3, {})
    assert world.written == [
        member("b", "t"),
        group_epoch(world, 3, "t"),
        target("a", 0, 1),
        target("b", 2, 3),
        target_epoch(3),
        current("b", 3, 0, 2, ()),
    ]
    assert world.consumer_group().state.value == "Reconciling"
    # The first member is told to revoke. It stays in its epoch.
    assert world.told(world.beat("a", 2, owned={1: [0, 1, 2, 3]})) == (2, {1: [0, 1]})
    assert world.written == [current("a", 2, 2, 1, (0, 1), (2, 3))]
    timer = TimerChange(("consumer-rebalance", "g", "a"), (START_MS + REBALANCE_MS) * NS_PER_MS)
    assert world.last_step.timers == [timer, session("a")]
    # As long as it lists one of them, or does not say, nobody else gets any.
    for owned in ({1: [0, 1, 3]}, None):
        assert world.told(world.beat("a", 2, owned=owned)) == (2, None)
        assert world.written == []
    assert world.told(world.beat("b", 3, owned={})) == (3, None)
    # It has revoked.
    assert world.told(world.beat("a", 2, owned={1: [0, 1]})) == (3, None)
    assert world.written == [current("a", 3, 2, 0, (0, 1))]
    assert world.last_step.timers == [TimerChange(timer.key, None), session("a")]
    assert world.told(world.beat("b", 3, owned={})) == (3, {1: [2, 3]})
    assert world.written == [current("b", 3, 3, 0, (2, 3), since=3)]
    assert world.consumer_group().state.value == "Stable"


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    """It has the time that it has asked for, and heartbeats do not help."""
    world = ConsumerWorld()
    world.enter("a", rebalance_ms=10_000)
    world.enter("b")
    world.beat("a", 2, owned={1: [0, 1, 2, 3]})
    world.advance(9_999)
    assert world.told(world.beat("a", 2, owned={1: [0, 1, 2, 3]})) == (2, None)
    world.advance(1)
    assert world.refused(world.beat("a", 2, owned={})) == "UNKNOWN_MEMBER_ID"
    assert world.told(world.beat("b", 3, owned={})) == (4, {1: [0, 1, 2, 3]})


def test_a_silent_member_is_removed() -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    world.advance(SESSION_MS - 1)
    world.beat("b", 3, owned={})
    world.advance(1)
    assert world.consumer_group().member("a") is None
    assert [key for key, value in world.written if value is None] == [
        ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"),
        ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="a"),
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="a"),
    ]
    assert world.written[3:] == [group_epoch(world, 4, "t")]
    assert world.told(world.beat("b", 3, owned={})) == (4, {1: [0, 1, 2, 3]})


def test_a_member_leaves() -> None:
    """When the last one has left, the group is empty and its epoch goes on from where it was."""
    world = ConsumerWorld()
    world.enter("a")
    answer = world.beat("a", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "a", -1)
    assert world.written[3:] == [group_epoch(world, 3)]
    assert world.last_step.timers == [TimerChange(("consumer-session", "g", "a"), None)]
    assert world.consumer_group().state.value == "Empty"
    assert world.told(world.enter("b")) == (4, {1: [0, 1, 2, 3]})


@pytest.mark.parametrize(
    ("epoch", "options", "error"),
    [
        (0, {"group": ""}, "INVALID_REQUEST"),
        (0, {"group": " "}, "INVALID_REQUEST"),
        (0, {"instance": ""}, "INVALID_REQUEST"),
        (0, {"instance": " "}, "INVALID_REQUEST"),
        (0, {"rack": ""}, "INVALID_REQUEST"),
        (0, {"rack": "\t "}, "INVALID_REQUEST"),
        (0, {"owned": None}, "INVALID_REQUEST"),
        (0, {"owned": {1: [0]}}, "INVALID_REQUEST"),
        (0, {"topics": None}, "INVALID_REQUEST"),
        (0, {"rebalance_ms": -1}, "INVALID_REQUEST"),
        (0, {"assignor": "sticky"}, "UNSUPPORTED_ASSIGNOR"),
        (0, {"regex": "(t"}, "INVALID_REGULAR_EXPRESSION"),
        (-2, {}, "INVALID_REQUEST"),
        (-3, {}, "INVALID_REQUEST"),
        (1, {}, "GROUP_ID_NOT_FOUND"),
        (-1, {}, "GROUP_ID_NOT_FOUND"),
    ],
)
def test_senseless_requests_are_refused(epoch: int, options: dict[str, Any], error: str) -> None:
    """They leave no trace, not even of the group."""
    world = ConsumerWorld()
    given = {"owned": {}, "topics": ["t"], "rebalance_ms": 1_000, **options}
    assert world.refused(world.beat("a", epoch, **given)) == error
    assert not world.log
    assert not world.timers
    assert not world.shard.consumer_groups


@pytest.mark.parametrize("epoch", [0, 1, -1])
def test_a_member_id_must_be_given(epoch: int) -> None:
    """From version 1 on always; before that, the coordinator made the id of a new member."""
    world = ConsumerWorld()
    assert world.refused(world.enter("")) == "INVALID_REQUEST"
    if epoch == 0:
        assert world.enter("", caller=OLD_CLIENT).member_id == "id2"
    else:
        assert world.refused(world.beat("", epoch, caller=OLD_CLIENT)) == "INVALID_REQUEST"
    assert world.refused(world.enter(" ")) == "INVALID_REQUEST"


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        # Member a is in epoch 4 with partitions 0 and 1, and was in epoch 3 before.
        (4, None, "NONE"),
        (3, {1: [0]}, "NONE"),
        (3, {1: [0, 1]}, "NONE"),
        (3, {1: [0, 2]}, "FENCED_MEMBER_EPOCH"),
        (3, {2: [0]}, "FENCED_MEMBER_EPOCH"),
        (3, None, "FENCED_MEMBER_EPOCH"),
        (2, {}, "FENCED_MEMBER_EPOCH"),
        # A member that was fenced has given up its partitions and joins again.
        (0, {}, "NONE"),
        (5, {}, "FENCED_MEMBER_EPOCH"),
    ],
)
def test_only_the_current_epoch_and_the_one_before_a_lost_answer(epoch: int, owned: Any, error: str) -> None:
    world = ConsumerWorld()
    world.enter("a")
    world.enter("b")
    world.beat("a", 2, owned={1: [0, 1]})
    world.beat("b", 3, topics=["t", "u"], owned={})
    world.beat("a", 3, owned={1: [0, 1]})
    assert (world.member("a").epoch, world.member("a").previous_epoch) == (4, 3)
    if epoch == 0:
        assert world.refused(world.enter("a")) == error
    else:
        assert world.refused(world.beat("a", epoch, owned=owned)) == error


@pytest.mark.parametrize(
    ("options", "error"),
    [({"assignor": LONG}, "UNSUPPORTED_ASSIGNOR"), ({"regex": f"({LONG[1:]}"}, "INVALID_REGULAR_EXPRESSION")],
)
def test_an_error_that_quotes_a_long_text_can_be_answered(options: dict[str, str], error: str) -> None:
    """A client may send a text that takes all 32,767 bytes of a string."""
    response = ConsumerWorld().enter("a", **options)
    assert ConsumerWorld().refused(response) == error
    assert encode(response, 1)


def test_a_fenced_member_joins_again_at_once() -> None:
    """Two answers with new epochs were lost, so the member is fenced. It gives up its partitions and joins with its id, and
    must not have to wait until its session ends."""
    world = ConsumerWorld()
    world.enter("a")
    for name in ("u", "v"):
        world.topics.create(name, 1)
        world.change(name)
        world.beat("a", world.member("a").epoch, topics=["t", name], owned={1: [0, 1, 2, 3]})
    assert world.refused(world.beat("a", 2, owned={1: [0, 1, 2, 3]})) == "FENCED_MEMBER_EPOCH"
    epoch, assigned = world.told(world.enter("a", topics=["t", "v"]))
    assert epoch == world.member("a").epoch
    assert assigned is not None and assigned[1] == [0, 1, 2, 3]


def test_a_lost_answer_is_given_again() -> None:
    """The member says everything about itself, and is told its whole assignment."""
    world = ConsumerWorld()
    world.enter("a")
    assert world.told(world.enter("a")) == (2, {1: [0, 1, 2, 3]})
    full: dict[str, Any] = {"owned": {}, "topics": ["t"], "rebalance_ms": REBALANCE_MS}
    assert world.told(world.beat("a", 2, **full)) == (2, {1: [0, 1, 2, 3]})
    assert world.written == []


def test_strangers() -> None:
    world = ConsumerWorld(group_consumer_max_size=2)
    world.enter("a")
    assert world.refused(world.beat("b", 2)) == "UNKNOWN_MEMBER_ID"
    assert world.refused(world.beat("b", -1)) == "UNKNOWN_MEMBER_ID"
    world.enter("b")
    assert world.refused(world.enter("c")) == "GROUP_MAX_SIZE_REACHED"
    assert world.told(world.beat("b", 3, owned={})) == (3, None)


def test_a_subscription_changes() -> None:
    """The epoch rises, and the member gives up what it no longer reads."""
    world = ConsumerWorld()
    world.topics.create("u", 2)
    world.enter("a")
    assert world.told(world.beat("a", 2, topics=["u"], owned={1: [0, 1, 2, 3]})) == (2, {})
    assert world.written[0] == member("a", "u")
    assert world.told(world.beat("a", 2, owned={})) == (3, {2: [0, 1]})
    assert world.told(world.beat("a", 3, topics=["u"])) == (3, None)


def test_a_change_of_the_assignor_alone_moves_nothing() -> None:
    """It counts when the group is assigned the next time."""
    world = ConsumerWorld()
    world.enter("a")
    assert world.told(world.beat("a", 2, assignor="range")) == (2, None)
    assert world.written == [member("a", "t", server_assignor="range")]
    assert world.describe_consumers().assignor_name == "range"


@pytest.mark.parametrize(
    ("change", "assigned"),
    [
        ("grow", {1: [0, 1, 2, 3, 4, 5]}),
        ("create", {1: [0, 1, 2, 3], 2: [0]}),
        ("delete", {}),
    ],
)
def test_topics_change(change: str, assigned: dict[int, list[int]]) -> None:
    """The next heartbeat raises the epoch, once. Another topic does not matter."""
    world = ConsumerWorld()
    world.enter("a", topics=["t", "new"])
    if change == "grow":
        world.topics.add_partitions("t", 6)
        world.change("t", has_other_names=False)
    elif change == "create":
        world.topics.create("new", 1)
        world.change("new")
    else:
        world.topics.delete("t")
        world.change("t")
    world.topics.create("other", 3)
    world.change("other")
    response = world.beat("a", 2, owned={1: [0, 1, 2, 3]})
    if change == "delete":
        assert world.told(response) == (2, {})
        response = world.beat("a", 2, owned={})
        assert world.told(response) == (3, None)
    else:
        assert world.told(response) == (3, assigned)
    assert world.told(world.beat("a", 3)) == (3, None)


def test_a_change_marks_only_the_groups_that_read_the_topic() -> None:
    world = ConsumerWorld()
    world.topics.create("u", 1)
    world.enter("a", group="g")
    world.enter("a", group="h", topics=["u"])
    world.change("t", has_other_names=False)
    assert [(each.group_id, each.needs_refresh) for each in world.shard.consumer_groups] == [("g", True), ("h", False)]
    # A topic that changes without changing its partitions moves nothing.
    assert world.told(world.beat("a", 2)) == (2, None)
    assert not world.consumer_group("g").needs_refresh


def test_a_group_that_outgrows_a_batch_is_written_in_several() -> None:
    world = ConsumerWorld(batch_bytes_max=400)
    world.topics.add_partitions("t", 40)
    for number in range(8):
        world.enter(f"member{number}")
    assert world.consumer_group().size == 8
    loaded = world.replayed().consumer_groups
    assert [(group.epoch, group.target_epoch, group.size) for group in loaded] == [(9, 9, 8)]


def test_a_subscription_that_fits_no_record_is_refused() -> None:
    world = ConsumerWorld(batch_bytes_max=400)
    assert world.refused(world.enter("a", topics=["x" * 400])) == "UNKNOWN_SERVER_ERROR"
    assert not world.log


def test_an_assignment_that_fits_no_record_is_not_made() -> None:
    """A record that is larger than a batch would throw all groups of the log's partition away, again with each heartbeat.
    The members who wait for their first partitions get an error, as from Apache Kafka, until there are enough of them. One
    that has partitions keeps them."""
    world = ConsumerWorld(batch_bytes_max=1_000)
    world.enter("a")
    world.topics.add_partitions("t", 370)
    world.change("t", has_other_names=False)
    assert world.told(world.beat("a", 2)) == (2, None)
    for name in ("b", "c"):
        assert world.refused(world.enter(name)) == "UNKNOWN_SERVER_ERROR"
    assert world.told(world.beat("a", 2)) == (2, None)
    loaded = world.replayed().consumer_groups
    assert [(group.epoch, group.target_epoch, group.size) for group in loaded] == [(5, 2, 3)]
    epoch, assigned = world.told(world.enter("d"))
    assert epoch == 6
    assert assigned is not None
    assert world.consumer_group().target_epoch == 6


def test_an_assignment_that_fits_no_record_is_not_computed_with_each_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only when something has changed: the members, their topics, or the assignor that most of them ask for."""
    computed: list[str] = []

    def counting(name: str) -> Assignor:
        def assign(members: Mapping[str, MemberSpec], counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
            computed.append(name)
            return ASSIGNORS[name](members, counts)

        return assign

    world = ConsumerWorld(batch_bytes_max=1_000)
    world.enter("a")
    monkeypatch.setattr(target_assignment, "ASSIGNORS", {name: counting(name) for name in ASSIGNORS})
    world.topics.add_partitions("t", 370)
    world.change("t", has_other_names=False)
    for _ in range(3):
        world.beat("a", 2)
    assert computed == ["uniform"]
    for _ in range(2):
        world.beat("a", 2, assignor="range")
    assert computed == ["uniform", "range"]
    assert world.refused(world.enter("b")) == "UNKNOWN_SERVER_ERROR"
    assert len(computed) == 3


def test_a_topic_of_many_members_is_looked_up_once_for_an_assignment() -> None:
    """A group of hundreds of members that read hundreds of topics would look them up a hundred thousand times."""

    class Counting(dict[str, TopicId]):
        def __getitem__(self, name: str) -> TopicId:
            looked_up.append(name)
            return super().__getitem__(name)

    looked_up: list[str] = []
    world = ConsumerWorld()
    world.topics.create("u", 1)
    for number in range(20):
        world.enter(f"member{number}", topics=["t", "u"] if number % 2 else ["t"])
    world.topics.topic_ids = Counting(world.topics.topic_ids)
    world.enter("another", topics=["t", "u"])
    assert len(looked_up) <= 4
