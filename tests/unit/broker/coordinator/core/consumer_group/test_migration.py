"""Groups that change their protocol while they have members, and groups in which both protocols are spoken (KIP-848)."""

import random
from dataclasses import replace
from typing import Any

import pytest

from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.consumer_member import MemberState
from broker.coordinator.core.consumer_group.group_log import apply
from broker.coordinator.core.consumer_group.topic_subscribers import TopicSubscribers
from broker.coordinator.core.group_state import GroupState
from common.protocol.codec import encode_with_version
from common.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from common.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from common.protocol.messages.leave_group import MemberIdentity
from common.records.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    decode_consumer_value,
    encode_consumer_key,
    encode_consumer_value,
)
from common.records.group_records import GroupMetadataKey, decode_group, decode_key
from tests.unit.broker.coordinator.core.consumer_group.classic_consumer import (
    COOPERATIVE,
    EAGER,
    ClassicConsumer,
    assigned,
    indexes_of,
    metadata,
)
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import Consumer, ConsumerWorld, numbers
from tests.unit.broker.coordinator.core.group_world import GROUP, REBALANCE_MS, SESSION_MS, subscription

ALL = {0, 1, 2, 3}


def settle(world: ConsumerWorld, *clients: ClassicConsumer | Consumer) -> None:
    """Lets the clients act until the group is at rest."""
    for _ in range(40):
        for each in clients:
            each.act()
        world.advance(10)


def classic_group(world: ConsumerWorld, size: int, protocol: str = COOPERATIVE) -> list[ClassicConsumer]:
    members = [ClassicConsumer(world, protocol) for _ in range(size)]
    settle(world, *members)
    assert world.group().state is GroupState.STABLE
    return members


def mixed_world(**settings: Any) -> ConsumerWorld:
    return ConsumerWorld(group_initial_rebalance_delay_ms=0, **settings)


# --- up --------------------------------------------------------------------------------------------------------------


def test_a_classic_group_becomes_a_consumer_group_in_one_batch() -> None:
    """The members keep their ids and what they have. Nothing of it is given to the new member before it is given up."""
    world = mixed_world()
    (old,) = classic_group(world, 1)
    world.commit(7, member_id=old.member_id, generation=old.generation)
    assert world.told(world.enter("new")) == (2, {})
    first, *rest = world.written
    assert first == (GroupMetadataKey(group="g"), None)
    key, value = next(each for each in rest if isinstance(each[0], ConsumerGroupMemberMetadataKey))
    assert key.member_id == old.member_id
    assert value.classic_member_metadata == ClassicMemberMetadata(
        session_timeout_ms=SESSION_MS, supported_protocols=[ClassicProtocol(name=COOPERATIVE, metadata=metadata(set()))]
    )
    assert not list(world.shard.groups)
    member = world.member(old.member_id)
    assert (member.epoch, member.assigned) == (1, {next(iter(world.topics.topics)): frozenset(ALL)})
    assert world.fetch() == {("t", 0): 7}
    assert [each.member_type for each in world.describe_consumers().members] == [0, 1]


def test_partitions_that_cannot_exist_are_not_taken_over() -> None:
    """A classic member may claim anything to own. The assignors count on indexes from 0 on."""
    world = mixed_world()
    owned = ConsumerProtocolSubscription(topics=["t"], owned_partitions=[TopicPartition(topic="t", partitions=[-1, 0])])
    member_id, _ = world.join_with_new_id(protocols={"range": encode_with_version(owned, 1)})
    world.advance(10)
    world.sync(member_id, {member_id: b""}, generation=world.generation())
    assert world.refused(world.enter("new")) == "NONE"
    group = world.consumer_group()
    targets = [numbers(group.target(each.member_id)) for each in group.members]
    assert sorted(index for each in targets for index in each.get(1, ())) == [0, 1, 2, 3]


def test_every_member_gets_its_share_after_the_upgrade() -> None:
    world = mixed_world()
    old, new = classic_group(world, 1)[0], Consumer(world, "new")
    new.act()
    assert old.owned == ALL
    assert not new.owned
    settle(world, old, new)
    assert (len(old.owned), len(new.owned[1])) == (2, 2)
    assert old.owned | set(new.owned[1]) == ALL
    assert old.generation == new.epoch == world.consumer_group().epoch


