"""Heartbeats: unfencing, fencing, failed directories, controlled shutdown, and their order within one heartbeat."""

from collections.abc import Mapping
from typing import Any

import pytest

from common.ids import NO_LEADER, BrokerId, TopicIdPartition, Uuid
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, LATEST_LEVEL, METADATA_VERSION_FEATURE
from common.metadata.registrations import BrokerRegistration
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    UnfenceBrokerRecord,
)
from controller.core import long_decisions
from controller.core.heartbeat import answer_between_slices, handle_broker_heartbeat
from controller.core.leaderless import elect_leaderless
from controller.core.long_decisions import Sliced
from controller.core.partition_change import PartitionChanges
from controller.core.preferred import elect_preferred_leaders
from controller.core.registration import handle_broker_registration
from controller.core.result import ControllerResult
from controller.core.unregister import handle_unregister_broker
from tests.counted import counted
from tests.unit.controller.core.context import ControllerContext, directory

ONE = BrokerId(1)


def three_brokers() -> ControllerContext:
    """Registers brokers 1, 2 and 3 with directories a and b, c and d, e and f."""
    controller = ControllerContext()
    for broker_id, names in ((1, "ab"), (2, "cd"), (3, "ef")):
        controller.start(broker_id, list(names))
    return controller


# --- unfencing and epochs ---------------------------------------------------------------------------------------


def test_a_caught_up_broker_is_unfenced() -> None:
    """The broker must have applied its own registration. It need not have applied later records (KAFKA-13959)."""
    controller = ControllerContext()
    controller.register(1, ["a"])
    registered_at = controller.next_write_offset - 1
    controller.register(2, ["b"])
    early = controller.heartbeat(1, metadata_offset=registered_at - 1)
    assert early == BrokerHeartbeatResponse(is_caught_up=False, is_fenced=True)
    assert controller.records == []
    response = controller.heartbeat(1, metadata_offset=registered_at)
    assert response == BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
    assert controller.records == [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), fenced=-1)]


@pytest.mark.parametrize("epoch", [0, 10**6])
def test_another_epoch_is_stale(epoch: int) -> None:
    """A heartbeat from another incarnation changes nothing, not even the session."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    controller.advance(10)
    with pytest.raises(ApiError) as caught:
        controller.heartbeat(1, epoch=epoch)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert controller.fence_stale() == 1


def test_a_heartbeat_before_registration_is_stale() -> None:
    """An unregistered broker has no epoch, so any epoch in its heartbeat is stale."""
    with pytest.raises(ApiError) as caught:
        ControllerContext().heartbeat(1)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_unfencing_elects_the_last_isr_member() -> None:
    """A partition whose only ISR member returns gets its leader in the same batch, after the registration change."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    topic_id = controller.topic("t", [[1]])
    controller.fence(1)
    assert controller.leader_and_isr(topic_id) == (NO_LEADER, [1])
    controller.heartbeat(1)
    assert controller.records == [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), fenced=-1),
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1),
    ]


def test_levels_below_6_fence_with_their_own_records() -> None:
    """metadata.version 5 has no BrokerRegistrationChangeRecord."""
    controller = ControllerContext(level=5)
    controller.register(1)
    controller.heartbeat(1)
    assert controller.records == [UnfenceBrokerRecord(id=1, epoch=controller.epoch(1))]
    controller.fence(1)
    assert controller.records == [FenceBrokerRecord(id=1, epoch=controller.epoch(1))]


# --- failed directories -----------------------------------------------------------------------------------------


def test_a_failed_directory_moves_its_leaders_and_no_others() -> None:
    """Partition changes come first, then the registration change with the remaining directories. Partitions in other
    directories are untouched."""
    controller = three_brokers()
    layout = [[1, 2, 3], [2, 1, 3]]
    on_a = controller.topic("on-a", layout, {1: "a"})
    on_b = controller.topic("on-b", layout, {1: "b"})
    response = controller.heartbeat(1, offline=["a"])
    assert response == BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=on_a, isr=[2, 3], leader=2),
        PartitionChangeRecord(partition_id=1, topic_id=on_a, isr=[2, 3]),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), log_dirs=[directory("b")]),
    ]
    assert [written.version for written in controller.last_records] == [1, 1, 2]
    assert controller.leader_and_isr(on_b, 0) == (1, [1, 2, 3])
    assert controller.event("log_dir_reported_offline")["directory_id"] == directory("a")
    assert controller.event("leaders_moved") == {
        "broker_id": 1,
        "directory_id": directory("a"),
        "partitions": 2,
        "leaders": 1,
    }


