"""Registration and heartbeats on the wire, with the real lifecycle and channel and a scripted controller."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from broker.controller_link.lifecycle_loop import LifecycleLoop
from broker.core.lifecycle import (
    BrokerLifecycle,
    BrokerState,
    Effect,
    FailuresAcknowledged,
    LifecycleSettings,
    MetadataApplied,
    ReadyToUnfence,
    ShutdownAsked,
    ShutDownNow,
    Start,
    StateChanged,
)
from common.ids import BrokerId, DirectoryId, Uuid, uuid_text
from common.metadata.state import MetadataState
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from common.time_units import NS_PER_MS, NS_PER_S
from tests.simulation.environment import SimulatedWorld
from tests.unit.broker.fake_controller import Answer, ControllerSide
from tests.unit.common.metadata.builders import partition, replay, topic

D1 = DirectoryId(Uuid(b"1" * 16))
D2 = DirectoryId(Uuid(b"2" * 16))
EPOCH = 7
SETTINGS = LifecycleSettings(
    heartbeat_interval_ns=2000 * NS_PER_MS,
    registration_timeout_ns=60_000 * NS_PER_MS,
    log_dir_failure_timeout_ns=30_000 * NS_PER_MS,
    session_timeout_ns=9_000 * NS_PER_MS,
    controlled_shutdown_timeout_ns=30_000 * NS_PER_MS,
)


def accept(_: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(broker_epoch=EPOCH)


def unfence_when_asked(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=request.want_fence, should_shut_down=request.want_shut_down)


GOOD: Mapping[ApiKey, Answer] = {ApiKey.BROKER_REGISTRATION: accept, ApiKey.BROKER_HEARTBEAT: unfence_when_asked}


class Broker:
    """A LifecycleLoop and what it needs from a broker: online directories and an applied offset. `effects` and `halted`
    record its callbacks."""

    def __init__(self, side: ControllerSide, state: MetadataState) -> None:
        self.side = side
        self.online = [D1, D2]
        self.applied_offset = 41
        self.cordoned: list[DirectoryId] | None = None
        self.effects: list[Effect] = []
        self.halted: list[str] = []
        self.lifecycle = BrokerLifecycle(
            SETTINGS,
            rng=side.env.rng,
            leads_in=lambda directory_id: any(
                state.topics[topic_id].partitions[index].directory(BrokerId(1)) == directory_id
                for topic_id, index in state.partitions_led_by(BrokerId(1))
            ),
            has_pending_assignment_into=lambda _: False,
        )
        self.loop = LifecycleLoop(
            side.env,
            self.lifecycle,
            broker_id=BrokerId(1),
            channel=side.channel,
            task_group=side.group,
            request_timeout_ns=2000 * NS_PER_MS,
            build_registration=self._build_registration,
            applied_offset=lambda: self.applied_offset,
            cordoned=lambda: self.cordoned,
            on_effect=self.effects.append,
            on_unfenced=lambda asked_ns: None,
            halt=self.halted.append,
        )

    def _build_registration(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="c",
            incarnation_id=Uuid(b"i" * 16),
            listeners=[Listener(name="PLAINTEXT", host="broker-1", port=9092)],
            features=[Feature(name="metadata.version", min_supported_version=1, max_supported_version=22)],
            rack="r",
            log_dirs=list(self.online),
        )

    def fail(self, directory_id: DirectoryId) -> None:
        self.online.remove(directory_id)
        self.loop.directory_failed(directory_id)

    @property
    def registrations(self) -> list[BrokerRegistrationRequest]:
        return [each for each in self.side.controller.requests if isinstance(each, BrokerRegistrationRequest)]

    @property
    def heartbeats(self) -> list[BrokerHeartbeatRequest]:
        return [each for each in self.side.controller.requests if isinstance(each, BrokerHeartbeatRequest)]

    async def until(self, state: BrokerState) -> None:
        await self.side.world.until(lambda: self.lifecycle.state is state)

    async def until_running(self) -> None:
        self.loop.post(Start())
        await self.until(BrokerState.RECOVERY)
        self.loop.post(ReadyToUnfence())
        await self.until(BrokerState.RUNNING)


def run(
    scenario: Callable[[Broker], Coroutine[Any, Any, None]],
    answers: Mapping[ApiKey, Answer] = GOOD,
    *,
    state: MetadataState | None = None,
    start: bool = True,
) -> None:
    async def in_world(world: SimulatedWorld) -> None:
        async with ControllerSide(world, answers, start=start) as side:
            broker = Broker(side, MetadataState() if state is None else state)
            await scenario(broker)
            # After the shutdown the loop must send nothing more. A request in flight would keep the task group from ending.
            broker.loop.post(ShutdownAsked())
            await broker.until(BrokerState.SHUTTING_DOWN)

    SimulatedWorld(seed=1).run(in_world)


def test_a_broker_registers_and_is_unfenced() -> None:
    """The whole start as the controller sees it: one registration, then a heartbeat with WantFence, then one without."""

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        (registration,) = broker.registrations
        assert (registration.broker_id, registration.cluster_id, registration.rack) == (1, "c", "r")
        assert registration.incarnation_id == b"i" * 16
        assert registration.log_dirs == [D1, D2]
        assert [(each.host, each.port) for each in registration.listeners] == [("broker-1", 9092)]
        assert [heartbeat.want_fence for heartbeat in broker.heartbeats] == [True, False]
        assert {heartbeat.broker_epoch for heartbeat in broker.heartbeats} == {EPOCH}
        assert [effect.state for effect in broker.effects if isinstance(effect, StateChanged)] == [
            BrokerState.STARTING,
            BrokerState.RECOVERY,
            BrokerState.RUNNING,
        ]

    run(scenario)


def test_heartbeats_carry_the_applied_offset_of_their_moment_and_come_at_the_interval() -> None:
    """The controller uses this offset to decide whether to unfence the broker, so the loop reads the current value for each
    heartbeat."""

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        assert broker.heartbeats[-1].current_metadata_offset == 41
        broker.applied_offset = 99
        started_ns = broker.side.env.now_ns()
        count = len(broker.heartbeats)
        await broker.side.world.until(lambda: len(broker.heartbeats) == count + 3)
        assert broker.heartbeats[-1].current_metadata_offset == 99
        assert 5.9 * NS_PER_S < broker.side.env.now_ns() - started_ns < 6.2 * NS_PER_S

    run(scenario)


def test_a_failed_directory_is_told_at_once_and_in_every_later_heartbeat() -> None:
    """A heartbeat with OfflineLogDirs is sent at once, long before the next one is due. Its answer acknowledges the failure.
    Later heartbeats repeat the directory."""

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        failed_ns = broker.side.env.now_ns()
        broker.fail(D2)
        await broker.side.world.until(lambda: broker.heartbeats[-1].offline_log_dirs == [D2])
        assert broker.side.env.now_ns() - failed_ns < 50 * NS_PER_MS
        await broker.side.world.until(lambda: FailuresAcknowledged((D2,)) in broker.effects)
        acknowledged = await broker.side.world.event("log_dir_failure_acknowledged")
        assert acknowledged.fields["directory_id"] == D2
        count = len(broker.heartbeats)
        await broker.side.world.until(lambda: len(broker.heartbeats) > count)
        assert broker.heartbeats[-1].offline_log_dirs == [D2]
        assert not broker.heartbeats[-1].want_fence

    run(scenario)


def test_a_directory_that_fails_while_a_heartbeat_is_in_flight_is_in_the_next_one() -> None:
    """The answer to the heartbeat in flight does not acknowledge the failure. The next heartbeat is sent as soon as that
    answer arrives."""

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        answer: asyncio.Future[BrokerHeartbeatResponse] = asyncio.get_running_loop().create_future()
        broker.side.controller.answers[ApiKey.BROKER_HEARTBEAT] = lambda _: answer
        count = len(broker.heartbeats)
        await broker.side.world.until(lambda: len(broker.heartbeats) == count + 1)
        broker.fail(D1)
        await broker.side.world.sleep(0.5)
        assert len(broker.heartbeats) == count + 1
        broker.side.controller.answers[ApiKey.BROKER_HEARTBEAT] = unfence_when_asked
        answered_ns = broker.side.env.now_ns()
        answer.set_result(BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False))
        await broker.side.world.until(lambda: len(broker.heartbeats) == count + 2)
        assert broker.side.env.now_ns() - answered_ns < 50 * NS_PER_MS
        assert [each.offline_log_dirs for each in broker.heartbeats[-2:]] == [[], [D1]]
        await broker.side.world.until(lambda: FailuresAcknowledged((D1,)) in broker.effects)

    run(scenario)


def test_log_dir_not_found_leaves_the_failure_untold() -> None:
    """LOG_DIR_NOT_FOUND (error 57) acknowledges nothing, so the next heartbeat names the directory again."""

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        broker.side.controller.answers[ApiKey.BROKER_HEARTBEAT] = lambda _: BrokerHeartbeatResponse(
            error_code=ErrorCode.LOG_DIR_NOT_FOUND
        )
        broker.fail(D1)
        refused = await broker.side.world.event("heartbeat_refused")
        assert refused.fields["error"] == "LOG_DIR_NOT_FOUND"
        assert broker.effects[-1] == StateChanged(BrokerState.RUNNING)
        broker.side.controller.answers[ApiKey.BROKER_HEARTBEAT] = unfence_when_asked
        await broker.side.world.until(lambda: FailuresAcknowledged((D1,)) in broker.effects)

    run(scenario)


def test_heartbeats_tell_the_cordons_once_they_are_known() -> None:
    """Null until then, which changes nothing (KIP-1066). Later heartbeats repeat them."""

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        assert {str(each.cordoned_log_dirs) for each in broker.heartbeats} == {"None"}
        for cordoned in ([D2], []):
            broker.cordoned = cordoned
            broker.side.controller.requests.clear()
            await broker.side.world.until(lambda: len(broker.heartbeats) == 2)
            assert [each.cordoned_log_dirs for each in broker.heartbeats[-2:]] == [cordoned, cordoned]

    run(scenario)


def test_the_bytes_of_a_heartbeat_do_not_depend_on_the_number_of_partitions() -> None:
    """The goal of KIP-858: a failed directory adds its id of 16 bytes and little else to the heartbeat, whether the
    directory held ten partitions or two thousand."""

    def sizes(partitions: int) -> tuple[int, int]:
        state = replay(topic(1), *(partition(1, index, [1], directories=[D2]) for index in range(partitions)))
        found: list[int] = []

        async def scenario(broker: Broker) -> None:
            await broker.until_running()
            broker.fail(D2)
            await broker.side.world.until(lambda: broker.heartbeats[-1].offline_log_dirs == [D2])
            found.extend(broker.side.controller.sizes(ApiKey.BROKER_HEARTBEAT)[-2:])

        run(scenario, state=state)
        return found[0], found[1]

    before, after = sizes(10)
    assert sizes(2000) == (before, after)
    assert after - before < 24


def test_a_controller_that_is_away_for_long_is_logged_once() -> None:
    """For each reason, not with each heartbeat that is not answered. The next outage is logged again."""

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        logged = 0
        for _ in range(2):
            broker.side.world.network.cut("broker-1", "controller-100")
            await broker.side.world.sleep(60)
            reasons = [event.fields["reason"] for event in broker.side.world.events_named("controller_unavailable")[logged:]]
            assert reasons and len({*reasons}) == len(reasons)
            logged += len(reasons)
            broker.side.world.network.mend()
            broker.side.controller.requests.clear()
            await broker.side.world.until(lambda: broker.heartbeats)

    run(scenario)


def test_a_registration_names_the_directories_that_are_online_when_it_is_built() -> None:
    """A directory that fails before the registration succeeds is left out of the registration. No heartbeat ever names
    it."""

    async def scenario(broker: Broker) -> None:
        broker.loop.post(Start())
        await broker.side.world.event("controller_unavailable")
        broker.fail(D1)
        broker.side.controller.start(broker.side.group)
        await broker.until(BrokerState.RECOVERY)
        assert [registration.log_dirs for registration in broker.registrations] == [[D2]]
        assert all(heartbeat.offline_log_dirs == [] for heartbeat in broker.heartbeats)

    run(scenario, start=False)


def test_a_directory_that_fails_while_the_registration_is_in_flight_is_reported_by_the_first_heartbeat() -> None:
    """The registration named the directory, so only a heartbeat can report it as offline."""

    async def scenario(broker: Broker) -> None:
        answer: asyncio.Future[BrokerRegistrationResponse] = asyncio.get_running_loop().create_future()
        broker.side.controller.answers[ApiKey.BROKER_REGISTRATION] = lambda _: answer
        broker.loop.post(Start())
        await broker.side.world.until(lambda: broker.registrations)
        broker.fail(D1)
        answer.set_result(BrokerRegistrationResponse(broker_epoch=EPOCH))
        await broker.side.world.until(lambda: broker.heartbeats)
        assert broker.registrations[0].log_dirs == [D1, D2]
        assert broker.heartbeats[0].offline_log_dirs == [D1]

    run(scenario)


def test_a_duplicate_registration_is_tried_again() -> None:
    """After a kill -9 the old incarnation's session must expire before the new one can register."""
    refusals = 3

    def refuse_first(request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        nonlocal refusals
        refusals -= 1
        return (
            BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION) if refusals else accept(request)
        )

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        assert len(broker.registrations) == 3
        refused = broker.side.world.events_named("registration_refused")[0].fields
        assert refused["error"] == "DUPLICATE_BROKER_REGISTRATION"
        assert "broker.session.timeout.ms" in refused["advice"]

    run(scenario, {**GOOD, ApiKey.BROKER_REGISTRATION: refuse_first})


