"""The broker's lifecycle. Each test advances the clock by hand and compares whole effect lists."""

import random
from dataclasses import replace

import pytest

from broker.core.lifecycle import (
    BrokerLifecycle,
    BrokerState,
    CordonsChanged,
    DirectoryFailed,
    Effect,
    Event,
    FailuresAcknowledged,
    Halt,
    HeartbeatAnswered,
    LastWords,
    LastWordsHeard,
    LifecycleSettings,
    MetadataApplied,
    ReadyToUnfence,
    Registered,
    RegistrationRefused,
    RequestFailed,
    SendHeartbeat,
    SendRegistration,
    ShutdownAsked,
    ShutDownNow,
    Start,
    StateChanged,
    Tick,
)
from common.ids import BrokerEpoch, DirectoryId, Offset, Uuid
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_MS

D1 = DirectoryId(Uuid(b"1" * 16))
D2 = DirectoryId(Uuid(b"2" * 16))
EPOCH = BrokerEpoch(7)
SETTINGS = LifecycleSettings(
    heartbeat_interval_ns=2000 * NS_PER_MS,
    registration_timeout_ns=60_000 * NS_PER_MS,
    log_dir_failure_timeout_ns=30_000 * NS_PER_MS,
    session_timeout_ns=9_000 * NS_PER_MS,
    controlled_shutdown_timeout_ns=30_000 * NS_PER_MS,
)


class Context:
    """A lifecycle with a clock. `leading` has the directories in which the broker leads, `pending` those with unconfirmed
    assignments, and `asked` those about whose leaders the lifecycle has asked."""

    def __init__(self, settings: LifecycleSettings = SETTINGS) -> None:
        self.leading: set[DirectoryId] = set()
        self.pending: set[DirectoryId] = set()
        self.asked: list[DirectoryId] = []
        self.now_ns = 0
        self.lifecycle = BrokerLifecycle(
            settings,
            rng=random.Random(1),
            leads_in=self._leads_in,
            has_pending_assignment_into=lambda directory_id: directory_id in self.pending,
        )

    def _leads_in(self, directory_id: DirectoryId) -> bool:
        self.asked.append(directory_id)
        return directory_id in self.leading

    def step(self, event: object, *, after_ms: int = 0) -> list[Effect]:
        self.now_ns += after_ms * NS_PER_MS
        return self.lifecycle.step(event, self.now_ns)  # type: ignore[arg-type]

    def answer(
        self, *offline: DirectoryId, fenced: bool = False, shut_down: bool = False, after_ms: int = 0
    ) -> list[Effect]:
        answer = HeartbeatAnswered(ErrorCode.NONE, True, fenced, shut_down, tuple(offline))
        return self.step(answer, after_ms=after_ms)

    def run_until_unfenced(self) -> None:
        self.step(Start())
        self.step(Registered(EPOCH, (D1, D2)))
        self.answer(fenced=True)
        self.step(ReadyToUnfence())
        self.answer()
        assert self.lifecycle.state is BrokerState.RUNNING


def heartbeat(*offline: DirectoryId, fence: bool = False, shut_down: bool = False) -> SendHeartbeat:
    return SendHeartbeat(EPOCH, want_fence=fence, want_shut_down=shut_down, offline_directories=tuple(offline))


def test_from_start_to_running() -> None:
    """The whole sequence of a healthy start, one step at a time."""
    context = Context()
    assert context.step(Start()) == [StateChanged(BrokerState.STARTING), SendRegistration()]
    assert context.step(Registered(EPOCH, (D1, D2))) == [heartbeat(fence=True)]
    not_caught_up = HeartbeatAnswered(ErrorCode.NONE, False, True, False, ())
    assert context.step(not_caught_up) == []
    assert context.lifecycle.next_deadline_ns() == 10 * NS_PER_MS
    assert context.step(Tick(), after_ms=10) == [heartbeat(fence=True)]
    assert context.answer(fenced=True) == [StateChanged(BrokerState.RECOVERY)]
    assert context.step(ReadyToUnfence()) == [heartbeat()]
    assert context.answer() == [StateChanged(BrokerState.RUNNING)]
    assert context.lifecycle.next_deadline_ns() == context.now_ns + 2000 * NS_PER_MS


