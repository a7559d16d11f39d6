"""The controller's shell on a driver whose commits the test controls: when responses are sent, and what leadership changes
do."""

import asyncio
from collections.abc import Sequence

import pytest

from common.ids import BrokerId, Offset, Uuid
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, LATEST_LEVEL, METADATA_VERSION_FEATURE
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature
from common.protocol.messages.controller_registration import ControllerRegistrationRequest, Listener
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    KnownRecord,
    NoOpRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    ZkMigrationRecord,
)
from controller import event_log, quorum_controller
from controller.core.broker_sessions import BrokerSessions
from controller.core.heartbeat import answer_between_slices, handle_broker_heartbeat
from controller.core.long_decisions import Sliced
from controller.core.registration import handle_broker_registration
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn
from controller.event_queue import loop_turn
from controller.quorum_controller import QuorumController
from tests.simulation.environment import SimulatedWorld
from tests.unit.controller.fake_driver import NODE_ID, OTHER_NODE, FakeDriver
from tests.unit.controller.lone_controller import (
    FEATURES,
    SESSION_NS,
    TOPIC,
    A,
    B,
    code_of,
    heartbeat_of,
    partition,
    registered,
    run,
    topic,
    until,
    write,
)


def look(turn: Turn, _request: None) -> ControllerResult[list[str]]:
    """An operation that writes nothing and responds with the names of the topics."""
    return ControllerResult([], sorted(turn.state.topic_ids))


# --- its own registration ---------------------------------------------------------------------------------------


