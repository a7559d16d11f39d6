"""Which replica a consumer is sent to: the choice by rack, and every reason for which a follower is left out."""

from dataclasses import replace

import pytest

from broker.core.partition_replica import PartitionReplica
from broker.core.replica_selector import ReplicaView, preferred_read_replica, replica_selector, select_by_rack
from common.configuration.server import LEADER_SELECTORS, RACK_AWARE_SELECTOR
from common.ids import (
    ZERO_UUID,
    BrokerEpoch,
    BrokerId,
    DirectoryId,
    IncarnationId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    Uuid,
)
from common.metadata.registrations import (
    BrokerEndpoint,
    BrokerRegistration,
    LeaderRecoveryState,
    PartitionRegistration,
)

LISTENER = "CLIENTS"
GOOD, BAD = DirectoryId(Uuid(b"g" * 16)), DirectoryId(Uuid(b"b" * 16))
END = Offset(10)


def view(broker_id: int, rack: str | None, end: int = END, caught_up_ns: int | None = 5) -> ReplicaView:
    return ReplicaView(BrokerId(broker_id), rack, Offset(end), caught_up_ns)


# --- the choice --------------------------------------------------------------------------------------------------


def test_the_leader_wins_in_its_own_rack() -> None:
    assert select_by_rack("a", "a", [view(2, "a")]) is None


def test_a_follower_in_the_rack_is_chosen() -> None:
    assert select_by_rack("b", "a", [view(2, "b"), view(3, "c")]) == 2


@pytest.mark.parametrize("leader_rack", ["a", None])
def test_without_a_replica_in_the_rack_the_leader_serves(leader_rack: str | None) -> None:
    assert select_by_rack("z", leader_rack, [view(2, "b"), view(3, None)]) is None


def test_the_follower_with_most_of_the_log_wins_then_the_one_last_caught_up() -> None:
    assert select_by_rack("b", "a", [view(2, "b", end=9), view(3, "b", end=8)]) == 2
    assert select_by_rack("b", "a", [view(2, "b", caught_up_ns=6), view(3, "b", caught_up_ns=5)]) == 2
    assert select_by_rack("b", "a", [view(2, "b", caught_up_ns=0), view(3, "b", caught_up_ns=None)]) == 2


def test_only_the_rack_aware_class_selects() -> None:
    assert replica_selector(RACK_AWARE_SELECTOR) is select_by_rack
    assert [replica_selector(name) for name in (None, *LEADER_SELECTORS)] == [None, None, None]


# --- who can be chosen -------------------------------------------------------------------------------------------


def registration(broker_id: int, rack: str) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id=BrokerId(broker_id),
        epoch=BrokerEpoch(broker_id),
        incarnation_id=IncarnationId(ZERO_UUID),
        endpoints=(BrokerEndpoint(LISTENER, "host", 9092, 0),),
        features=(),
        rack=rack,
        fenced=False,
        in_controlled_shutdown=False,
        directories=(GOOD,),
    )


class Leader:
    """Broker 1 in rack a leads; broker 2 in rack b follows, has everything from 3 to 10, and is what a consumer in rack b
    would be sent to."""

    def __init__(self) -> None:
        self.brokers = {BrokerId(1): registration(1, "a"), BrokerId(2): registration(2, "b")}
        self.replica = PartitionReplica(BrokerId(1), self.brokers.get, lag_time_max_ns=1)
        self.partition = PartitionRegistration(
            replicas=(BrokerId(1), BrokerId(2)),
            directories=(GOOD, GOOD),
            isr=(BrokerId(1), BrokerId(2)),
            removing_replicas=(),
            adding_replicas=(),
            leader=BrokerId(1),
            leader_recovery_state=LeaderRecoveryState.RECOVERED,
            leader_epoch=LeaderEpoch(1),
            partition_epoch=PartitionEpoch(1),
        )
        self.replica.written(END, 0)
        self.lead()

    def lead(self) -> None:
        self.replica.become_leader(self.partition, now_ns=0, leader_epoch_start_offset=Offset(0))
        self.fetched()

    def fetched(self, offset: Offset = END, now_ns: int = 0) -> None:
        self.replica.follower_fetched(
            BrokerId(2), fetch_offset=offset, log_start_offset=Offset(3), broker_epoch=BrokerEpoch(2), now_ns=now_ns
        )

    def chosen(self, *, rack: str = "b", listener: str = LISTENER, offset: int = END) -> BrokerId | None:
        return preferred_read_replica(
            self.replica, select_by_rack, client_rack=rack, listener_name=listener, fetch_offset=Offset(offset)
        )


def test_an_in_sync_follower_in_the_rack_is_named() -> None:
    leader = Leader()
    assert leader.chosen() == 2
    assert leader.chosen(rack="a") is None
    assert leader.chosen(rack="") is None


def test_a_follower_without_the_offset_is_not_named() -> None:
    leader = Leader()
    assert [leader.chosen(offset=offset) for offset in (2, 3, 10, 11)] == [None, 2, 2, None]


def test_a_follower_that_has_not_fetched_in_this_leader_epoch_is_not_named() -> None:
    """A new leader does not know yet what the follower has."""
    leader = Leader()
    leader.partition = leader.partition._replace(leader_epoch=LeaderEpoch(2), partition_epoch=PartitionEpoch(2))
    leader.replica.become_leader(leader.partition, now_ns=0, leader_epoch_start_offset=END)
    assert leader.chosen() is None
    leader.fetched()
    assert leader.chosen() == 2


@pytest.mark.parametrize(
    "change",
    [{"fenced": True}, {"in_controlled_shutdown": True}, {"epoch": BrokerEpoch(7)}, {"endpoints": ()}],
    ids=lambda change: next(iter(change)),
)
def test_a_broker_that_cannot_serve_is_not_named(change: dict[str, object]) -> None:
    """The broker is fenced, shutting down, restarted since its last fetch, or not on the consumer's listener."""
    leader = Leader()
    leader.brokers[BrokerId(2)] = replace(leader.brokers[BrokerId(2)], **change)  # type: ignore[arg-type]
    assert leader.chosen() is None


def test_a_broker_that_is_not_registered_is_not_named() -> None:
    leader = Leader()
    del leader.brokers[BrokerId(2)]
    assert leader.chosen() is None


def test_a_replica_in_an_offline_directory_is_never_named() -> None:
    """KIP-858: the broker lost the directory of this replica. The broker itself is healthy, and the replica is still in the
    ISR that the leader knows."""
    leader = Leader()
    leader.brokers[BrokerId(2)] = replace(leader.brokers[BrokerId(2)], directories=(BAD,), lost_directories=(GOOD,))
    assert 2 in leader.replica.committed_isr
    assert leader.chosen() is None


def test_a_follower_that_leaves_the_isr_is_not_named_from_the_proposal_on() -> None:
    """The leader stops naming the follower when it proposes to remove it, not only when the controller has agreed."""
    leader = Leader()
    leader.replica.written(Offset(11), 1)
    leader.replica.maybe_shrink_isr(9)
    assert leader.replica.committed_isr == (1, 2)
    assert leader.chosen() is None
    leader.partition = leader.partition._replace(isr=(BrokerId(1),), partition_epoch=PartitionEpoch(2))
    leader.replica.become_leader(leader.partition, now_ns=9, leader_epoch_start_offset=Offset(0))
    assert leader.chosen() is None