def test_a_failure_that_the_controller_knows_costs_no_look_at_the_partitions() -> None:
    """After the deadline, each step checks the failure again, as long as the broker runs. Only while the controller does not
    know everything does it matter what the broker leads."""
    context = Context()
    context.run_until_unfenced()
    context.step(DirectoryFailed(D1))
    context.step(MetadataApplied(), after_ms=40_000)
    assert context.asked == [D1]
    context.answer(D1)
    context.asked.clear()
    context.step(MetadataApplied())
    assert context.asked == []
    context.pending.add(D1)
    context.step(MetadataApplied())
    assert context.asked == [D1]


def test_ready_while_a_heartbeat_is_in_flight_sends_the_next_at_once() -> None:
    """If ReadyToUnfence comes while a heartbeat is in flight, the next heartbeat is sent as soon as that one is answered,
    not at the next tick."""
    context = Context()
    context.step(Start())
    context.step(Registered(EPOCH, (D1,)))
    assert context.step(ReadyToUnfence()) == []
    assert context.answer(fenced=True) == [StateChanged(BrokerState.RECOVERY), heartbeat()]


def test_a_failure_is_told_at_once_and_in_every_later_heartbeat() -> None:
    """In OfflineLogDirs, every heartbeat repeats all directories that have failed in this incarnation."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(DirectoryFailed(D1), after_ms=5) == [heartbeat(D1)]
    assert context.answer(D1) == [FailuresAcknowledged((D1,))]
    assert context.step(Tick(), after_ms=2000) == [heartbeat(D1)]
    assert context.answer(D1) == []
    assert context.step(DirectoryFailed(D1)) == []


def test_a_changed_cordon_is_told_at_once() -> None:
    """The daemon adds the cordoned directories to each heartbeat when it is sent. One that is in flight does not have the
    change, so another one follows its answer."""
    context = Context()
    assert context.step(Start()) == [StateChanged(BrokerState.STARTING), SendRegistration()]
    assert context.step(CordonsChanged()) == []
    context = Context()
    context.run_until_unfenced()
    assert context.step(CordonsChanged(), after_ms=5) == [heartbeat()]
    assert context.step(CordonsChanged(), after_ms=5) == []
    assert context.answer() == [heartbeat()]
    assert context.answer() == []
    assert context.lifecycle.next_deadline_ns() == context.now_ns + 2000 * NS_PER_MS


def test_a_directory_failing_while_a_heartbeat_is_in_flight() -> None:
    """A heartbeat is in flight that does not name the failed directory. Its response does not acknowledge the failure, so
    the next heartbeat is sent at once."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(Tick(), after_ms=2000) == [heartbeat()]
    assert context.step(DirectoryFailed(D2)) == []
    assert context.answer() == [heartbeat(D2)]
    assert context.answer(D2) == [FailuresAcknowledged((D2,))]


def test_log_dir_not_found_acknowledges_nothing() -> None:
    """An answer with an error does not acknowledge the failure."""
    context = Context()
    context.run_until_unfenced()
    context.step(DirectoryFailed(D1))
    refused = HeartbeatAnswered(ErrorCode.LOG_DIR_NOT_FOUND, False, True, False, (D1,))
    assert context.step(refused) == []
    deadline_ns = context.lifecycle.next_deadline_ns()
    assert deadline_ns is not None
    context.now_ns = deadline_ns
    assert context.step(Tick()) == [heartbeat(D1)]


def test_an_untold_failure_halts_only_while_the_broker_leads_there() -> None:
    """If log.dir.failure.timeout.ms passes while the broker leads nothing in the directory, nothing happens. If the broker
    is elected there later, it halts then."""
    context = Context()
    context.run_until_unfenced()
    context.step(DirectoryFailed(D1))
    for _ in range(40):
        context.step(RequestFailed("no controller"))
        context.step(Tick(), after_ms=1000)
    assert context.lifecycle.state is BrokerState.RUNNING
    context.leading.add(D1)
    effects = context.step(MetadataApplied())
    assert isinstance(effects[0], Halt)
    assert "log.dir.failure.timeout.ms" in effects[0].reason
    assert effects[1] == StateChanged(BrokerState.SHUTTING_DOWN)


