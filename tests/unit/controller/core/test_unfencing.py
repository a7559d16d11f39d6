"""A broker with several directories stays fenced until the directories of its older replicas are known, or it has asked long
enough. Operations run on a controller without its shell; the result is compared with the state and with the records."""

import pytest

from common.ids import BrokerId, DirectoryId, TopicId, TopicIdPartition
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.metadata_version import METADATA_VERSION_FEATURE
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
)
from controller.core import long_decisions
from controller.core.heartbeat import handle_broker_heartbeat
from controller.core.result import ControllerResult
from controller.core.unfencing import UNFENCING_PATIENCE_NS, AwaitedReplicas
from tests.unit.controller.core.context import CAUGHT_UP, SESSION_TIMEOUT_NS, ControllerContext, directory

ONE = BrokerId(1)


def with_unknown_directories(partitions: int = 3) -> tuple[ControllerContext, TopicId]:
    """Broker 2 leads; broker 1 registers directories a and b after its replicas were placed on it. Nobody knows in which
    directories these are."""
    controller = ControllerContext()
    controller.start(2, ["c", "d"])
    controller.start(1, ["a", "b"])
    topic_id = controller.topic("t", [[2, 1]] * partitions)
    controller.fence(1)
    controller.register(1, ["a", "b"], incarnation_name="second")
    return controller, topic_id


def replica(topic_id: TopicId, index: int) -> TopicIdPartition:
    return TopicIdPartition(topic_id, index)


def kept_fenced(controller: ControllerContext) -> list[object]:
    """Returns the counts in the events about broker 1 that the last operation emitted."""
    return [event.fields["partitions"] for event in controller.last_events if event.name == "broker_kept_fenced"]


def test_a_broker_is_unfenced_once_every_older_replica_has_its_directory() -> None:
    """The count is announced once, and again after each progress."""
    controller, topic_id = with_unknown_directories()
    assert controller.heartbeat(1).is_fenced
    assert (controller.records, kept_fenced(controller)) == ([], [3])
    assert controller.heartbeat(1).is_fenced
    assert kept_fenced(controller) == []
    controller.assign(1, {"a": [replica(topic_id, 0), replica(topic_id, 1)]})
    assert controller.heartbeat(1).is_fenced
    assert (kept_fenced(controller), controller.awaited.total) == ([1], 1)
    controller.assign(1, {}, ids={LOST: [replica(topic_id, 2)]})
    assert not controller.heartbeat(1).is_fenced
    assert controller.awaited.total == 0


def test_later_replicas_and_later_fencing_do_not_count() -> None:
    """A replica that is placed on the broker after its registration is not waited for, and neither is any replica of an
    incarnation that was unfenced before."""
    controller, topic_id = with_unknown_directories(partitions=1)
    later = controller.topic("later", [[2, 1]])
    controller.assign(1, {"a": [replica(topic_id, 0)]})
    assert not controller.heartbeat(1).is_fenced
    assert controller.partition(later).directory(ONE) == UNASSIGNED
    controller.fence(1)
    assert not controller.heartbeat(1).is_fenced


def test_a_replica_that_comes_back_counts_as_a_later_one() -> None:
    """A reassignment takes the replica away from the broker and another one brings it back."""
    controller, topic_id = with_unknown_directories(partitions=1)
    controller.reassign("t", {0: [2]})
    assert controller.partition(topic_id).replicas == (2,)
    controller.reassign("t", {0: [2, 1]})
    assert controller.partition(topic_id).directory(ONE) == UNASSIGNED
    assert not controller.heartbeat(1).is_fenced


@pytest.mark.parametrize("reserved", [UNASSIGNED, MIGRATING])
def test_neither_unassigned_nor_migrating_is_an_answer(reserved: DirectoryId) -> None:
    """Assigning one reserved id in place of the other is no progress."""
    controller, topic_id = with_unknown_directories(partitions=1)
    controller.assign(1, {}, ids={reserved: [replica(topic_id, 0)]})
    assert controller.heartbeat(1).is_fenced


def test_only_several_directories_are_waited_for() -> None:
    """A broker with one directory cannot lose it and go on, so nothing has to be known."""
    controller, _ = with_unknown_directories()
    controller.register(1, ["a"], incarnation_name="third")
    assert not controller.heartbeat(1).is_fenced


def test_a_directory_that_was_lost_before_unfencing_still_counts_as_registered() -> None:
    """The broker registered two directories. That one of them fails makes the replicas' directories no clearer."""
    controller, _ = with_unknown_directories()
    assert controller.heartbeat(1, offline=["a"], want_fence=True).is_fenced
    assert AwaitedReplicas(controller.state).count(ONE) == 3
    assert controller.heartbeat(1, offline=["a"]).is_fenced


def test_a_registration_of_the_same_incarnation_changes_nothing() -> None:
    """Neither the set nor the time is fixed anew: the replica that was placed in between does not count."""
    controller, topic_id = with_unknown_directories(partitions=1)
    controller.topic("later", [[2, 1]])
    controller.register(1, ["a", "b"], incarnation_name="second")
    assert controller.awaited.of_broker(ONE) == [replica(topic_id, 0)]
    controller.assign(1, {"a": [replica(topic_id, 0)]})
    controller.register(1, ["a", "b"], incarnation_name="second")
    assert not controller.heartbeat(1).is_fenced