@pytest.mark.parametrize("is_unclean_allowed", [False, True])
def test_a_failed_directory_changes_its_partitions_as_fencing_does(is_unclean_allowed: bool) -> None:
    """Everything that the broker has is in one directory. It leads, follows, is last in the ISR, and is outside the ISR."""
    changed = []
    for request in ({"offline": ["a"]}, {"want_fence": True}):
        controller = three_brokers()
        configs = {"unclean.leader.election.enable": "true"} if is_unclean_allowed else {}
        topic_id = controller.topic("t", [[1, 2, 3], [2, 1, 3], [1, 3, 2], [2, 3, 1]], {1: "a", 2: "c", 3: "e"}, configs)
        controller.alter(topic_id, 2, [1])
        controller.alter(topic_id, 3, [2, 3])
        controller.heartbeat(1, **request)
        changed.append([record for record in controller.records if isinstance(record, PartitionChangeRecord)])
    assert changed[0] == changed[1]
    assert [record.partition_id for record in changed[0]] == [0, 1, 2]


def test_a_repeated_report_writes_nothing_when_all_is_well() -> None:
    """Every heartbeat names all lost directories, but only the first one writes anything."""
    controller = three_brokers()
    controller.topic("t", [[1, 2]], {1: "a"})
    controller.heartbeat(1, offline=["a"])
    written = len(controller.log)
    response = controller.heartbeat(1, offline=["a"])
    assert response.error_code == ErrorCode.NONE
    assert len(controller.log) == written
    assert controller.last_events == []


def looked_at(controller: ControllerContext, monkeypatch: pytest.MonkeyPatch) -> list[TopicIdPartition]:
    """Returns the list in which every partition will be that an operation looks at."""
    found: list[TopicIdPartition] = []
    without = PartitionChanges.without

    def noted(self: PartitionChanges, key: TopicIdPartition, broker_id: BrokerId) -> ApiMessageAndVersion | None:
        found.append(key)
        return without(self, key, broker_id)

    monkeypatch.setattr(PartitionChanges, "without", noted)
    return found


@pytest.mark.parametrize("is_leaving", [False, True])
def test_a_repeated_heartbeat_looks_at_no_partition(is_leaving: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only replicas of three partitions are in a lost directory, or on a broker that shuts down. The broker repeats its
    heartbeats meanwhile, and other partitions change."""
    controller = three_brokers()
    controller.topic("alone", [[1]] * 3, {1: "a"})
    other = controller.topic("other", [[2, 3]], {2: "c", 3: "e"})
    # Brokers that do not follow the metadata keep the shutdown waiting.
    controller.heartbeat(2, metadata_offset=0)
    request: dict[str, Any] = {"want_shut_down": True} if is_leaving else {"offline": ["a"]}
    for _ in range(2):
        controller.heartbeat(1, **request)
    found = looked_at(controller, monkeypatch)
    for isr in ([2], [2, 3]):
        controller.heartbeat(1, **request)
        controller.alter(other, 0, isr)
    assert found == []
    controller.fence(3)
    found.clear()
    controller.heartbeat(1, **request)
    assert len(found) == 3


def test_changes_that_leave_nothing_to_repair_cause_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many partitions keep a replica in a lost directory that is in no ISR. Their ISRs change all the time, and the repeated
    heartbeats look at no partition for it, not even at the sole replicas in the same directory."""
    controller = three_brokers()
    controller.topic("alone", [[1]] * 3, {1: "a"})
    shared = controller.topic("shared", [[2, 3, 1]], {1: "a", 2: "c", 3: "e"})
    controller.heartbeat(1, offline=["a"])
    controller.heartbeat(1, offline=["a"])
    found = looked_at(controller, monkeypatch)
    for isr in ([2], [2, 3]):
        controller.alter(shared, 0, isr)
        controller.heartbeat(1, offline=["a"])
    assert found == []


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_repeated_shutdown_repairs_what_is_still_there(is_fenced: bool) -> None:
    """A heartbeat of a broker in controlled shutdown removes any ISR entry of the broker, however it got there (here by a
    record of a controller without these rules), also after a look that found nothing, and also of a fenced broker."""
    controller = three_brokers()
    other = controller.topic("other", [[2, 1], [1, 2]], {2: "c", 1: "a"})
    # A broker that does not follow the metadata keeps the shutdown waiting.
    controller.heartbeat(2, metadata_offset=0)
    controller.heartbeat(1, want_shut_down=True)
    if is_fenced:
        controller.advance(100)
        controller.heartbeat(2, metadata_offset=0)
        controller.heartbeat(3)
        assert controller.fence_stale() == ONE
    for _ in range(2):
        controller.heartbeat(1, want_shut_down=True)
        assert controller.records == []
    controller.state.replay(
        PartitionChangeRecord(partition_id=0, topic_id=other, isr=[2, 1]), offset=controller.next_write_offset
    )
    controller.heartbeat(1, want_shut_down=True)
    assert controller.leader_and_isr(other) == (2, [2])


def test_a_repeated_report_repairs_what_is_still_there() -> None:
    """The next report removes any leader or ISR entry from a lost directory, however it got there (here by records of a
    controller without these rules), although the report before found nothing to repair."""
    controller = three_brokers()
    topic_id = controller.topic("t", [[1, 2], [2, 1]], {1: "a"})
    controller.heartbeat(1, offline=["a"])
    controller.heartbeat(1, offline=["a"])
    assert controller.records == []
    for index, leader in ((0, 1), (1, 2)):
        record = PartitionChangeRecord(partition_id=index, topic_id=topic_id, isr=[2, 1], leader=leader)
        controller.state.replay(record, offset=controller.next_write_offset)
        controller.log.append(record)
    # The invariants are broken until both records are replayed, so skip the checks meanwhile.
    controller.check_invariants = lambda: None  # type: ignore[method-assign]
    controller.heartbeat(1, offline=["a"])
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2], leader=2),
        PartitionChangeRecord(partition_id=1, topic_id=topic_id, isr=[2]),
    ]
    ControllerContext.check_invariants(controller)
    assert [event.name for event in controller.last_events] == ["leaders_moved"]


