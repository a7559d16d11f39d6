"""Cordoned directories (KIP-1066): what the controller records, and where new replicas go."""

import pytest

from common.ids import BrokerId
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from common.records.metadata_records import BrokerRegistrationChangeRecord
from controller.core.heartbeat import answer_between_slices
from controller.core.manual_assignment import validate_manual_assignment
from tests.unit.controller.core.context import ControllerContext, directory

ONE = BrokerId(1)


def two_brokers(level: int = 30) -> ControllerContext:
    controller = ControllerContext(level=level)
    controller.start(1, ["1a", "1b"])
    controller.start(2, ["2a", "2b"])
    return controller


def cordons(controller: ControllerContext) -> tuple[bytes, ...] | None:
    return controller.state.brokers[ONE].cordoned_directories


def test_a_cordon_is_recorded_once_and_its_end_as_well() -> None:
    """The record has version 3. A heartbeat that does not know the cordons yet, or repeats them, changes nothing."""
    controller = two_brokers()
    assert cordons(controller) is None
    controller.heartbeat(1, cordoned=["1b"])
    (written,) = controller.last_records
    assert isinstance(written.record, BrokerRegistrationChangeRecord)
    assert (written.version, written.record.cordoned_log_dirs, written.record.log_dirs) == (3, [directory("1b")], [])
    for repeated in (["1b"], None):
        controller.heartbeat(1, cordoned=repeated)
        assert not controller.last_records
    controller.heartbeat(1, cordoned=[])
    assert cordons(controller) == ()


def test_the_end_of_a_cordon_waits_for_its_turn() -> None:
    """A heartbeat that changes the cordons is not answered while another operation is under way."""
    controller = two_brokers()
    controller.heartbeat(1, cordoned=["1b"])
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=controller.epoch(1), current_metadata_offset=2**40)
    for told, is_answered in (([directory("1b")], True), (None, True), ([], False)):
        request.cordoned_log_dirs = None if told is None else list(told)
        answer = answer_between_slices(controller.turn(), dict(controller.state.brokers), request)
        assert (answer is not None) is is_answered


def test_ids_that_the_broker_never_registered_are_not_recorded() -> None:
    """Neither unknown ids nor those of another broker."""
    controller = two_brokers()
    controller.heartbeat(1, cordoned=["1a", "2a", "unknown"])
    assert cordons(controller) == (directory("1a"),)


@pytest.mark.parametrize(
    ("before", "value", "refused"),
    [
        (None, "/a", "/a"),
        (None, "*", "*"),
        ("/a,/b", " /b , /a", None),
        ("/a,/b", "/b", None),
        ("/a,/b", "", None),
        ("/a,/b", None, None),
        ("/a,/b", "/b,/c", "/c"),
        ("*", "/a", "/a"),
    ],
)
def test_only_a_broker_may_add_to_the_list(before: str | None, value: str | None, refused: str | None) -> None:
    """The controller does not know the directories of a broker. A client that asks the controller itself can take some off
    the list, as in Kafka. What the broker forwards has been checked there."""
    setting, deletion = 0, 1
    controller = two_brokers()

    def ask(value: str | None, *, is_forwarded: bool) -> tuple[int, str | None]:
        change = ("cordoned.log.dirs", deletion if value is None else setting, value)
        return controller.alter_configs(change, resource_type=4, name="1", is_forwarded=is_forwarded)

    if before is not None:
        assert ask(before, is_forwarded=True) == (ErrorCode.NONE, None)
    message = (
        f"A controller does not know whether {refused} is in log.dirs of broker 1; "
        "send what is new in cordoned.log.dirs to the broker."
    )
    answer = (ErrorCode.NONE, None) if refused is None else (ErrorCode.INVALID_CONFIG, message)
    assert ask(value, is_forwarded=False) == answer
    assert controller.state.config(4, "1").get("cordoned.log.dirs") == (value if refused is None else before)
    assert ask(value, is_forwarded=True) == (ErrorCode.NONE, None)


def test_below_30_cordons_mean_nothing() -> None:
    """The level cannot record them."""
    controller = two_brokers(level=29)
    controller.heartbeat(1, cordoned=["1a", "1b"])
    assert not controller.last_records
    assert cordons(controller) is None


def test_a_new_incarnation_has_not_told_its_cordons_and_the_same_one_keeps_them() -> None:
    """The registration of a new incarnation has none until its first heartbeat that knows them, as in Kafka."""
    controller = two_brokers()
    controller.heartbeat(1, cordoned=["1a"])
    controller.register(1, ["1a", "1b"])
    assert cordons(controller) == (directory("1a"),)
    controller.fence(1)
    controller.register(1, ["1a", "1b"], incarnation_name="second")
    assert cordons(controller) is None


def test_a_broker_is_left_out_once_all_its_directories_are_cordoned() -> None:
    """One of two cordoned directories leaves room for new replicas in the other. The refusal says that there are cordons."""
    controller = two_brokers()
    controller.heartbeat(1, cordoned=["1a"])
    (topic,) = controller.create("both", partitions=1, replication_factor=2).topics
    assert topic.error_code == ErrorCode.NONE
    controller.heartbeat(1, cordoned=["1a", "1b"])
    (topic,) = controller.create("pair", partitions=1, replication_factor=2).topics
    assert (topic.error_code, topic.error_message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "replication factor 2 needs as many brokers, 1 are registered and have a log directory that is not cordoned",
    )
    topic_id = controller.topic("single", [[2]])
    assert controller.partition(topic_id).replicas == (2,)
    controller.heartbeat(1, cordoned=[])
    (topic,) = controller.create("pair", partitions=1, replication_factor=2).topics
    assert topic.error_code == ErrorCode.NONE


def test_the_online_directories_count() -> None:
    """A broker whose only uncordoned directory fails has no room left."""
    controller = two_brokers()
    controller.heartbeat(1, cordoned=["1a"])
    controller.heartbeat(1, offline=["1b"])
    (topic,) = controller.create("pair", partitions=1, replication_factor=2).topics
    assert topic.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_manual_assignment_to_a_cordoned_broker_is_refused() -> None:
    """With Kafka's message."""
    controller = two_brokers()
    controller.heartbeat(1, cordoned=["1a", "1b"])
    with pytest.raises(ApiError) as caught:
        validate_manual_assignment(controller.state, [2, 1])
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert caught.value.message == (
        "The manual partition assignment includes broker 1, but all its log directories are cordoned."
    )