def test_those_who_wait_for_a_rebalance_join_again() -> None:
    """A rebalance that is under way ends with the upgrade."""
    world = mixed_world()
    one, two = classic_group(world, 2)
    joining = world.join(one.member_id, protocols={COOPERATIVE: metadata(one.owned), "range": metadata(one.owned)})
    assert joining in world.waiting
    world.enter("new")
    assert world.error(joining) == "REBALANCE_IN_PROGRESS"
    assert not [key for key in world.timers if key[0] in ("session", "join", "sync")]
    assert {key[2] for key in world.timers if key[0] == "consumer-session"} == {one.member_id, two.member_id, "new"}


@pytest.mark.parametrize("wish", [{"topics": []}, {"regex": "u.*"}])
def test_the_first_rebalance_of_a_group_ends_in_a_consumer_group(wish: dict[str, Any]) -> None:
    """The group has had no generation yet, and nothing that the new member wants raises its epoch."""
    world = ConsumerWorld()
    protocols = {COOPERATIVE: subscription("later")}
    member_id = world.answer(world.join(protocols=protocols)).member_id
    waiter = world.join(member_id, protocols=protocols)
    assert world.group().generation == 0
    assert world.told(world.enter("new", **wish)) == (1, {})
    assert world.error(waiter) == "REBALANCE_IN_PROGRESS"
    waiter = world.join(member_id, protocols=protocols)
    assert (world.error(waiter), world.answer(waiter).generation_id) == ("NONE", 1)


def test_a_member_that_has_not_synced_still_owns_what_it_is_to_give_up() -> None:
    """The leader has assigned, but the other member, which is cooperative, has not learnt it yet. Until it has, it reads
    what it owned before, and nobody else may have it."""
    world = mixed_world()
    one, two = classic_group(world, 2)
    leader, other = sorted((one, two), key=lambda each: each.member_id != world.group().leader_id)
    given_up = next(iter(other.owned))
    joins = [
        world.join(each.member_id, protocols={COOPERATIVE: metadata(each.owned, each.generation), "x": b""})
        for each in (leader, other)
    ]
    generation = world.answer(joins[0]).generation_id
    world.sync(
        leader.member_id,
        {leader.member_id: assigned(leader.owned), other.member_id: assigned(other.owned - {given_up})},
        generation=generation,
    )
    assert world.group().pending_syncs == {other.member_id}
    world.enter("new")
    topic_id = next(iter(world.topics.topics))
    assert not world.consumer_group().is_free_for("new", topic_id, given_up)
    assert world.member(other.member_id).assigned[topic_id] == frozenset(other.owned)


@pytest.mark.parametrize("settings", [{"group_consumer_migration_policy": "downgrade"}, {"group_consumer_max_size": 1}])
def test_a_group_that_may_not_be_upgraded_stays_as_it_is(settings: dict[str, Any]) -> None:
    world = mixed_world(**settings)
    one, two = classic_group(world, 2)
    records = len(world.log)
    assert world.refused(world.enter("new")) == "GROUP_ID_NOT_FOUND"
    assert len(world.log) == records
    assert world.heartbeat(one.member_id) == world.heartbeat(two.member_id) == "NONE"


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade"])
def test_a_consumer_group_takes_classic_members_unless_migration_is_disabled(policy: str) -> None:
    """With an id that the coordinator has just given out, or without one. A group that has become empty takes anybody."""
    world = mixed_world(group_consumer_migration_policy=policy)
    new = Consumer(world, "new")
    settle(world, new)
    records = len(world.log)
    protocols = {"range": metadata(set())}
    refused = policy == "disabled"
    assert world.error(world.join("", protocols=protocols)) == (
        "INCONSISTENT_GROUP_PROTOCOL" if refused else "MEMBER_ID_REQUIRED"
    )
    joining = world.join("given", protocols=protocols)
    assert world.error(joining) == ("INCONSISTENT_GROUP_PROTOCOL" if refused else "NONE")
    if refused:
        assert len(world.log) == records
        new.leave()
        assert world.error(world.join("", protocols=protocols)) == "MEMBER_ID_REQUIRED"


def test_a_group_whose_assignor_sends_data_of_its_own_is_not_upgraded() -> None:
    """Its members could not do without. With the next assignment that has none, it is upgraded."""
    world = mixed_world()
    member_id, _ = world.join_with_new_id(protocols={"own": metadata(set())})
    world.advance(10)
    with_data, without = (encode_with_version(ConsumerProtocolAssignment(user_data=each), 3) for each in (b"\0", b""))
    world.sync(member_id, {member_id: with_data}, generation=world.generation())
    records = len(world.log)
    refused = world.enter("new")
    assert world.refused(refused) == "GROUP_ID_NOT_FOUND"
    assert "data of its own" in (refused.error_message or "")
    assert len(world.log) == records
    world.join(member_id, protocols={"own": metadata(set())})
    world.advance(10)
    world.sync(member_id, {member_id: without}, generation=world.generation())
    assert world.refused(world.enter("new")) == "NONE"


