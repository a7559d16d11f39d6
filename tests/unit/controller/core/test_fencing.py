"""Session timeouts: brokers are fenced one at a time, and a fenced broker loses its leaderships and ISR entries."""

from common.ids import NO_LEADER
from common.records.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from tests.unit.controller.core.context import ControllerContext


def two_brokers() -> ControllerContext:
    controller = ControllerContext()
    controller.start(1, ["a"])
    controller.start(2, ["b"])
    return controller


def test_nobody_is_fenced_within_the_session() -> None:
    """Just before the session timeout no broker is fenced."""
    controller = two_brokers()
    controller.advance(8.9)
    assert controller.fence_stale() is None
    assert controller.records == []


def test_a_silent_broker_is_fenced() -> None:
    """Partition changes come first, so that a node that replays the log never sees a fenced leader."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1, 2], [2, 1]])
    controller.advance(5)
    controller.heartbeat(2)
    controller.advance(5)
    assert controller.fence_stale() == 1
    assert controller.records == [
        PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2], leader=2),
        PartitionChangeRecord(partition_id=1, topic_id=topic_id, isr=[2]),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=controller.epoch(1), fenced=1),
    ]
    assert controller.event("broker_fenced")["reason"] == "session timeout"


def test_two_brokers_that_expire_together_are_fenced_one_after_the_other() -> None:
    """KAFKA-13173: when the second broker is fenced, it is the last ISR member, so it stays in the ISR."""
    controller = two_brokers()
    topic_id = controller.topic("t", [[1, 2]])
    controller.advance(10)
    assert controller.fence_stale() == 1
    assert controller.leader_and_isr(topic_id) == (2, [2])
    assert controller.fence_stale() == 2
    assert controller.leader_and_isr(topic_id) == (NO_LEADER, [2])
    assert controller.fence_stale() is None


def test_a_fenced_broker_is_not_fenced_again() -> None:
    """The session of a fenced broker no longer matters."""
    controller = two_brokers()
    controller.fence(1)
    controller.fence(2)
    controller.advance(100)
    assert controller.fence_stale() is None


def test_an_isr_shrink_raises_the_leader_epoch_only_on_old_levels() -> None:
    """KAFKA-15021: from 3.6-IV0 on, an ISR shrink alone does not bump the leader epoch."""
    for level, expected in ((21, 0), (11, 1)):
        controller = ControllerContext(level=level)
        controller.start(1, ["a"])
        controller.start(2, ["b"])
        topic_id = controller.topic("t", [[1, 2]])
        controller.fence(2)
        assert controller.partition(topic_id).leader_epoch == expected
        assert controller.leader_and_isr(topic_id) == (1, [1])