def test_what_is_gone_is_not_waited_for() -> None:
    """A deleted topic, an unregistered broker and a level without assignments."""
    controller, _ = with_unknown_directories()
    other = controller.topic("other", [[2, 1]])
    controller.register(1, ["a", "b"], incarnation_name="third")
    assert controller.awaited.total == 4
    controller.delete("t")
    assert controller.awaited.of_broker(ONE) == [replica(other, 0)]
    controller.unregister(1)
    assert controller.awaited.total == 0
    controller.register(1, ["a", "b"])
    assert controller.awaited.total == 1
    lower = FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=16)
    controller.apply(ControllerResult([ApiMessageAndVersion(lower, 0)], None))
    assert controller.awaited.total == 0


def test_a_new_controller_derives_the_set_from_the_state() -> None:
    """What a controller has followed and what the next one derives is the same."""
    controller, topic_id = with_unknown_directories()
    controller.assign(1, {"b": [replica(topic_id, 1)]})
    derived = AwaitedReplicas(controller.state)
    assert derived.of_broker(ONE) == controller.awaited.of_broker(ONE) == [replica(topic_id, 0), replica(topic_id, 2)]
    assert derived.of_broker(BrokerId(2)) == []


# --- asking in vain ---------------------------------------------------------------------------------------------


def ask_for(controller: ControllerContext, seconds: int) -> list[bool]:
    """Sends a heartbeat every two seconds. Returns whether the broker is fenced after each."""
    answers = []
    for _ in range(0, seconds, 2):
        controller.advance(2)
        answers.append(controller.heartbeat(1).is_fenced)
    return answers


def test_after_the_patience_what_is_left_is_lost_in_the_batch_that_unfences() -> None:
    """The replicas become LOST before the broker is unfenced, and nothing is elected on them. The replica that was assigned
    stays."""
    controller, topic_id = with_unknown_directories()
    controller.assign(1, {"a": [replica(topic_id, 1)]})
    controller.heartbeat(1)
    assert all(ask_for(controller, 28))
    assert ask_for(controller, 2) == [False]
    lost = [PartitionChangeRecord(topic_id=topic_id, partition_id=index, directories=[UNASSIGNED, LOST]) for index in (0, 2)]
    unfenced = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), fenced=-1)
    assert controller.records == [*lost, unfenced]
    assert controller.event("awaited_replicas_lost")["partitions"] == 2
    assert controller.partition(topic_id, 1).directory(ONE) == directory("a")


def test_progress_begins_the_patience_anew() -> None:
    """One replica is assigned after 28 s. The broker is not unfenced before another 30 s have passed."""
    controller, topic_id = with_unknown_directories()
    controller.heartbeat(1)
    assert all(ask_for(controller, 28))
    controller.assign(1, {"a": [replica(topic_id, 0)]})
    assert all(ask_for(controller, 30))
    assert ask_for(controller, 2) == [False]


def test_a_silent_broker_has_not_asked() -> None:
    """The broker asks once, is silent for longer than its session and asks again: the second question is the first one."""
    controller, _ = with_unknown_directories()
    controller.heartbeat(1)
    controller.advance(SESSION_TIMEOUT_NS / 1e9 + 1)
    assert controller.heartbeat(1).is_fenced
    controller.advance(UNFENCING_PATIENCE_NS / 1e9)
    assert controller.heartbeat(1).is_fenced
    assert all(ask_for(controller, 28))
    assert ask_for(controller, 2) == [False]


def test_the_last_of_the_isr_is_not_elected_where_nobody_knows_it() -> None:
    """The broker is the only member of the ISR. As long as it waits the partition has no leader; LOST does not change that,
    even where unclean elections are allowed, for the election caused by the loss must not undo it."""
    controller = ControllerContext(unclean=True)
    controller.start(1, ["a", "b"])
    topic_id = controller.topic("t", [[1]])
    controller.fence(1)
    controller.register(1, ["a", "b"], incarnation_name="second")
    assert controller.leader_and_isr(topic_id) == (-1, [1])
    controller.heartbeat(1)
    assert ask_for(controller, 30)[-1] is False
    assert controller.partition(topic_id).directory(ONE) == LOST
    assert controller.leader_and_isr(topic_id) == (-1, [1])


def test_a_heartbeat_costs_the_same_however_many_replicas_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused heartbeat looks at no partition. The one that unfences does, in slices."""
    monkeypatch.setattr(long_decisions, "PARTITIONS_PER_SLICE", 2)
    controller, _ = with_unknown_directories(partitions=9)
    controller.heartbeat(1)
    topics = controller.state.topics
    controller.state.topics = {}
    assert controller.heartbeat(1).is_fenced
    controller.state.topics = topics
    ask_for(controller, 28)
    controller.advance(2)
    question = BrokerHeartbeatRequest(broker_id=1, broker_epoch=controller.epoch(1), current_metadata_offset=CAUGHT_UP)
    assert sum(1 for _ in handle_broker_heartbeat(controller.turn(), question)) >= 4


def test_a_removed_topic_that_nobody_waits_for() -> None:
    """A record about something else changes nothing."""
    controller, _ = with_unknown_directories()
    other = controller.topic("other", [[2]])
    controller.state.replay(RemoveTopicRecord(topic_id=other), offset=controller.next_write_offset)
    controller.awaited.note(RemoveTopicRecord(topic_id=other))
    assert controller.awaited.total == 3