def test_a_group_whose_records_fill_more_than_a_batch_is_not_upgraded() -> None:
    """Half of it in the log would be a group without some of its members."""
    world = mixed_world(batch_bytes_max=1_100)
    (old,) = classic_group(world, 1)
    world.leave(old.member_id)
    protocols = {"range": metadata(set()), "roundrobin": metadata(set()) + bytes(600)}
    member_id, joining = world.join_with_new_id(protocols=protocols)
    world.advance(1)
    world.sync(member_id, {member_id: assigned(ALL)}, generation=world.answer(joining).generation_id)
    records = len(world.log)
    refused = world.enter("new")
    assert world.refused(refused) == "GROUP_ID_NOT_FOUND"
    assert "do not fit into one batch" in (refused.error_message or "")
    assert len(world.log) == records
    world.change("t")


# --- a group of both -------------------------------------------------------------------------------------------------


def mixed_group() -> tuple[ConsumerWorld, ClassicConsumer, Consumer]:
    world = mixed_world()
    new = Consumer(world, "new")
    new.act()
    old = ClassicConsumer(world, COOPERATIVE)
    settle(world, old, new)
    return world, old, new


def test_a_classic_member_joins_a_consumer_group() -> None:
    world, old, new = mixed_group()
    assert old.generation == world.consumer_group().epoch
    assert old.owned | set(new.owned[1]) == ALL
    assert world.heartbeat(old.member_id, generation=old.generation) == "NONE"
    assert world.heartbeat(old.member_id, generation=old.generation - 1) == "ILLEGAL_GENERATION"
    assert world.heartbeat("new", generation=new.epoch) == "UNKNOWN_MEMBER_ID"
    assert world.commit(3, member_id=old.member_id, generation=old.generation) == "NONE"
    assert world.commit(4, member_id=old.member_id, generation=old.generation - 1) == "ILLEGAL_GENERATION"
    assert world.commit(4, member_id="new", generation=new.epoch - 1) == "STALE_MEMBER_EPOCH"
    assert world.error(world.sync(old.member_id, generation=old.generation, protocol_name="range")) == (
        "INCONSISTENT_GROUP_PROTOCOL"
    )
    answer = world.synced(world.sync(old.member_id, generation=old.generation, protocol_type="consumer"))
    assert indexes_of(answer) == old.owned


def test_a_classic_member_is_told_to_join_when_the_epoch_has_risen() -> None:
    world, old, _ = mixed_group()
    Consumer(world, "third").act()
    assert world.error(world.sync(old.member_id, generation=old.generation)) == "REBALANCE_IN_PROGRESS"
    assert world.heartbeat(old.member_id, generation=old.generation) == "REBALANCE_IN_PROGRESS"