def test_two_directories_at_once() -> None:
    """Both failures are handled, and one registration change has the remaining directories."""
    controller = ControllerContext()
    controller.start(1, ["a", "b", "c"])
    controller.start(2, ["d"])
    on_a = controller.topic("on-a", [[1, 2]], {1: "a"})
    on_b = controller.topic("on-b", [[1, 2]], {1: "b"})
    controller.heartbeat(1, offline=["b", "a", "b"])
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=on_b, isr=[2], leader=2),
        PartitionChangeRecord(partition_id=0, topic_id=on_a, isr=[2], leader=2),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), log_dirs=[directory("c")]),
    ]


def test_the_last_isr_member_in_a_failed_directory_stays_without_leading() -> None:
    """The ISR never becomes empty: only this replica is known to have everything."""
    controller = three_brokers()
    topic_id = controller.topic("t", [[1, 2]], {1: "a"})
    controller.fence(2)
    controller.heartbeat(1, offline=["a"])
    assert controller.leader_and_isr(topic_id) == (NO_LEADER, [1])
    # The other replica may return but does not become leader, since it lacks what was acknowledged without it.
    controller.heartbeat(2)
    assert controller.leader_and_isr(topic_id) == (NO_LEADER, [1])


def test_the_last_isr_member_gives_way_where_unclean_elections_are_allowed() -> None:
    """The topic's configuration allows an unclean election. The new leader is alone in the ISR and RECOVERING."""
    controller = three_brokers()
    topic_id = controller.topic("t", [[1, 2]], {1: "a"}, {"unclean.leader.election.enable": "true"})
    controller.fence(2)
    controller.heartbeat(2)
    controller.heartbeat(1, offline=["a"])
    assert controller.records[0] == PartitionChangeRecord(
        partition_id=0, topic_id=topic_id, isr=[2], leader=2, leader_recovery_state=1
    )


def test_a_heartbeat_that_unfences_and_reports_a_failure_at_once() -> None:
    """The controller handles the lost directory first, so unfencing the broker elects no leader in that directory."""
    controller = ControllerContext()
    controller.start(1, ["a", "b"])
    on_a = controller.topic("on-a", [[1]], {1: "a"})
    on_b = controller.topic("on-b", [[1]], {1: "b"})
    controller.fence(1)
    response = controller.heartbeat(1, offline=["a"])
    assert response == BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
    assert controller.records == [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), fenced=-1, log_dirs=[directory("b")]),
        PartitionChangeRecord(partition_id=0, topic_id=on_b, leader=1),
    ]
    assert controller.leader_and_isr(on_a) == (NO_LEADER, [1])