def test_an_unconfirmed_assignment_into_a_told_failure_halts_too() -> None:
    """The controller knows of the failure but may still place the replica in another directory, with this broker leading."""
    context = Context()
    context.run_until_unfenced()
    context.leading.add(D1)
    context.pending.add(D1)
    context.step(DirectoryFailed(D1))
    context.answer(D1)
    effects = context.step(Tick(), after_ms=30_000)
    assert [type(effect) for effect in effects] == [Halt, StateChanged]


def test_a_told_failure_never_halts() -> None:
    """If log.dir.failure.timeout.ms passes after the acknowledgement, nothing happens."""
    context = Context()
    context.run_until_unfenced()
    context.leading.add(D1)
    context.step(DirectoryFailed(D1))
    context.answer(D1)
    assert context.step(Tick(), after_ms=30_000) == [heartbeat(D1)]


def test_a_failure_before_the_registration_is_told_by_not_being_named() -> None:
    """The registration leaves the failed directory out, so the controller knows of the failure. Heartbeats name only
    directories that this incarnation registered, and the timeout does not apply."""
    context = Context()
    context.step(Start())
    context.step(DirectoryFailed(D2))
    assert context.step(Registered(EPOCH, (D1,))) == [heartbeat(fence=True)]
    context.leading.add(D2)
    assert context.answer(fenced=True, after_ms=31_000) == [StateChanged(BrokerState.RECOVERY)]