def test_a_classic_member_that_does_not_join_again_is_removed() -> None:
    """It has its rebalance timeout from the first heartbeat that says so. Further heartbeats do not prolong it."""
    world, old, new = mixed_group()
    Consumer(world, "third").act()
    for _ in range(REBALANCE_MS // 5_000 + 1):
        world.heartbeat(old.member_id, generation=old.generation)
        new.act()
        world.advance(5_000)
    assert world.heartbeat(old.member_id, generation=old.generation) == "UNKNOWN_MEMBER_ID"


def test_a_classic_member_that_does_not_sync_is_removed() -> None:
    world, old, new = mixed_group()
    world.join(old.member_id, protocols={COOPERATIVE: metadata(old.owned)})
    for _ in range(REBALANCE_MS // 5_000 + 1):
        world.heartbeat(old.member_id, generation=old.generation)
        new.act()
        world.advance(5_000)
    assert world.heartbeat(old.member_id, generation=old.generation) == "UNKNOWN_MEMBER_ID"


def test_the_session_of_a_classic_member_is_its_own() -> None:
    """Also after a failover."""
    for reloads in (False, True):
        world, old, _ = mixed_group()
        if reloads:
            world.reload()
        world.advance(SESSION_MS - 1_000)
        assert world.consumer_group().member(old.member_id) is not None
        world.advance(1_001)
        assert world.consumer_group().member(old.member_id) is None


@pytest.mark.parametrize("hears_first", [False, True])
def test_a_classic_member_in_a_state_of_a_later_release_gives_up_what_it_owns(hears_first: bool) -> None:
    """It is not known what the coordinator has told it to revoke."""
    world, old, new = mixed_group()
    member = world.member(old.member_id)
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=old.member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=member.epoch, previous_member_epoch=0, state=9)
    world.log.append((encode_consumer_key(key), encode_consumer_value(value)))
    world.reload()
    assert world.member(old.member_id).state is MemberState.UNKNOWN
    records = len(world.log)
    if hears_first:
        assert world.heartbeat(old.member_id, generation=old.generation) == "ILLEGAL_GENERATION"
        assert world.error(world.sync(old.member_id, generation=old.generation)) == "ILLEGAL_GENERATION"
    else:
        joining = world.join(old.member_id, protocols={COOPERATIVE: metadata(old.owned, old.generation)})
        assert world.error(joining) == "UNKNOWN_MEMBER_ID"
    assert len(world.log) == records
    settle(world, old, new)
    assert old.owned | set(new.owned[1]) == ALL
    assert world.member(old.member_id).state is MemberState.STABLE


def test_classic_members_alone_in_a_consumer_group_get_new_partitions() -> None:
    """No leader among them watches the topics."""
    world = mixed_world(group_consumer_migration_policy="upgrade")
    (old,) = classic_group(world, 1)
    new = Consumer(world, "new")
    settle(world, old, new)
    new.leave()
    settle(world, old)
    records = len(world.log)
    settle(world, old)
    assert (old.owned, len(world.log)) == (ALL, records)
    world.topics.add_partitions("t", 6)
    world.change("t", has_other_names=False)
    settle(world, old)
    assert old.owned == {*range(6)}
    _expect_replay(world)


def test_an_administrator_removes_members_of_either_protocol() -> None:
    """LeaveGroup names a static member by its instance id, by both ids or, like any other, by its member id."""
    world = mixed_world()
    for member_id, instance in (("a", "one"), ("b", "two"), ("c", "three"), ("d", None), ("e", None)):
        Consumer(world, member_id, instance=instance).act()
    left = world.leave(
        MemberIdentity(member_id="", group_instance_id="one"),
        MemberIdentity(member_id="b", group_instance_id="two"),
        MemberIdentity(member_id="c"),
        MemberIdentity(member_id="d"),
    )
    assert left == ["NONE"] * 4
    assert [each.member_id for each in world.consumer_group().members] == ["e"]


def test_an_administrator_names_members_that_are_not_there() -> None:
    world = mixed_world()
    Consumer(world, "a", instance="one").act()
    left = world.leave(
        MemberIdentity(member_id="", group_instance_id="two"),
        MemberIdentity(member_id="b", group_instance_id="one"),
        MemberIdentity(member_id="b"),
        MemberIdentity(member_id=""),
    )
    assert left == ["UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"]
    assert [each.member_id for each in world.consumer_group().members] == ["a"]


def test_a_member_needs_a_protocol_in_common_with_the_other_classic_members() -> None:
    world, old, _ = mixed_group()
    assert world.error(world.join(protocols={"range": metadata(set())})) == "INCONSISTENT_GROUP_PROTOCOL"
    # Its own protocols count, so it cannot change to another one while it is in the group.
    changed = world.join(old.member_id, protocols={"range": metadata(set())})
    assert world.error(changed) == "INCONSISTENT_GROUP_PROTOCOL"


# --- down ------------------------------------------------------------------------------------------------------------


def test_a_consumer_group_becomes_a_classic_group_with_its_last_consumer() -> None:
    """One batch, whose last record is the classic group's. The generation goes on, and the members rebalance."""
    world, old, new = mixed_group()
    world.commit(5, member_id="new", generation=new.epoch)
    epoch = world.consumer_group().epoch
    new.leave()
    *tombstones, (key, value) = world.written
    assert all(each is None for _, each in tombstones)
    assert ConsumerGroupMetadataKey(group_id="g") in [each for each, _ in tombstones]
    assert key == GroupMetadataKey(group="g")
    assert (decode_group(value).generation, decode_group(value).leader) == (epoch, None)
    assert world.heartbeat(old.member_id, generation=old.generation) == "REBALANCE_IN_PROGRESS"
    assert not [each for each in world.timers if each[0].startswith("consumer")]
    settle(world, old)
    assert (old.owned, old.generation) == (ALL, epoch + 1)
    assert world.group().state is GroupState.STABLE
    assert world.fetch() == {("t", 0): 5}
    for shard in (world.replayed(), world.replayed(compacted=True)):
        assert not shard.consumer_groups
        assert [group.group_id for group in shard.groups] == ["g"]


def test_a_failover_after_the_downgrade_begins_the_rebalance_anew() -> None:
    """What the last consumer had is to be assigned, and only the coordinator knows that."""
    world, old, new = mixed_group()
    new.leave()
    world.reload()
    settle(world, old)
    assert old.owned == ALL


def test_the_group_is_downgraded_however_the_last_consumer_goes() -> None:
    world, old, _ = mixed_group()
    for _ in range(10):
        world.heartbeat(old.member_id, generation=old.generation)
        world.advance(5_000)
    settle(world, old)
    assert old.owned == ALL
    assert world.listed(types=["classic"]) == {"g": "Stable"}


def test_a_group_that_may_not_be_downgraded_goes_on() -> None:
    world = mixed_world(group_consumer_migration_policy="upgrade")
    (old,) = classic_group(world, 1)
    new = Consumer(world, "new")
    settle(world, old, new)
    new.leave()
    settle(world, old)
    assert old.owned == ALL
    assert world.listed(types=["consumer"]) == {"g": "Stable"}


@pytest.mark.parametrize("protocol", [COOPERATIVE, EAGER])
def test_a_static_member_changes_its_protocol_by_restarts(protocol: str) -> None:
    """A restarted static member takes the place of its former self, whatever protocol that spoke, up and down."""
    world = mixed_world()
    old = ClassicConsumer(world, protocol, instance="one")
    settle(world, old)
    new = Consumer(world, "new", instance="one")
    settle(world, new)
    assert new.owned == {1: sorted(ALL)}
    assert old.is_member
    assert world.heartbeat(old.member_id, generation=1, instance="one") == "FENCED_INSTANCE_ID"
    again = ClassicConsumer(world, protocol, instance="one")
    settle(world, again)
    assert again.owned == ALL
    assert world.listed(types=["classic"]) == {"g": "Stable"}
    assert world.refused(world.beat("new", new.epoch, instance="one")) == "GROUP_ID_NOT_FOUND"


def test_a_member_that_changes_its_protocol_under_its_id_need_not_join_again() -> None:
    """The time to join again was that of a classic member."""
    world, old, new = mixed_group()
    Consumer(world, "third").act()
    assert world.heartbeat(old.member_id, generation=old.generation) == "REBALANCE_IN_PROGRESS"
    again = Consumer(world, old.member_id)
    again.epoch, again.owned = old.generation, {1: sorted(old.owned)}
    for _ in range(REBALANCE_MS // 5_000 + 1):
        again.act()
        new.act()
        world.advance(5_000)
    assert again.epoch == world.consumer_group().epoch


def test_a_member_that_changes_its_protocol_under_its_id_still_has_to_revoke() -> None:
    world, old, _ = mixed_group()
    for name in ("third", "fourth"):
        Consumer(world, name).act()
    world.join(old.member_id, protocols={COOPERATIVE: metadata(old.owned)})
    assert world.member(old.member_id).state is MemberState.UNREVOKED_PARTITIONS
    for _ in range(REBALANCE_MS // 5_000):
        assert world.refused(world.beat(old.member_id, old.generation)) == "NONE"
        world.advance(5_000)
    assert world.consumer_group().member(old.member_id) is None


def test_no_timer_of_a_replaced_static_member_is_left() -> None:
    """It could remove a later member with the same id."""
    world = mixed_world()
    consumer = Consumer(world, "a", instance="one")
    other = Consumer(world, "b")
    consumer.act()
    other.act()
    consumer.act()
    assert ("consumer-rebalance", "g", "a") in world.timers
    waiter = world.join(protocols={COOPERATIVE: metadata(set())}, instance="one")
    assert not [key for key in world.timers if key[-1] == "a"]
    member_id = world.answer(waiter).member_id
    assert ("consumer-sync", "g", member_id) in world.timers
    Consumer(world, "c", instance="one").act()
    assert not [key for key in world.timers if key[-1] == member_id]


# --- the record ------------------------------------------------------------------------------------------------------


def test_the_record_of_a_classic_member() -> None:
    """Worked out by hand from Kafka's schema: the tagged field 0 is a struct that may be null, so a byte comes before it. A
    member of the consumer protocol has the byte 0, and to Kafka a record without the field is that of a classic member."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        rebalance_timeout_ms=5,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=6, supported_protocols=[ClassicProtocol(name="r", metadata=b"\x07")]
        ),
    )
    plain = bytes.fromhex("0000 00 00 0263 0268 02 0274 00 00000005 00")
    tagged = bytes.fromhex("01 00 0c 01 00000006 02 0272 0207 00 00")
    assert encode_consumer_value(value) == plain + tagged
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    assert decode_consumer_value(key, plain + tagged) == value
    value.classic_member_metadata = None
    assert encode_consumer_value(value) == plain + bytes.fromhex("01 00 01 00")
    assert decode_consumer_value(key, plain + bytes.fromhex("01 00 01 00")) == value
    assert decode_consumer_value(key, plain + b"\x00") == replace(value, classic_member_metadata=ClassicMemberMetadata())


def test_a_member_without_classic_protocols_speaks_the_consumer_protocol() -> None:
    """Earlier versions of Diskraft wrote members of the consumer protocol without the field."""
    group = ConsumerGroup(GROUP, TopicSubscribers())
    apply(group, ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="m"), ConsumerGroupMemberMetadataValue())
    member = group.member("m")
    assert member is not None and member.classic is None


# --- any order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [COOPERATIVE, EAGER])
@pytest.mark.parametrize("seed", range(15))
def test_no_partition_has_two_owners_in_any_order_of_events(protocol: str, seed: int) -> None:
    """Clients of both protocols come, go and act in a random order, and coordinators fail over. At no time do two of them
    own a partition, by what they know themselves; a loaded group is as the live one; and in the end every partition is
    owned."""
    rng = random.Random(f"{protocol}/{seed}")
    world = mixed_world()
    clients: list[ClassicConsumer | Consumer] = []
    names = iter(range(1_000))
    for number in range(120):
        drawn = rng.random()
        if drawn < 0.08 and len(clients) < 4:
            is_classic = rng.random() < 0.6
            clients.append(ClassicConsumer(world, protocol) if is_classic else Consumer(world, f"new-{next(names)}"))
        elif drawn < 0.12 and clients:
            leaving = rng.choice(clients)
            if isinstance(leaving, Consumer) or not leaving.is_waiting:
                leaving.leave()
                clients.remove(leaving)
        elif drawn < 0.15:
            world.reload()
        elif clients:
            rng.choice(clients).act()
        _expect_one_owner(clients)
        if number % 8 == 0:
            _expect_replay(world)
        world.advance(rng.choice([0, 1, 20]))
    if not clients:
        return
    # A member that left while the coordinator failed over may be in the log still, until its session ends.
    for _ in range(2 * REBALANCE_MS // 2_000):
        for each in clients:
            each.act()
            _expect_one_owner(clients)
        world.advance(2_000)
    assert set().union(*map(_owned, clients)) == ALL
    is_classic = all(isinstance(each, ClassicConsumer) for each in clients)
    assert world.listed() == {"g": "Stable"}
    assert world.listed(types=["classic" if is_classic else "consumer"]) == {"g": "Stable"}


def _owned(client: ClassicConsumer | Consumer) -> set[int]:
    return client.owned if isinstance(client, ClassicConsumer) else set(client.owned.get(1, []))


def _expect_one_owner(clients: list[ClassicConsumer | Consumer]) -> None:
    owned = [index for each in clients for index in _owned(each)]
    assert len(owned) == len(set(owned)), [_owned(each) for each in clients]


def _expect_replay(world: ConsumerWorld) -> None:
    for compacted in (False, True):
        loaded = world.replayed(compacted=compacted)
        assert [_shown(each) for each in loaded.consumer_groups] == [_shown(each) for each in world.shard.consumer_groups]


def _shown(group: ConsumerGroup) -> Any:
    members = sorted(group.members, key=lambda each: each.member_id)
    return group.epoch, group.target_epoch, members, dict(group.targets()), group.classic_size


def test_the_log_of_a_group_that_went_up_and_down_has_one_group() -> None:
    world, old, new = mixed_group()
    new.leave()
    settle(world, old)
    Consumer(world, "again").act()
    kinds = {type(decode_key(key)) for key, value in world.log if value is None}
    assert GroupMetadataKey in kinds
    assert not list(world.replayed(compacted=True).groups)
