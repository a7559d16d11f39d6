"""What the active controller does by itself: session expiry, the NoOp record of an idle log, the sweeps for leaders."""

import pytest

from common.metadata.metadata_version import METADATA_VERSION_FEATURE, NO_OP_LEVEL
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    TopicRecord,
)
from common.time_units import NS_PER_S
from controller import own_operations
from controller.core import preferred
from controller.core.heartbeat import handle_broker_heartbeat
from controller.own_operations import ControllerTimers
from controller.quorum_controller import QuorumController
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.unit.controller.fake_driver import FakeDriver
from tests.unit.controller.lone_controller import (
    FEATURES,
    SESSION_NS,
    TOPIC,
    heartbeat_of,
    partition,
    registered,
    run,
    topic,
    write,
)


def test_unfenced_brokers_get_one_full_session_from_a_new_controller() -> None:
    """No broker is fenced before the session ends. Afterwards all silent brokers are fenced, each in its own batch."""
    driver = FakeDriver([*FEATURES, registered(1), registered(2), registered(3, fenced=True)])

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        await world.sleep(100)
        driver.lead()
        written = len(driver.records)
        await world.sleep(8.9)
        assert len(driver.records) == written
        await world.sleep(0.6)
        assert driver.records[written:] == [BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1)]
        driver.commit()
        await world.sleep(0.1)
        assert driver.records[written + 1 :] == [BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=1)]

    run(driver, scenario)


def test_heartbeats_keep_a_session() -> None:
    """A broker whose heartbeats arrive in time stays unfenced."""
    driver = FakeDriver([*FEATURES, registered(1)])

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        for _ in range(10):
            await world.sleep(2)
            assert not (
                await controller.submit("heartbeat", handle_broker_heartbeat, heartbeat_of(broker_id=1, epoch=1))
            ).is_fenced
        assert driver.records == [*FEATURES, registered(1)]

    run(driver, scenario)


def test_an_idle_log_gets_no_op_records() -> None:
    """An active controller writes one NoOp record per interval in which nothing else is appended. A standby writes none."""
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        await world.sleep(2)
        assert driver.records == FEATURES
        driver.lead()
        for _ in range(4):
            await world.sleep(0.3)
            controller.submit("write", write, [topic(f"t{len(driver.records)}")])
            await world.sleep(0.01)
            driver.commit()
        assert NoOpRecord() not in driver.records
        for expected in (1, 2):
            await world.sleep(0.52)
            driver.commit()
            assert driver.records.count(NoOpRecord()) == expected

    run(driver, scenario, timers=ControllerTimers(idle_interval_ns=NS_PER_S // 2))


def test_the_no_op_timer_rests_where_it_may_not_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 3.3-IV1 there are no NoOp records, so the timer only wakes up once per interval and writes nothing."""
    driver = FakeDriver([FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=NO_OP_LEVEL - 1)])
    sleep_until = SimulatedEnvironment.sleep_until
    sleeps: list[int] = []

    async def counted(env: SimulatedEnvironment, deadline_ns: int) -> None:
        sleeps.append(deadline_ns)
        await sleep_until(env, deadline_ns)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        await world.sleep(2)
        monkeypatch.setattr(SimulatedEnvironment, "sleep_until", counted)
        await world.sleep(1)
        assert len(sleeps) < 20
        assert NoOpRecord() not in driver.records

    run(driver, scenario, timers=ControllerTimers())


def test_the_leaderless_sweep_follows_changes_of_the_metadata() -> None:
    """A leaderless partition gets an unclean leader soon after its configuration allows one."""
    driver = FakeDriver(
        [
            *FEATURES,
            registered(1, fenced=True),
            registered(2),
            TopicRecord(name="t", topic_id=TOPIC),
            partition([1, 2], -1, [1]),
        ]
    )

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        await world.sleep(3)
        written = len(driver.records)
        allow = ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true")
        controller.submit("write", write, [allow])
        await world.sleep(1.1)
        assert driver.records[written + 1 :] == [
            PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[2], leader=2, leader_recovery_state=1)
        ]
        assert controller.unclean_election_count == 1

    run(driver, scenario)


def test_preferred_leaders_are_restored_by_their_timer() -> None:
    """With auto.leader.rebalance.enable, a timer moves leadership back to the preferred leaders."""
    driver = FakeDriver(
        [*FEATURES, registered(1), registered(2), TopicRecord(name="t", topic_id=TOPIC), partition([1, 2], 2, [1, 2])]
    )

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        await world.sleep(5.1)
        assert driver.records[-1] == PartitionChangeRecord(partition_id=0, topic_id=TOPIC, leader=1)

    run(driver, scenario, timers=ControllerTimers(idle_interval_ns=0, preferred_interval_ns=5 * NS_PER_S))


def test_an_operation_of_a_timer_that_does_not_fit_the_log_costs_the_term_and_nothing_else() -> None:
    """The session of the only leader expires, and fencing it changes more partitions than fit. No request waits for the
    response of this operation. The controller resigns, and the daemon goes on."""
    partitions = [partition([1, 2], 1, [1, 2], index=index) for index in range(3)]
    driver = FakeDriver(
        [*FEATURES, registered(1), registered(2), TopicRecord(name="t", topic_id=TOPIC), *partitions], records_max=2
    )

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        await world.sleep(SESSION_NS / NS_PER_S + 1)
        assert controller.new_active_count == 2
        assert controller.is_active
        assert [event.fields["operation"] for event in world.events_named("operation_too_large")] == ["fence_stale_broker"]

    run(driver, scenario)


def test_preferred_leaders_beyond_the_limit_of_a_pass_do_not_wait_for_another_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each pass starts when the one before is committed, and the last one finds nothing left to move."""
    for module in (preferred, own_operations):
        monkeypatch.setattr(module, "ELECTIONS_PER_PASS_MAX", 2)
    partitions = [partition([1, 2], 2, [1, 2], index=index) for index in range(5)]
    driver = FakeDriver([*FEATURES, registered(1), registered(2), TopicRecord(name="t", topic_id=TOPIC), *partitions])

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        await world.sleep(5.1)
        written = len(driver.records)
        for moved in (2, 4, 5, 5):
            moves = [record for record in driver.records if isinstance(record, PartitionChangeRecord)]
            assert moves == [PartitionChangeRecord(partition_id=index, topic_id=TOPIC, leader=1) for index in range(moved)]
            driver.commit()
            await world.sleep(0.1)
        assert len(driver.records) == written + 3

    run(driver, scenario, timers=ControllerTimers(idle_interval_ns=0, preferred_interval_ns=5 * NS_PER_S))