def test_a_heartbeat_that_loses_the_last_directory_fences_in_the_same_batch() -> None:
    """A registration change cannot express that no directory is left. The broker is fenced instead, and stays fenced."""
    controller = three_brokers()
    topic_id = controller.topic("t", [[1, 2]], {1: "b"})
    elsewhere = controller.topic("unassigned", [[1, 2]])
    controller.heartbeat(1, offline=["a"])
    response = controller.heartbeat(1, offline=["a", "b"])
    assert response == BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True)
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2], leader=2),
        PartitionChangeRecord(partition_id=0, topic_id=elsewhere, isr=[2], leader=2),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), fenced=1),
    ]
    assert controller.event("broker_fenced")["reason"] == "every log directory is lost"
    written = len(controller.log)
    assert controller.heartbeat(1, offline=["a", "b"]).is_fenced
    assert len(controller.log) == written


def test_a_single_directory_broker_that_loses_it_is_fenced() -> None:
    """A broker that had only one directory from the start is fenced when it loses it."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    topic_id = controller.topic("t", [[1]])
    assert controller.heartbeat(1, offline=["a"]).is_fenced
    assert controller.leader_and_isr(topic_id) == (NO_LEADER, [1])


def test_an_unassigned_replica_is_not_touched_by_a_failure() -> None:
    """The controller cannot know whether the replica was in that directory. If so, the broker's assignment will say it."""
    controller = three_brokers()
    topic_id = controller.topic("t", [[1, 2]])
    assert controller.partition(topic_id).directories == (UNASSIGNED, UNASSIGNED)
    controller.heartbeat(1, offline=["a"])
    assert controller.leader_and_isr(topic_id) == (1, [1, 2])


def test_a_failure_reported_while_fenced_is_recorded() -> None:
    """A broker that wants to stay fenced still loses its directory."""
    controller = ControllerContext()
    controller.register(1, ["a", "b"])
    controller.heartbeat(1, want_fence=True, offline=["b"])
    assert controller.state.brokers[ONE].directories == (directory("a"),)
    assert controller.state.brokers[ONE].lost_directories == (directory("b"),)


def test_a_heartbeat_that_asks_for_the_fence_and_reports_a_failure() -> None:
    """Each partition is changed only once, although both the fencing and the failed directory are reasons to change it."""
    controller = three_brokers()
    on_a = controller.topic("on-a", [[1, 2]], {1: "a"})
    on_b = controller.topic("on-b", [[1, 2]], {1: "b"})
    controller.heartbeat(1, offline=["a"], want_fence=True)
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=on_a, isr=[2], leader=2),
        PartitionChangeRecord(partition_id=0, topic_id=on_b, isr=[2], leader=2),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), fenced=1, log_dirs=[directory("b")]),
    ]


# --- unknown directories ----------------------------------------------------------------------------------------


def test_an_unknown_directory_is_an_error_but_known_failures_count() -> None:
    """The response is LOG_DIR_NOT_FOUND, but the known failure is recorded and the session renewed."""
    controller = three_brokers()
    topic_id = controller.topic("t", [[1, 2]], {1: "a"})
    controller.advance(5)
    response = controller.heartbeat(1, offline=["nobody's", "a"])
    assert response.error_code == ErrorCode.LOG_DIR_NOT_FOUND
    assert not response.is_fenced
    assert controller.leader_and_isr(topic_id) == (2, [2])
    assert controller.state.brokers[ONE].lost_directories == (directory("a"),)
    assert controller.event("unknown_log_dir_reported")["directory_id"] == directory("nobody's")
    controller.advance(5)
    assert controller.sessions.is_valid(ONE, controller.now_ns)


def test_another_brokers_directory_is_unknown() -> None:
    """Reporting it does not affect the broker that owns it."""
    controller = three_brokers()
    topic_id = controller.topic("t", [[2, 1]], {2: "c"})
    response = controller.heartbeat(1, offline=["c"])
    assert response.error_code == ErrorCode.LOG_DIR_NOT_FOUND
    assert controller.records == []
    assert controller.leader_and_isr(topic_id) == (2, [2, 1])


def test_a_broker_is_not_unfenced_by_a_heartbeat_with_an_unknown_directory() -> None:
    """The next heartbeat without the unknown id unfences the broker."""
    controller = ControllerContext()
    controller.register(1, ["a"])
    assert controller.heartbeat(1, offline=["nobody's"]).is_fenced
    assert controller.state.brokers[ONE].fenced
    assert not controller.heartbeat(1).is_fenced