def test_a_registration_that_can_never_succeed_halts_with_the_way_out() -> None:
    """The directories belong to another cluster, so the broker does not retry. The reason for the halt says what to do."""

    async def scenario(broker: Broker) -> None:
        broker.loop.post(Start())
        await broker.side.world.until(lambda: broker.halted)
        assert len(broker.registrations) == 1
        assert "INCONSISTENT_CLUSTER_ID" in broker.halted[0]
        assert "format them for this cluster" in broker.halted[0]

    def refuse(_: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        return BrokerRegistrationResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)

    run(scenario, {**GOOD, ApiKey.BROKER_REGISTRATION: refuse})


def test_an_unknown_error_code_is_shown_by_its_number() -> None:
    """A newer controller may use codes that this broker does not know. Such an error is retried like any other refusal."""
    codes = [4711, ErrorCode.NONE]

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        assert broker.side.world.events_named("registration_refused")[0].fields == {"error": "4711"}

    def answer(_: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        return BrokerRegistrationResponse(error_code=codes.pop(0), broker_epoch=EPOCH)

    run(scenario, {**GOOD, ApiKey.BROKER_REGISTRATION: answer})


@pytest.mark.slow
def test_a_leader_on_a_failed_directory_halts_when_nobody_can_be_told() -> None:
    """The controller is unreachable, so it cannot elect another leader. After log.dir.failure.timeout.ms the broker halts,
    because it still leads a partition in the failed directory."""
    state = replay(topic(1), partition(1, 0, [1], directories=[D1]))

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        broker.side.controller.close()
        failed_ns = broker.side.env.now_ns()
        broker.fail(D1)
        await broker.side.world.until(lambda: broker.halted)
        assert "log.dir.failure.timeout.ms" in broker.halted[0]
        assert uuid_text(D1) in broker.halted[0]
        assert 30 * NS_PER_S <= broker.side.env.now_ns() - failed_ns < 30.1 * NS_PER_S

    run(scenario, state=state)


def test_leadership_that_comes_after_the_deadline_is_noticed_at_the_metadata_change() -> None:
    """While the broker leads nothing, the deadline passes without effect. When the metadata makes the broker leader of a
    partition on the dead disk, the broker halts."""
    state = replay(topic(1))

    async def scenario(broker: Broker) -> None:
        await broker.until_running()
        broker.side.controller.close()
        broker.fail(D1)
        await broker.side.world.sleep(40)
        assert broker.halted == []
        replay(partition(1, 0, [1], directories=[D1]), into=state)
        broker.loop.post(MetadataApplied())
        assert len(broker.halted) == 1

    run(scenario, state=state)


def test_a_controlled_shutdown_is_asked_for_until_the_controller_agrees() -> None:
    """After ShutdownAsked, every heartbeat has WantShutDown. When the controller agrees, the broker shuts down and sends
    nothing more."""
    may_end = False

    def answer(request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        response = unfence_when_asked(request)
        response.should_shut_down = may_end and request.want_shut_down
        return response

    async def scenario(broker: Broker) -> None:
        nonlocal may_end
        await broker.until_running()
        broker.loop.post(ShutdownAsked())
        await broker.side.world.sleep(1)
        assert broker.lifecycle.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        assert broker.heartbeats[-1].want_shut_down
        may_end = True
        await broker.until(BrokerState.SHUTTING_DOWN)
        assert ShutDownNow() in broker.effects
        count = len(broker.heartbeats)
        await broker.side.world.sleep(10)
        assert len(broker.heartbeats) == count

    run(scenario, {**GOOD, ApiKey.BROKER_HEARTBEAT: answer})