def test_a_refused_registration_of_this_node_is_not_repeated_without_a_pause() -> None:
    """The registration is larger than the limit. Only the next commit leads to another attempt."""
    driver = FakeDriver(FEATURES)
    too_large = ControllerRegistrationRequest(controller_id=NODE_ID, listeners=[Listener(name="L" * 2**20)])

    async def scenario(_world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        controller.register_as(too_large)
        for attempts in (1, 2):
            for _ in range(100):
                await loop_turn()
            assert controller.queue.statistics.started_count == attempts
            driver.log.append(NoOpRecord())
            driver.commit()

    run(driver, scenario)


# --- answers ----------------------------------------------------------------------------------------------------


def test_an_answer_waits_for_the_commit() -> None:
    """The state changes at once. The response is sent and the events are logged when the records are committed."""
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        said = ControllerEvent("said_at_once", {}, is_about_commit=False), ControllerEvent("said_at_commit", {})
        answer = controller.submit(
            "op", lambda *_: ControllerResult([ApiMessageAndVersion(topic("t"), 0)], "done", events=said), None
        )
        await world.sleep(0.01)
        assert list(controller.state.topic_ids) == ["t"]
        assert not answer.done()
        assert world.events_named("said_at_once")
        assert not world.events_named("said_at_commit")
        driver.commit()
        assert await answer == "done"
        assert world.events_named("said_at_commit")[0].fields["elapsed_ms"] >= 10

    run(driver, scenario)


def test_a_reader_waits_for_what_it_may_have_read() -> None:
    """The operation writes no records, but it has read uncommitted state, so its response waits for the commit."""
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        before = controller.submit("look", look, None)
        assert await before == []
        writing = controller.submit("write", write, [topic("t")])
        reading = controller.submit("look", look, None)
        await world.sleep(0.01)
        assert not reading.done()
        driver.commit()
        assert await reading == ["t"]
        assert await writing == "written"

    run(driver, scenario)


def test_answers_go_out_one_by_one_as_they_are_committed() -> None:
    """The commit of the first operation's records does not release the response of the second."""
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        first = controller.submit("one", write, [topic("one")])
        second = controller.submit("two", write, [topic("two")])
        await world.sleep(0.01)
        driver.commit(1)
        assert await first == "written"
        assert not second.done()
        driver.commit()
        assert await second == "written"

    run(driver, scenario)


def test_an_error_of_the_operation_is_answered_at_once() -> None:
    """The operation wrote no records, so its error need not wait for a commit."""
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        def refuse(_turn: Turn, _request: None) -> ControllerResult[str]:
            raise ApiError(ErrorCode.INVALID_REQUEST, "no")

        driver.lead()
        controller.submit("write", write, [topic("t")])
        assert await code_of(controller.submit("refuse", refuse, None)) is ErrorCode.INVALID_REQUEST

    run(driver, scenario)


def test_an_event_that_waited_too_long_is_not_carried_out() -> None:
    """The caller gets REQUEST_TIMED_OUT. Its `on_timeout` callback is still called, so that a late heartbeat counts."""
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        touched: list[BrokerSessions] = []
        answer = controller.submit("late", write, [topic("t")], deadline_ns=world.now_ns(), on_timeout=touched.append)
        assert await code_of(answer) is ErrorCode.REQUEST_TIMED_OUT
        assert len(touched) == 1
        assert controller.state.topic_ids == {}
        assert controller.queue.statistics.timed_out_count == 1

    run(driver, scenario)


# --- leadership -------------------------------------------------------------------------------------------------


def test_a_standby_follows_and_refuses() -> None:
    """A standby controller replays committed records and responds NOT_CONTROLLER."""
    driver = FakeDriver([*FEATURES, topic("t")])

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        assert list(controller.state.topic_ids) == ["t"]
        assert await code_of(controller.submit("look", look, None)) is ErrorCode.NOT_CONTROLLER
        driver.lose(to=OTHER_NODE)
        assert controller.leader.leader_id == OTHER_NODE
        assert not controller.is_active

    run(driver, scenario)


def test_the_first_active_controller_writes_the_bootstrap_records() -> None:
    """The bootstrap records are written in one transaction, metadata.version first."""
    driver = FakeDriver()
    driver.bootstrap = [ApiMessageAndVersion(record, 0) for record in FEATURES]

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        assert driver.records == [
            BeginTransactionRecord(name="Bootstrap records"),
            *FEATURES,
            ZkMigrationRecord(zk_migration_state=0),
            EndTransactionRecord(),
        ]
        assert controller.is_active
        driver.commit()
        driver.lose()
        await world.sleep(1)
        driver.lead()
        assert driver.records[5:] == []
        assert [event.fields["activation_records"] for event in world.events_named("controller_active")] == [5, 0]

    run(driver, scenario)


def test_lost_leadership_fails_what_waits_and_drops_the_state() -> None:
    """The state is rebuilt from the log without the uncommitted change. Once elected again, the controller can write it."""
    driver = FakeDriver([*FEATURES, topic("kept")])

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        answer = controller.submit("write", write, [topic("lost")])
        await world.sleep(0.01)
        assert sorted(controller.state.topic_ids) == ["kept", "lost"]
        driver.lose(to=OTHER_NODE)
        assert await code_of(answer) is ErrorCode.NOT_CONTROLLER
        assert not controller.is_active
        assert list(controller.state.topic_ids) == ["kept"]
        assert await code_of(controller.submit("look", look, None)) is ErrorCode.NOT_CONTROLLER
        driver.lead()
        again = controller.submit("write", write, [topic("lost")])
        await world.sleep(0.01)
        driver.commit()
        assert await again == "written"
        assert controller.new_active_count == 2

    run(driver, scenario)


def test_a_leader_that_was_deposed_in_the_same_step_answers_not_controller() -> None:
    """The driver refuses the append although it has not reported the leader change yet."""
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        driver.epoch = None
        assert await code_of(controller.submit("write", write, [topic("t")])) is ErrorCode.NOT_CONTROLLER
        driver.lose(to=OTHER_NODE)
        assert controller.state.topic_ids == {}

    run(driver, scenario)


def test_an_open_transaction_of_the_last_controller_is_aborted() -> None:
    """The records of the open transaction were never applied, and after the abort record no node will apply them."""
    driver = FakeDriver([*FEATURES, BeginTransactionRecord(name="x"), topic("half")])

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        assert controller.state.topic_ids == {}
        driver.lead()
        assert isinstance(driver.records[-1], AbortTransactionRecord)
        driver.commit()
        writing = controller.submit("write", write, [topic("half")])
        await world.sleep(0.01)
        driver.commit()
        assert await writing == "written"
        driver.lose()
        assert list(controller.state.topic_ids) == ["half"]

    run(driver, scenario)


def test_what_does_not_fit_the_log_costs_the_term_and_nothing_else() -> None:
    """The state has replayed records that the log refused. The controller resigns, is elected again, and has rebuilt the
    state without them."""
    driver = FakeDriver(FEATURES, records_max=2)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        answer = controller.submit("write", write, [topic("a"), topic("b"), topic("c")])
        assert await code_of(answer) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert controller.is_active
        assert controller.new_active_count == 2
        assert controller.state.topic_ids == {}

    run(driver, scenario)


def test_more_than_one_batch_becomes_a_transaction() -> None:
    """The records keep their order between the begin and end records. The response waits for the end record's commit."""
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        names = [topic(f"t{number}") for number in range(3)]
        answer = controller.submit("many", write, names)
        await world.sleep(0.01)
        assert driver.records[2:] == [BeginTransactionRecord(name="many"), *names, EndTransactionRecord()]
        assert driver.atomic_appends == [False]
        driver.commit(3)
        assert not answer.done()
        driver.commit()
        assert await answer == "written"
        driver.lose()
        assert len(controller.state.topic_ids) == 3

    run(driver, scenario, batch_max=2)


def test_a_replay_that_contradicts_the_state_ends_the_process() -> None:
    """The operation's records contradict the state. None of them reaches the log."""
    driver = FakeDriver([*FEATURES, topic("t")])

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        await controller.submit("write", write, [topic("t")])

    run(driver, scenario, expected_exit=1)
    assert len(driver.records) == 3


# --- long operations --------------------------------------------------------------------------------------------


NAMES = [topic(f"t{number}") for number in range(7)]


def test_an_operation_decides_in_slices_by_one_version_of_the_state() -> None:
    """Two operations decide in slices. Other tasks run between the slices, but the second operation begins only when the
    first one has ended, so it sees what the first one wrote."""
    driver = FakeDriver(FEATURES)
    seen: list[tuple[str, list[str]]] = []

    def deciding(turn: Turn, name: str) -> Sliced[ControllerResult[str]]:
        for _ in range(3):
            seen.append((name, sorted(turn.state.topic_ids)))
            yield
        return ControllerResult([ApiMessageAndVersion(topic(name), 0)], name)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        answers = [controller.submit("op", deciding, name) for name in ("a", "b")]
        await until(lambda: len(seen) == 2)
        assert not controller.state.topic_ids
        await until(lambda: len(controller.state.topic_ids) == 2)
        driver.commit()
        assert [await answer for answer in answers] == ["a", "b"]
        assert seen == [("a", [])] * 3 + [("b", ["a"])] * 3

    run(driver, scenario)


def test_a_large_change_is_appended_in_slices_of_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first slices can be committed while the others are still to come. An operation that arrives meanwhile waits, and
    sees the whole change."""
    monkeypatch.setattr(quorum_controller, "RECORDS_PER_SLICE", 2)
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        writing = controller.submit("many", write, NAMES)
        await until(lambda: len(driver.atomic_appends) == 2)
        looking = controller.submit("look", look, None)
        driver.commit()
        await until(lambda: len(driver.atomic_appends) == 5)
        await world.sleep(0.01)
        assert driver.records[2:] == [BeginTransactionRecord(name="many"), *NAMES, EndTransactionRecord()]
        assert not writing.done()
        driver.commit()
        assert await writing == "written"
        assert await looking == sorted(record.name for record in NAMES)

    run(driver, scenario, batch_max=6)


def test_the_events_of_a_large_change_are_logged_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of topics are thousands of lines. When the response is sent, one slice of them is logged; the others follow
    in their order, and the event of the next operation after them."""
    monkeypatch.setattr(event_log, "EVENTS_PER_SLICE", 10)
    driver = FakeDriver(FEATURES)

    def announce(_turn: Turn, names: Sequence[str]) -> ControllerResult[None]:
        return ControllerResult(
            [ApiMessageAndVersion(topic(name), 0) for name in names],
            None,
            events=[ControllerEvent("topic_created", {"topic": name}) for name in names],
        )

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        def logged() -> list[str]:
            return [str(event.fields["topic"]) for event in world.events_named("topic_created")]

        many = [f"t{number}" for number in range(35)]
        driver.lead()
        answers = [controller.submit("announce", announce, many), controller.submit("announce", announce, ["last"])]
        await until(lambda: len(controller.state.topic_ids) == len(many) + 1)
        await loop_turn()
        driver.commit()
        assert answers[0].done()
        assert answers[1].done()
        assert logged() == many[:20]
        await until(lambda: len(logged()) == 36)
        assert logged() == [*many, "last"]

    run(driver, scenario)


def test_a_change_of_one_batch_is_replayed_in_slices_and_appended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is appended before the last slice is replayed."""
    monkeypatch.setattr(quorum_controller, "RECORDS_PER_SLICE", 2)
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        controller.submit("many", write, NAMES)
        await until(lambda: len(controller.state.topic_ids) == 2)
        assert driver.records == FEATURES
        await until(lambda: len(driver.records) > len(FEATURES))
        assert driver.records[2:] == NAMES
        assert driver.atomic_appends == [True]

    run(driver, scenario)


def test_the_removal_of_large_topics_is_replayed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record removes as many partitions as one slice may change, so other tasks run after each of them."""
    monkeypatch.setattr(quorum_controller, "RECORDS_PER_SLICE", 3)
    driver = FakeDriver(FEATURES)
    large: list[KnownRecord] = []
    for made in (topic("a"), topic("b"), topic("c")):
        large += [made, *(PartitionRecord(partition_id=index, topic_id=made.topic_id) for index in range(3))]
    removal: list[KnownRecord] = [RemoveTopicRecord(topic_id=topic(name).topic_id) for name in ("a", "b", "c")]

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        controller.submit("create", write, large)
        await until(lambda: len(driver.records) == len(FEATURES) + len(large))
        controller.submit("remove", write, removal)
        seen = [9]
        while seen[-1]:
            await until(lambda: controller.state.partition_count < seen[-1])
            seen.append(controller.state.partition_count)
        assert seen == [9, 6, 3, 0]
        assert driver.atomic_appends == [True, True]

    run(driver, scenario)


@pytest.mark.parametrize("is_committed", [False, True])
def test_leadership_lost_between_two_slices_leaves_nothing_of_the_change(
    is_committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is sent to the next controller, and no slice follows. What is in the log of the transaction is aborted by
    the next term."""
    monkeypatch.setattr(quorum_controller, "RECORDS_PER_SLICE", 2)
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        answer = controller.submit("many", write, NAMES)
        await until(lambda: len(driver.atomic_appends) == 2)
        if is_committed:
            driver.commit()
        driver.lose()
        driver.lead()
        assert await code_of(answer) is ErrorCode.NOT_CONTROLLER
        await world.sleep(0.01)
        assert controller.is_active
        assert controller.state.topic_ids == {}
        held = [BeginTransactionRecord(name="many"), *NAMES[:3]] if is_committed else []
        assert driver.records[2 : 2 + len(held)] == held
        assert [type(record) for record in driver.records[2 + len(held) :]] == [AbortTransactionRecord] * is_committed

    run(driver, scenario, batch_max=6)


def test_leadership_lost_while_deciding_ends_the_operation() -> None:
    """The rest of it would decide by a state that was dropped."""
    driver = FakeDriver(FEATURES)
    slices: list[int] = []

    def deciding(_turn: Turn, _request: None) -> Sliced[ControllerResult[str]]:
        for number in range(10):
            slices.append(number)
            yield
        return ControllerResult([ApiMessageAndVersion(topic("a"), 0)], "done")

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        answer = controller.submit("op", deciding, None)
        await until(lambda: len(slices) == 3)
        driver.lose()
        driver.lead()
        assert await code_of(answer) is ErrorCode.NOT_CONTROLLER
        await world.sleep(0.01)
        assert len(slices) < 5
        assert driver.records == FEATURES

    run(driver, scenario)


def deciding_long(_turn: Turn, slices: list[int]) -> Sliced[ControllerResult[str]]:
    """An operation of twenty slices that notes each and writes nothing."""
    for number in range(20):
        slices.append(number)
        yield
    return ControllerResult([], "done")


def test_heartbeats_are_answered_between_two_slices() -> None:
    """A long operation is under way. A heartbeat that asks for nothing is answered at once and keeps the session, also if it
    was queued before the operation began. One that the controller has to decide about waits for its turn."""
    driver = FakeDriver([*FEATURES, registered(1), registered(2)])

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        def heartbeat(broker_id: int, offline: list[Uuid] | None = None) -> "asyncio.Future[BrokerHeartbeatResponse]":
            request = heartbeat_of(broker_id=broker_id, epoch=broker_id, offline=offline)
            return controller.submit("heartbeat", handle_broker_heartbeat, request, early=answer_between_slices)

        slices: list[int] = []
        driver.lead()
        long = controller.submit("long", deciding_long, slices)
        before = heartbeat(1)
        report = heartbeat(2, [Uuid(bytes([2]) * 16)])
        answered = await before
        assert len(slices) < 5
        assert (answered.error_code, answered.is_fenced, answered.is_caught_up) == (ErrorCode.NONE, False, True)
        await heartbeat(1)
        assert len(slices) < 10
        assert not long.done()
        assert len(driver.records) == 4
        assert await long == "done"
        await until(lambda: len(driver.records) > 4)
        driver.commit()
        assert (await report).is_fenced

    run(driver, scenario)


def test_a_long_operation_makes_no_broker_look_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat of broker 1 is an operation that takes longer than a session. When it ends, the check for expired
    sessions is due. Neither broker 1 is fenced nor broker 3, whose report had to wait; broker 2, which really is silent, is
    fenced one session later."""

    async def slow_turn() -> None:
        await world_of[0].sleep(1)

    def long_heartbeat(turn: Turn, request: BrokerHeartbeatRequest) -> Sliced[ControllerResult[BrokerHeartbeatResponse]]:
        turn.sessions.touch(BrokerId(request.broker_id), Offset(0), turn.now_ns)
        for _ in range(20):
            yield
        return ControllerResult([], BrokerHeartbeatResponse())

    monkeypatch.setattr(quorum_controller, "loop_turn", slow_turn)
    world_of: list[SimulatedWorld] = []
    driver = FakeDriver([*FEATURES, registered(1), registered(2), registered(3)])

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        world_of.append(world)
        driver.lead()
        begun_ns = world.now_ns()
        answer = controller.submit("long", long_heartbeat, heartbeat_of(broker_id=1, epoch=1))
        await world.sleep(1)
        waiting = controller.submit("heartbeat", handle_broker_heartbeat, heartbeat_of(broker_id=3, epoch=3, offline=[A]))
        await answer
        await waiting
        assert world.now_ns() - begun_ns > 2 * SESSION_NS
        await world.sleep(1)
        assert not driver.records[5:]
        for _ in range(5):
            for broker_id in (1, 3):
                request = heartbeat_of(broker_id=broker_id, epoch=broker_id)
                controller.submit("heartbeat", handle_broker_heartbeat, request)
            await world.sleep(2)
            driver.commit()
        assert driver.records[5:] == [BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=1)]

    run(driver, scenario)


def test_a_heartbeat_is_not_answered_from_what_may_be_lost() -> None:
    """Records that were scheduled before the long operation are not committed yet. The broker may be unfenced by one of
    them, so its heartbeat waits for the commit."""
    driver = FakeDriver([*FEATURES, registered(1)])

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        slices: list[int] = []
        driver.lead()
        controller.submit("write", write, [topic("t")])
        controller.submit("long", deciding_long, slices)
        request = heartbeat_of(broker_id=1, epoch=1)
        answer = controller.submit("heartbeat", handle_broker_heartbeat, request, early=answer_between_slices)
        await until(lambda: len(slices) == 10)
        assert not answer.done()
        driver.commit()
        await answer
        assert len(slices) < 15

    run(driver, scenario)


# --- the story of a failure -------------------------------------------------------------------------------------


def test_the_events_of_a_disk_failure_name_the_directory() -> None:
    """The failed directory is logged at once and the moved leaders at the commit. Each event has directory_id and
    broker_id."""
    driver = FakeDriver(FEATURES)

    async def scenario(world: SimulatedWorld, controller: QuorumController) -> None:
        driver.lead()
        request = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="c",
            incarnation_id=Uuid(b"i" * 16),
            features=[
                Feature(name=METADATA_VERSION_FEATURE, min_supported_version=1, max_supported_version=LATEST_LEVEL),
                Feature(name=DIRECTORY_NUMBERING_FEATURE, min_supported_version=0, max_supported_version=1),
            ],
            log_dirs=[A, B],
        )
        controller.submit("register", handle_broker_registration, request)
        await world.sleep(0.01)
        epoch = controller.state.brokers[BrokerId(1)].epoch
        controller.submit("heartbeat", handle_broker_heartbeat, heartbeat_of(broker_id=1, epoch=epoch))
        made = partition([1], 1, [1])
        made.directories = [A]
        controller.submit("write", write, [TopicRecord(name="t", topic_id=TOPIC)])
        controller.submit("write", lambda *_: ControllerResult([ApiMessageAndVersion(made, 1)], None), None)
        controller.submit("heartbeat", handle_broker_heartbeat, heartbeat_of(broker_id=1, epoch=epoch, offline=[A]))
        await world.sleep(0.01)
        assert world.events_named("log_dir_reported_offline")[0].fields == {"broker_id": 1, "directory_id": A}
        assert not world.events_named("leaders_moved")
        driver.commit()
        moved = world.events_named("leaders_moved")[0].fields
        assert moved == {
            "broker_id": 1,
            "directory_id": A,
            "partitions": 1,
            "leaders": 1,
            "elapsed_ms": moved["elapsed_ms"],
        }

    run(driver, scenario)