def test_registration_is_retried_until_its_deadline() -> None:
    """The back-off doubles from 100 ms up to the heartbeat interval. After a kill, the broker can register as soon as its
    old session ends, so a longer back-off would only delay that. At the deadline the broker halts."""
    context = Context()
    context.step(Start())
    delays_ms = []
    while True:
        context.step(RegistrationRefused(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
        deadline_ns = context.lifecycle.next_deadline_ns()
        assert deadline_ns is not None
        delays_ms.append(round((deadline_ns - context.now_ns) / NS_PER_MS))
        context.now_ns = deadline_ns
        effects = context.step(Tick())
        if effects != [SendRegistration()]:
            break
    assert [type(effect) for effect in effects] == [Halt, StateChanged]
    assert isinstance(effects[0], Halt)
    assert effects[0].reason.startswith("another process is running with this node.id: the controller refused")
    assert context.now_ns == 60_000 * NS_PER_MS
    assert delays_ms[0] in range(98, 103)
    assert delays_ms[1] in range(196, 205)
    assert max(delays_ms) <= 2040


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (RequestFailed("no controller"), "see that a controller of controller.quorum.voters is running"),
        (RegistrationRefused(ErrorCode.BROKER_ID_NOT_REGISTERED), "with BROKER_ID_NOT_REGISTERED; see the controller's log"),
    ],
)
def test_the_reason_at_the_deadline_is_that_of_the_last_attempt(event: Event, text: str) -> None:
    """A controller that refuses and one that does not answer need different remedies."""
    context = Context()
    context.step(Start())
    context.step(RegistrationRefused(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    context.step(Tick(), after_ms=1000)
    context.step(event)
    effects = context.step(Tick(), after_ms=60_000)
    assert isinstance(effects[0], Halt)
    assert text in effects[0].reason


@pytest.mark.parametrize(
    "code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.INVALID_REQUEST]
)
def test_a_registration_that_can_never_succeed_halts_at_once(code: ErrorCode) -> None:
    """The broker halts, and the reason names the error."""
    context = Context()
    context.step(Start())
    effects = context.step(RegistrationRefused(code))
    assert isinstance(effects[0], Halt)
    assert code.name in effects[0].reason


def test_a_stale_broker_epoch_halts() -> None:
    """The broker halts, because another process registered the same id."""
    context = Context()
    context.run_until_unfenced()
    context.step(Tick(), after_ms=2000)
    effects = context.step(HeartbeatAnswered(ErrorCode.STALE_BROKER_EPOCH, False, False, False, ()))
    assert [type(effect) for effect in effects] == [Halt, StateChanged]


def test_controlled_shutdown() -> None:
    """The broker asks to shut down at once, repeats that every 50 ms, and ends when the controller agrees."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(ShutdownAsked()) == [
        StateChanged(BrokerState.PENDING_CONTROLLED_SHUTDOWN),
        heartbeat(shut_down=True),
    ]
    assert context.answer() == []
    assert context.step(Tick(), after_ms=50) == [heartbeat(shut_down=True)]
    assert context.answer(shut_down=True) == [ShutDownNow(), StateChanged(BrokerState.SHUTTING_DOWN)]
    assert context.lifecycle.next_deadline_ns() is None
    assert context.step(Tick()) == []


ITS_LEADERS = "the leaders of this broker move when its session has ended and a controller is active"
NO_HEARTBEAT_ACCEPTED = f"no controller has accepted a heartbeat for 9 s (broker.session.timeout.ms); {ITS_LEADERS}"


def test_controlled_shutdown_has_a_deadline() -> None:
    """A controller that answers but does not approve the shutdown cannot keep the broker from ending cleanly."""
    context = Context()
    context.run_until_unfenced()
    context.step(ShutdownAsked())
    for _ in range(28):
        assert context.answer(after_ms=1000) == []
        assert context.step(Tick(), after_ms=50) == [heartbeat(shut_down=True)]
    reason = f"the controller did not approve it within 30 s (diskraft.controlled.shutdown.timeout.ms); {ITS_LEADERS}"
    assert context.lifecycle.next_deadline_ns() == 30_000 * NS_PER_MS
    assert context.step(Tick(), after_ms=600) == [ShutDownNow(reason), StateChanged(BrokerState.SHUTTING_DOWN)]


def test_controlled_shutdown_without_a_controller_ends_with_the_session() -> None:
    """The broker ends cleanly once its session must have ended, counted from the last heartbeat that was accepted. A
    refused heartbeat does not count as one."""
    context = Context()
    context.run_until_unfenced()
    context.step(Tick(), after_ms=2000)
    context.step(RequestFailed("no controller"))
    context.step(ShutdownAsked(), after_ms=1000)
    context.step(HeartbeatAnswered(ErrorCode.NOT_CONTROLLER, False, False, False, ()))
    assert context.step(Tick(), after_ms=2000) == [heartbeat(shut_down=True)]
    assert context.lifecycle.next_deadline_ns() == 9_000 * NS_PER_MS
    assert context.step(Tick(), after_ms=3999) == []
    assert context.step(Tick(), after_ms=1) == [
        ShutDownNow(NO_HEARTBEAT_ACCEPTED),
        StateChanged(BrokerState.SHUTTING_DOWN),
    ]
    assert context.lifecycle.next_deadline_ns() is None


def test_controlled_shutdown_after_the_end_of_the_session_is_immediate() -> None:
    """While no controller has been there for long, the broker does not wait. A broker that was stopped meanwhile asks first,
    because it does not know."""
    context = Context()
    context.run_until_unfenced()
    context.step(Tick(), after_ms=2000)
    context.step(RequestFailed("no controller"))
    effects = context.step(ShutdownAsked(), after_ms=60_000)
    assert effects == [
        StateChanged(BrokerState.PENDING_CONTROLLED_SHUTDOWN),
        ShutDownNow(NO_HEARTBEAT_ACCEPTED),
        StateChanged(BrokerState.SHUTTING_DOWN),
    ]
    stopped = Context()
    stopped.run_until_unfenced()
    effects = stopped.step(ShutdownAsked(), after_ms=60_000)
    assert effects == [StateChanged(BrokerState.PENDING_CONTROLLED_SHUTDOWN), heartbeat(shut_down=True)]
    assert stopped.answer(shut_down=True) == [ShutDownNow(), StateChanged(BrokerState.SHUTTING_DOWN)]


def test_shutdown_before_running_is_immediate() -> None:
    """A broker that is still starting leads nothing, so it shuts down at once."""
    context = Context()
    context.step(Start())
    assert context.step(ShutdownAsked()) == [ShutDownNow(), StateChanged(BrokerState.SHUTTING_DOWN)]


def test_shutdown_without_controlled_shutdown_is_immediate() -> None:
    """With controlled.shutdown.enable=false the controller is not asked."""
    context = Context(replace(SETTINGS, controlled_shutdown_enable=False))
    context.run_until_unfenced()
    assert context.step(ShutdownAsked()) == [ShutDownNow(), StateChanged(BrokerState.SHUTTING_DOWN)]


def test_a_failed_heartbeat_is_retried_before_the_session_ends() -> None:
    """However often requests fail, the next one is due within the heartbeat interval."""
    context = Context()
    context.run_until_unfenced()
    context.step(Tick(), after_ms=2000)
    for _ in range(20):
        context.step(RequestFailed("timed out"))
        deadline_ns = context.lifecycle.next_deadline_ns()
        assert deadline_ns is not None
        assert deadline_ns - context.now_ns <= 2040 * NS_PER_MS
        context.now_ns = deadline_ns
        assert context.step(Tick()) == [heartbeat()]


def test_last_words_fence_and_name_every_failure() -> None:
    """When the last directory fails, the broker's last heartbeat reports all failures and asks to be fenced. The halt waits
    only for the answer."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(DirectoryFailed(D1), after_ms=10) == [heartbeat(D1)]
    # While that heartbeat is in flight, the other directory fails as well.
    assert context.step(DirectoryFailed(D2)) == []
    assert context.step(LastWords()) == []
    assert context.answer(D1) == [FailuresAcknowledged((D1,)), heartbeat(D1, D2, fence=True)]
    assert context.answer(D1, D2, fenced=True) == [FailuresAcknowledged((D2,)), LastWordsHeard()]


def test_last_words_are_said_at_once_and_again_when_nobody_heard_them() -> None:
    """The metadata directory fails while no heartbeat is in flight, so the last heartbeat is sent at once. The controller is
    unreachable at first, so the heartbeat is sent again."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(LastWords(), after_ms=10) == [heartbeat(fence=True)]
    context.step(RequestFailed("connection refused"))
    deadline_ns = context.lifecycle.next_deadline_ns()
    assert deadline_ns is not None
    assert deadline_ns - context.now_ns < 150 * NS_PER_MS
    context.now_ns = deadline_ns
    assert context.step(Tick()) == [heartbeat(fence=True)]
    assert context.answer(fenced=True) == [LastWordsHeard()]


def test_a_broker_that_never_registered_has_no_last_words() -> None:
    """A broker that never registered has nothing to report, so the halt does not wait."""
    context = Context()
    context.step(Start())
    assert context.step(LastWords()) == [LastWordsHeard()]


# --- registering again -----------------------------------------------------------------------------------------------

LEVEL_ROSE = MetadataApplied(lacking=Offset(10))
# The level has risen again since: the registration that lacks the directories is another one.
LEVEL_ROSE_AGAIN = MetadataApplied(lacking=Offset(20))


def test_a_rising_level_registers_the_broker_once_more() -> None:
    """The first metadata that lacks the directories leads to one registration, at once, and heartbeats go on after it. The
    broker's own image shows the registration only later."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(LEVEL_ROSE) == [SendRegistration()]
    assert context.step(LEVEL_ROSE) == []
    assert context.step(Registered(EPOCH, (D1, D2))) == [heartbeat()]
    assert context.answer() == []
    assert context.step(LEVEL_ROSE) == []
    assert context.step(MetadataApplied()) == []
    assert context.step(Tick(), after_ms=2000) == [heartbeat()]
    assert context.lifecycle.state is BrokerState.RUNNING


def test_the_registration_follows_a_heartbeat_in_flight_at_once() -> None:
    """There is one request at a time, and the registration does not wait for the next regular heartbeat."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(Tick(), after_ms=2000) == [heartbeat()]
    assert context.step(LEVEL_ROSE) == []
    assert context.answer() == [SendRegistration()]


def test_a_second_rise_in_the_same_delta_registers_the_broker_again() -> None:
    """The level has risen, fallen and risen before the broker applies any of it. So the metadata lacks the directories
    before and after, and never has them in between."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(LEVEL_ROSE) == [SendRegistration()]
    assert context.step(Registered(EPOCH, (D1, D2))) == [heartbeat()]
    assert context.answer() == []
    assert context.step(LEVEL_ROSE_AGAIN) == [SendRegistration()]
    assert context.step(Registered(EPOCH, (D1, D2))) == [heartbeat()]
    assert context.answer() == []
    assert context.step(LEVEL_ROSE_AGAIN) == []
    assert context.step(MetadataApplied()) == []


def test_a_rise_while_a_registration_is_in_flight_is_not_missed() -> None:
    """The answer may be about the time before that rise. The next registration follows the heartbeat at once."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(LEVEL_ROSE) == [SendRegistration()]
    assert context.step(LEVEL_ROSE_AGAIN) == []
    assert context.step(Registered(EPOCH, (D1, D2))) == [heartbeat()]
    assert context.answer() == [SendRegistration()]
    assert context.step(Registered(EPOCH, (D1, D2))) == [heartbeat()]
    assert context.answer() == []


def test_an_unregistered_broker_does_not_come_back() -> None:
    """The level rises after the broker was unregistered, and the broker knows of the rise only. The controller takes its
    registration for that of a new broker, with another epoch."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(LEVEL_ROSE) == [SendRegistration()]
    halt, ended = context.step(Registered(BrokerEpoch(EPOCH + 1), (D1, D2)))
    assert isinstance(halt, Halt)
    assert halt.reason.startswith(f"the controller no longer knows broker epoch {EPOCH}: it was unregistered")
    assert "the controller has lost its metadata log" in halt.reason
    assert ended == StateChanged(BrokerState.SHUTTING_DOWN)


@pytest.mark.parametrize("failure", [RequestFailed("no answer"), RegistrationRefused(ErrorCode.UNSUPPORTED_VERSION)])
def test_heartbeats_go_on_while_the_broker_cannot_register_again(failure: Event) -> None:
    """Heartbeats and registrations take turns, or the session would end. A refusal that is fatal at the start is not now:
    the level may have fallen again. Once it has, the broker stops trying."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(LEVEL_ROSE) == [SendRegistration()]
    assert context.step(failure) == []
    assert context.step(Tick(), after_ms=200) == [heartbeat()]
    assert context.answer() == []
    assert context.step(Tick(), after_ms=2000) == [SendRegistration()]
    assert context.step(failure) == []
    assert context.step(Tick(), after_ms=400) == [heartbeat()]
    assert context.answer() == []
    assert context.step(MetadataApplied()) == []
    assert context.step(Tick(), after_ms=2000) == [heartbeat()]


def test_a_second_registration_reports_the_failures_that_it_leaves_out() -> None:
    """The failed directory is not in the request, so its answer acknowledges the failure. A directory that fails meanwhile
    is in it, and the next heartbeat names it."""
    context = Context()
    context.run_until_unfenced()
    assert context.step(LEVEL_ROSE) == [SendRegistration()]
    assert context.step(DirectoryFailed(D1)) == []
    assert context.step(DirectoryFailed(D2)) == []
    assert context.step(Registered(EPOCH, (D2,))) == [FailuresAcknowledged((D1,)), heartbeat(D2)]


def test_last_words_come_before_a_registration() -> None:
    """The node is about to halt: nothing is more urgent than to say so."""
    context = Context()
    context.run_until_unfenced()
    context.step(Tick(), after_ms=2000)
    context.step(LEVEL_ROSE)
    context.step(LastWords())
    assert context.answer() == [heartbeat(fence=True)]