def test_below_17_offline_directories_mean_nothing() -> None:
    """Below metadata.version 17 a registration has no directories, so no reported directory counts as unknown."""
    controller = ControllerContext(level=16)
    controller.register(1, ["a"])
    response = controller.heartbeat(1, offline=["a"])
    assert response == BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)


# --- controlled shutdown ----------------------------------------------------------------------------------------


def test_controlled_shutdown_from_first_wish_to_go() -> None:
    """Leaders move at once. The broker stays until the other brokers have applied the moves. Then it is fenced and may
    exit."""
    controller = three_brokers()
    topic_id = controller.topic("t", [[1, 2, 3], [2, 1, 3]])
    alone = controller.topic("alone", [[1]])
    response = controller.heartbeat(1, want_shut_down=True)
    assert response == BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2, 3], leader=2),
        PartitionChangeRecord(partition_id=1, topic_id=topic_id, isr=[2, 3]),
        PartitionChangeRecord(partition_id=0, topic_id=alone, leader=NO_LEADER),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), in_controlled_shutdown=1),
    ]
    moved_at = controller.next_write_offset - 1
    assert controller.leader_and_isr(alone) == (NO_LEADER, [1])

    controller.heartbeat(2, metadata_offset=moved_at)
    controller.heartbeat(3, metadata_offset=moved_at - 1)
    assert not controller.heartbeat(1, want_shut_down=True).should_shut_down
    assert controller.records == []

    controller.heartbeat(3, metadata_offset=moved_at)
    response = controller.heartbeat(1, want_shut_down=True)
    assert response == BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True, should_shut_down=True)
    assert controller.records == [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), fenced=1)]


def test_a_broker_without_leaderships_goes_at_once() -> None:
    """The heartbeat that asks for the shutdown removes it from the ISRs and fences it."""
    controller = three_brokers()
    topic_id = controller.topic("t", [[2, 1]])
    assert controller.heartbeat(1, want_shut_down=True).should_shut_down
    assert controller.leader_and_isr(topic_id) == (2, [2])
    assert controller.state.brokers[ONE].fenced


def test_a_leadership_in_a_directory_that_fails_in_the_same_heartbeat_does_not_delay_the_shutdown() -> None:
    """The decision already counts the directory as lost, so there is nothing left to move."""
    controller = three_brokers()
    topic_id = controller.topic("t", [[1, 2]], {1: "a"})
    response = controller.heartbeat(1, want_shut_down=True, offline=["a"])
    assert response.should_shut_down
    assert controller.leader_and_isr(topic_id) == (2, [2])


def test_a_new_active_controller_makes_a_leaving_broker_wait_for_the_others() -> None:
    """The old controller's soft state is gone, but the metadata still shows the controlled shutdown. The shutdown
    continues once the other brokers have sent heartbeats to the new controller."""
    controller = three_brokers()
    controller.topic("t", [[1, 2]])
    controller.heartbeat(1, want_shut_down=True)
    controller.sessions.remove(BrokerId(1))
    controller.sessions.remove(BrokerId(2))
    controller.sessions.remove(BrokerId(3))
    controller.sessions.begin([BrokerId(1), BrokerId(2), BrokerId(3)], controller.now_ns)
    assert not controller.heartbeat(1, want_shut_down=True).should_shut_down
    controller.heartbeat(2)
    controller.heartbeat(3)
    assert controller.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_leaving_broker_that_falls_silent_is_fenced() -> None:
    """The session timeout applies in controlled shutdown too. The response to its next heartbeat lets the broker exit."""
    controller = three_brokers()
    controller.topic("t", [[1, 2]])
    controller.heartbeat(1, want_shut_down=True)
    controller.advance(8)
    controller.heartbeat(2)
    controller.heartbeat(3)
    controller.advance(2)
    assert controller.fence_stale() == 1
    assert controller.heartbeat(1, want_shut_down=True).should_shut_down


# --- between the slices of another operation ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "is_answered"),
    [
        ({}, True),
        ({"offline_log_dirs": [directory("a")]}, True),
        ({"offline_log_dirs": [directory("a"), directory("b")]}, False),
        ({"offline_log_dirs": [directory("unknown")]}, False),
        ({"want_fence": True}, False),
        ({"want_shut_down": True}, False),
        ({"current_metadata_offset": 0}, False),
        ({"broker_epoch": 10_000}, False),
        ({"broker_id": 9}, False),
    ],
)
def test_only_a_heartbeat_that_asks_for_nothing_is_answered_between_slices(
    change: dict[str, Any], is_answered: bool
) -> None:
    """Directory "a" of broker 1 is recorded as lost. An answer renews the session and nothing else."""
    controller = three_brokers()
    controller.heartbeat(1, offline=["a"])
    controller.advance(5)
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=controller.epoch(1), current_metadata_offset=2**40)
    for name, value in change.items():
        setattr(request, name, value)
    expiry_ns = controller.sessions.next_expiry_ns([ONE], controller.now_ns)
    answer = answer_between_slices(controller.turn(), dict(controller.state.brokers), request)
    assert answer == (BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False) if is_answered else None)
    assert (controller.sessions.next_expiry_ns([ONE], controller.now_ns) > expiry_ns) == is_answered


def test_a_broker_whose_registration_is_about_to_change_waits() -> None:
    """A fenced broker, one in controlled shutdown, one whose session has expired, and one whose registration the operation
    under way has changed already: none is answered between slices."""
    controller = three_brokers()
    controller.topic("t", [[1, 2]], {1: "a", 2: "c"})
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=controller.epoch(1), current_metadata_offset=2**40)

    def is_answered(brokers: Mapping[BrokerId, BrokerRegistration] | None = None) -> bool:
        return answer_between_slices(controller.turn(), brokers or controller.state.brokers, request) is not None

    before = dict(controller.state.brokers)
    assert is_answered(before)
    controller.heartbeat(1, offline=["a"])
    assert not is_answered(before)
    assert is_answered()
    controller.heartbeat(2, metadata_offset=0)
    controller.heartbeat(1, want_shut_down=True)
    assert not is_answered()
    controller.fence(3)
    request = BrokerHeartbeatRequest(broker_id=3, broker_epoch=controller.epoch(3), current_metadata_offset=2**40)
    assert not is_answered()
    controller.heartbeat(3)
    assert is_answered()
    controller.advance(100)
    assert not is_answered()


@pytest.mark.parametrize(
    "operation", ["report", "shut down", "fence", "register", "unregister", "unfence", "sweep", "balance"]
)
def test_an_operation_on_many_replicas_decides_in_slices(operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten replicas in slices of two, every operation that visits all replicas of a broker lets the event loop run at
    least four times before it has decided. It decides the same as in one slice."""
    decided: list[list[ApiMessageAndVersion]] = []
    for size in (2, 100):
        monkeypatch.setattr(long_decisions, "PARTITIONS_PER_SLICE", size)
        controller = three_brokers()
        controller.topic("t", [[1, 2]] * 10, {1: "a", 2: "c"})
        if operation in ("unfence", "sweep"):
            controller.fence(2)
        if operation in ("unfence", "sweep", "balance"):
            controller.fence(1)
        result, count = counted(sliced(controller, operation))
        decided.append(list(result.records))
        assert count >= 4 if size == 2 else count == 0
    assert decided[0] == decided[1]
    assert len(decided[0]) >= 10 or operation in ("sweep", "balance")


def sliced(controller: ControllerContext, operation: str) -> Sliced[ControllerResult[Any]]:
    """Begins an operation on broker 1."""
    turn = controller.turn()
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=controller.epoch(1), current_metadata_offset=2**40)
    if operation == "report":
        request.offline_log_dirs = [directory("a")]
    elif operation == "shut down":
        request.want_shut_down = True
    elif operation == "fence":
        request.want_fence = True
    elif operation == "register":
        controller.advance(100)
        registration = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id=turn.settings.cluster_id,
            incarnation_id=Uuid(b"a new incarnation"[:16]),
            features=[
                Feature(name=METADATA_VERSION_FEATURE, min_supported_version=1, max_supported_version=LATEST_LEVEL),
                Feature(name=DIRECTORY_NUMBERING_FEATURE, min_supported_version=0, max_supported_version=1),
            ],
            log_dirs=[directory("a")],
        )
        return handle_broker_registration(controller.turn(), registration)
    elif operation == "unregister":
        return handle_unregister_broker(turn, UnregisterBrokerRequest(broker_id=1))
    elif operation == "sweep":
        return elect_leaderless(turn, None)
    elif operation == "balance":
        return elect_preferred_leaders(turn, None)
    return handle_broker_heartbeat(turn, request)
