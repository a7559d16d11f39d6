"""A broker's life with the controller: registration, heartbeats, directory failures, controlled shutdown (core).

Counterpart of Kafka's BrokerLifecycleManager, with the rules of docs/DESIGN.md, "From a disk error to a new leader" and
"Registration and fencing". Events go into `step`, effects come out, and `next_deadline_ns` says when to step again with
`Tick`.

    NOT_RUNNING -- Start --> STARTING -- caught up --> RECOVERY -- unfenced --> RUNNING
    RUNNING -- ShutdownAsked --> PENDING_CONTROLLED_SHUTDOWN -- should_shut_down --> SHUTTING_DOWN
    PENDING_CONTROLLED_SHUTDOWN -- timeout, or the session has ended --> SHUTTING_DOWN (rule 6)
    NOT_RUNNING, STARTING, RECOVERY -- ShutdownAsked --> SHUTTING_DOWN, and RUNNING too without controlled.shutdown.enable
    any state -- a reason to Halt --> SHUTTING_DOWN, which ignores all events

1. At most one request is in flight. If something urgent happens meanwhile, the next request follows immediately.
2. Easy to get wrong: a failed directory is acknowledged only by an error-free answer to a request that *named* it (or to a
   registration that left it out). A failure during a heartbeat in flight has to wait for the next one.
3. The broker halts if, at or after a failure's deadline, it leads partitions in the failed directory and the controller's
   view is not up to date: either the failure is not acknowledged, or an assignment into the directory is still pending
   (KIP-858).
4. Once metadata.version rises to where registrations have directories, the broker registers again, with the same incarnation
   id. The controller keeps epoch and fencing. A refusal is not fatal: heartbeats go on in between, or the session would end.
   What counts is the registration in the applied metadata, not the rise: two rises may come in one delta, or one while the
   request is in flight. A registration that lacks the directories is amended once, because the metadata shows an accepted
   request only later, as a registration at another offset.
5. A broker that was unregistered stays out. If its next request is a registration, the controller takes it for a new broker
   and gives it another epoch, and the broker halts.
6. A controlled shutdown that the controller does not approve ends cleanly all the same, as in Kafka: the logs are closed
   and marked clean. Once no heartbeat has been accepted for the session timeout, there is nothing to wait for: a controller
   that is alive has fenced this broker and moved its leaderships, and one that is not can move nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from common.configuration.server import ServerConfig
from common.ids import BrokerEpoch, DirectoryId, Offset, uuid_text
from common.protocol.errors import ErrorCode, error_name
from common.time_units import NS_PER_MS

if TYPE_CHECKING:
    from random import Random


# The heartbeat intervals in STARTING and in PENDING_CONTROLLED_SHUTDOWN. They are short, as in Kafka, because progress in
# these states depends on the next answer.
STARTING_POLL_NS = 10 * NS_PER_MS
SHUTDOWN_POLL_NS = 50 * NS_PER_MS
FIRST_RETRY_NS = 100 * NS_PER_MS
JITTER = 0.02

# Registration errors that a retry cannot fix.
FATAL_REGISTRATION_ERRORS = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)

REGISTRATION_ADVICE = {
    "DUPLICATE_BROKER_REGISTRATION": (
        "the controller still counts on the process that had this node.id before, until broker.session.timeout.ms has "
        "passed; if this goes on, another process runs with this node.id"
    ),
    "INCONSISTENT_CLUSTER_ID": "its directories were formatted with another cluster id; format them for this cluster",
    "INVALID_REGISTRATION": "a directory.id is reserved, occurs twice or belongs to another broker; see meta.properties",
    "INVALID_REQUEST": "it names no directory",
    "UNSUPPORTED_VERSION": (
        "this version lacks a feature of the cluster (see kafka-features describe), or log.dirs names several directories "
        "and the cluster's metadata.version is older than 3.7-IV2"
    ),
}


class BrokerState(Enum):
    """Kafka's broker states, with the numbers of its BrokerState metric."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


@dataclass(frozen=True, slots=True)
class LifecycleSettings:
    """The durations are on the monotonic clock."""

    heartbeat_interval_ns: int
    registration_timeout_ns: int
    log_dir_failure_timeout_ns: int
    session_timeout_ns: int
    controlled_shutdown_timeout_ns: int
    controlled_shutdown_enable: bool = True


def lifecycle_settings(config: ServerConfig) -> LifecycleSettings:
    """Derives the settings from server.properties."""
    return LifecycleSettings(
        heartbeat_interval_ns=config.broker_heartbeat_interval_ms * NS_PER_MS,
        registration_timeout_ns=config.initial_broker_registration_timeout_ms * NS_PER_MS,
        log_dir_failure_timeout_ns=config.log_dir_failure_timeout_ms * NS_PER_MS,
        session_timeout_ns=config.broker_session_timeout_ms * NS_PER_MS,
        controlled_shutdown_timeout_ns=config.diskraft_controlled_shutdown_timeout_ms * NS_PER_MS,
        controlled_shutdown_enable=config.controlled_shutdown_enable,
    )


# --- events --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """The directories are scanned and the listeners are bound, so registration may begin."""


@dataclass(frozen=True, slots=True)
class Registered:
    """The controller accepted the registration; `directories` are those that the request named."""

    broker_epoch: BrokerEpoch
    directories: tuple[DirectoryId, ...]


@dataclass(frozen=True, slots=True)
class RegistrationRefused:
    error_code: int


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """The controller answered a heartbeat; `offline_directories` are those that the request named."""

    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    offline_directories: tuple[DirectoryId, ...]


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The request in flight got no answer: no controller was found, the connection broke, or it timed out."""

    reason: str


@dataclass(frozen=True, slots=True)
class DirectoryFailed:
    directory_id: DirectoryId


@dataclass(frozen=True, slots=True)
class ReadyToUnfence:
    """Every assignment that this incarnation waited for is settled (KIP-858)."""


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    """The operator asked for an orderly shutdown."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """The node is about to halt. If the controller learns this now, it need not wait for the session to expire."""


@dataclass(frozen=True, slots=True)
class MetadataApplied:
    """New metadata was applied, so leadership in a failed directory may have changed."""

    # The offset of this incarnation's registration, if the applied metadata has it without directories although its
    # metadata.version can express them.
    lacking: Offset | None = None


@dataclass(frozen=True, slots=True)
class CordonsChanged:
    """Other directories than before are cordoned (KIP-1066), which every heartbeat names."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The time that `next_deadline_ns` returned has come."""


Event = (
    Start
    | Registered
    | RegistrationRefused
    | HeartbeatAnswered
    | RequestFailed
    | DirectoryFailed
    | ReadyToUnfence
    | ShutdownAsked
    | LastWords
    | MetadataApplied
    | CordonsChanged
    | Tick
)


# --- effects -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendRegistration:
    """Register the directories that are online at this moment."""


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    broker_epoch: BrokerEpoch
    want_fence: bool
    want_shut_down: bool
    offline_directories: tuple[DirectoryId, ...]


@dataclass(frozen=True, slots=True)
class StateChanged:
    state: BrokerState


@dataclass(frozen=True, slots=True)
class FailuresAcknowledged:
    """The controller has recorded these failures."""

    directory_ids: tuple[DirectoryId, ...]


@dataclass(frozen=True, slots=True)
class ShutDownNow:
    """Begin the orderly shutdown: the controller has moved all leaderships away, or there were none to move. Otherwise
    `reason` is a line for the operator."""

    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LastWordsHeard:
    """The controller has fenced this broker and knows its failures, or this broker never registered."""


@dataclass(frozen=True, slots=True)
class Halt:
    """The broker must stop at once; `reason` is a line for the operator."""

    reason: str


Effect = SendRegistration | SendHeartbeat | StateChanged | FailuresAcknowledged | ShutDownNow | LastWordsHeard | Halt


@dataclass(slots=True)
class _Failure:
    """A directory that failed in this incarnation."""

    # When log.dir.failure.timeout.ms ends for this directory. Never changes.
    deadline_ns: int
    # Whether the controller has acknowledged the failure. Set when a heartbeat that named the directory, or a registration
    # that left it out, succeeds.
    acknowledged: bool = False


class BrokerLifecycle:
    """The state machine. `leads_in` says whether this broker leads a replica in a directory, `has_pending_assignment_into`
    whether an unconfirmed assignment names the directory. Neither changes any state."""

    def __init__(
        self,
        settings: LifecycleSettings,
        *,
        rng: Random,
        leads_in: Callable[[DirectoryId], bool],
        has_pending_assignment_into: Callable[[DirectoryId], bool],
    ) -> None:
        self._settings = settings
        self._rng = rng
        self._leads_in = leads_in
        self._has_pending_assignment_into = has_pending_assignment_into
        # Invariant: only moves forward, as drawn in the module docstring.
        self.state = BrokerState.NOT_RUNNING
        # -1 until the registration is accepted, then fixed.
        self.broker_epoch = BrokerEpoch(-1)
        # Whether the last error-free heartbeat answer said fenced. True until the first such answer.
        self.is_fenced = True
        # The directories that failed in this incarnation, in order, acknowledged or not. Invariant: never shrinks, because
        # every heartbeat names every failed directory that was registered.
        self._failures: dict[DirectoryId, _Failure] = {}
        # The directories that the last accepted registration named. Empty until then.
        # Invariant: a heartbeat never names an id outside this set.
        self._registered_directories: frozenset[DirectoryId] = frozenset()
        # Rule 4: the registration that lacks the directories in the applied metadata, the one that the last registration
        # request was to amend, and the last one for which such a request was accepted.
        self._lacking: Offset | None = None
        self._asked_to_amend: Offset | None = None
        self._amended: Offset | None = None
        # Whether the last request was a registration, so that a heartbeat comes next.
        self._owes_heartbeat = False
        # Whether a request awaits its answer. Set by `_maybe_send`, cleared by every answer and by RequestFailed.
        self._in_flight = False
        # When the next request is due. None while a request is in flight, unless something urgent came up meanwhile; also
        # None before Start and in SHUTTING_DOWN.
        self._next_request_ns: int | None = None
        # Consecutive failed or refused requests, for the back-off. Reset by each error-free answer.
        self._request_failures = 0
        # When the broker halts if it is not registered by then. Set by Start, cleared by Registered.
        self._registration_deadline_ns: int | None = None
        # The error of the last registration request; None if it was not answered. Cleared by Registered.
        self._registration_error: int | None = None
        # When the controller last accepted a registration or a heartbeat. The session cannot end before the session timeout
        # has passed since then.
        self._accepted_ns = -1
        # When a controlled shutdown stops waiting for the controller. Set when the shutdown begins.
        self._shutdown_deadline_ns: int | None = None
        # Whether heartbeats may ask to be unfenced. Set by ReadyToUnfence, never cleared.
        self._ready_to_unfence = False
        # Whether the operator asked for a shutdown; never cleared. Every later heartbeat passes this on.
        self._shutdown_asked = False
        # Whether the last heartbeat sent asked to stay fenced. If ReadyToUnfence comes before that heartbeat's
        # answer, the next heartbeat follows the answer at once.
        self._sent_want_fence = True
        # Whether the cordons have changed since the last heartbeat was sent. The operator waits for that heartbeat, because
        # until then the controller goes on placing replicas on this broker.
        self._has_untold_cordons = False
        # Whether LastWords has come; never cleared. From then on every heartbeat asks the controller to fence this broker.
        self._has_last_words = False
        # Whether the last heartbeat sent already carried the last words; only its answer confirms them.
        self._sent_last_words = False
        # The time of the last step. All failure deadlines up to this time have been checked.
        self._last_step_ns = -1

    def next_deadline_ns(self) -> int | None:
        """Returns when to step with Tick; None if only another event can change anything."""
        candidates = [self._registration_deadline_ns, self._shutdown_deadline_ns]
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and self._request_failures:
            candidates.append(self._session_end_ns())
        if not self._in_flight:
            candidates.append(self._next_request_ns)
        if self.state not in (BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN):
            # Only future deadlines need a timer. Deadlines that have already passed are rechecked in every step, including
            # the steps triggered by new metadata, which may make this broker a leader in a failed directory.
            candidates.extend(f.deadline_ns for f in self._failures.values() if f.deadline_ns > self._last_step_ns)
        known = [candidate for candidate in candidates if candidate is not None]
        return min(known) if known else None

    def step(self, event: Event, now_ns: int) -> list[Effect]:
        """Handles one event and returns what to do, in order."""
        if self.state is BrokerState.SHUTTING_DOWN:
            return []
        self._last_step_ns = now_ns
        effects = self._take_in(event, now_ns)
        if not any(isinstance(effect, Halt | ShutDownNow) for effect in effects):
            effects.extend(self._check_deadlines(now_ns))
        if any(isinstance(effect, Halt | ShutDownNow) for effect in effects):
            self.state = BrokerState.SHUTTING_DOWN
            self._next_request_ns = self._registration_deadline_ns = self._shutdown_deadline_ns = None
            return [*effects, StateChanged(self.state)]
        effects.extend(self._maybe_send(now_ns))
        return effects

    def _take_in(self, event: Event, now_ns: int) -> list[Effect]:
        match event:
            case Start():
                self._registration_deadline_ns = now_ns + self._settings.registration_timeout_ns
                self._next_request_ns = now_ns
                return self._move_to(BrokerState.STARTING)
            case Registered():
                return self._handle_registered(event, now_ns)
            case RegistrationRefused(error_code):
                return self._handle_registration_refused(error_code, now_ns)
            case HeartbeatAnswered():
                return self._handle_heartbeat_answered(event, now_ns)
            case RequestFailed():
                self._in_flight = False
                self._registration_error = None
                self._retry_later(now_ns)
            case DirectoryFailed(directory_id):
                self._handle_directory_failed(directory_id, now_ns)
            case ReadyToUnfence():
                self._ready_to_unfence = True
                self._send_soon(now_ns)
            case ShutdownAsked():
                return self._handle_shutdown_asked(now_ns)
            case LastWords():
                return self._handle_last_words(now_ns)
            case MetadataApplied(lacking):
                self._handle_metadata_applied(lacking, now_ns)
            case CordonsChanged():
                self._has_untold_cordons = True
                self._send_soon(now_ns)
            case Tick():
                pass
        return []

    def _handle_metadata_applied(self, lacking: Offset | None, now_ns: int) -> None:
        is_news = lacking != self._lacking
        self._lacking = lacking
        if is_news and self._must_register_again():
            self._send_soon(now_ns)

    def _must_register_again(self) -> bool:
        return self._lacking is not None and self._lacking != self._amended

    def _handle_registered(self, event: Registered, now_ns: int) -> list[Effect]:
        self._in_flight = False
        self._amended = self._asked_to_amend
        self._accepted_ns = now_ns
        self._request_failures = 0
        self._registration_deadline_ns = None
        self._registration_error = None
        is_again = self.broker_epoch >= 0
        if is_again and event.broker_epoch != self.broker_epoch:
            return [Halt(self._no_longer_known())]
        self.broker_epoch = event.broker_epoch
        self._registered_directories = frozenset(event.directories)
        # The request names only online directories. Leaving out a failed directory reports its failure.
        left_out = tuple(each for each in self._failures if each not in self._registered_directories)
        for directory_id, failure in self._failures.items():
            if directory_id in self._registered_directories:
                failure.acknowledged = False
        self._next_request_ns = now_ns
        effects = self._acknowledge(left_out)
        return effects if is_again else []

    def _handle_registration_refused(self, error_code: int, now_ns: int) -> list[Effect]:
        self._in_flight = False
        if self.broker_epoch >= 0:
            # The metadata may have changed in between, and a later attempt may succeed.
            self._retry_later(now_ns)
            return []
        self._registration_error = error_code
        if error_code in FATAL_REGISTRATION_ERRORS:
            name = ErrorCode(error_code).name
            advice = REGISTRATION_ADVICE.get(name, "see the controller's log")
            return [Halt(f"the controller refuses this broker's registration: {name}; {advice}")]
        self._retry_later(now_ns)
        return []

    def _why_not_registered(self) -> str:
        seconds = f"{self._settings.registration_timeout_ns / 1e9:g} s (initial.broker.registration.timeout.ms)"
        if self._registration_error is None:
            return (
                f"no controller accepted this broker's registration within {seconds}; see that a controller of "
                "controller.quorum.voters is running"
            )
        name = error_name(self._registration_error)
        if self._registration_error == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            # By now the session of a process that has ended would have expired.
            return (
                f"another process is running with this node.id: the controller refused the registration for {seconds} with "
                f"{name}; stop that process, or give this broker a node.id of its own"
            )
        return f"the controller refused this broker's registration for {seconds} with {name}; see the controller's log"

    def _handle_heartbeat_answered(self, event: HeartbeatAnswered, now_ns: int) -> list[Effect]:
        self._in_flight = False
        if event.error_code == ErrorCode.STALE_BROKER_EPOCH:
            return [Halt(self._no_longer_known())]
        if event.error_code != ErrorCode.NONE:
            self._retry_later(now_ns)
            return []
        self._accepted_ns = now_ns
        self._request_failures = 0
        effects = self._acknowledge(event.offline_directories)
        self.is_fenced = event.is_fenced
        if self._has_last_words:
            self._next_request_ns = now_ns + (self._interval_ns() if self._sent_last_words else 0)
            return [*effects, LastWordsHeard()] if self._sent_last_words else effects
        if self.state is BrokerState.STARTING and event.is_caught_up:
            effects.extend(self._move_to(BrokerState.RECOVERY))
        if self.state is BrokerState.RECOVERY and not event.is_fenced:
            effects.extend(self._move_to(BrokerState.RUNNING))
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and event.should_shut_down:
            return [*effects, ShutDownNow()]
        unsent = any(not failure.acknowledged for failure in self._failures.values())
        is_ready = self._ready_to_unfence and event.is_fenced and self._sent_want_fence
        # The first attempt to amend a registration must not wait for the next regular heartbeat.
        is_lacking = self._must_register_again() and self._lacking != self._asked_to_amend
        urgent = unsent or is_ready or is_lacking or self._has_untold_cordons
        self._next_request_ns = now_ns if urgent else now_ns + self._interval_ns()
        return effects

    def _no_longer_known(self) -> str:
        return (
            f"the controller no longer knows broker epoch {self.broker_epoch}: it was unregistered, another process "
            "registered the same node.id, or the controller has lost its metadata log (docs/operations.md says what to do "
            "then); mend that before this broker is started again"
        )

    def _acknowledge(self, directory_ids: tuple[DirectoryId, ...]) -> list[Effect]:
        fresh = tuple(d for d in directory_ids if not self._failures[d].acknowledged)
        for directory_id in fresh:
            self._failures[directory_id].acknowledged = True
        return [FailuresAcknowledged(fresh)] if fresh else []

    def _interval_ns(self) -> int:
        if self.state is BrokerState.STARTING:
            return STARTING_POLL_NS
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            return SHUTDOWN_POLL_NS
        return self._settings.heartbeat_interval_ns

    def _handle_directory_failed(self, directory_id: DirectoryId, now_ns: int) -> None:
        if directory_id not in self._failures:
            self._failures[directory_id] = _Failure(now_ns + self._settings.log_dir_failure_timeout_ns)
            self._send_soon(now_ns)

    def _handle_shutdown_asked(self, now_ns: int) -> list[Effect]:
        if self._shutdown_asked:
            return []
        self._shutdown_asked = True
        if self.state is not BrokerState.RUNNING or not self._settings.controlled_shutdown_enable:
            # A broker that was never unfenced leads nothing, so there are no leaderships to move away. Without controlled
            # shutdown they move when its session times out.
            return [ShutDownNow()]
        self._shutdown_deadline_ns = now_ns + self._settings.controlled_shutdown_timeout_ns
        self._send_soon(now_ns)
        return self._move_to(BrokerState.PENDING_CONTROLLED_SHUTDOWN)

    def _handle_last_words(self, now_ns: int) -> list[Effect]:
        if self.broker_epoch < 0:
            return [LastWordsHeard()]
        self._has_last_words = True
        self._send_soon(now_ns)
        return []

    def _check_deadlines(self, now_ns: int) -> list[Effect]:
        if self._registration_deadline_ns is not None and now_ns >= self._registration_deadline_ns:
            return [Halt(self._why_not_registered())]
        if (reason := self._why_shutdown_fails(now_ns)) is not None:
            text = f"{reason}; the leaders of this broker move when its session has ended and a controller is active"
            return [ShutDownNow(text)]
        for directory_id, failure in self._failures.items():
            if now_ns < failure.deadline_ns:
                continue
            # A failed directory stays in the list for as long as the broker runs, and every change of the metadata comes
            # here. So `leads_in`, which looks at each partition that this broker leads, is asked last.
            is_settled = failure.acknowledged and not self._has_pending_assignment_into(directory_id)
            if not is_settled and self._leads_in(directory_id):
                return [Halt(self._failure_untold(directory_id))]
        return []

    def _why_shutdown_fails(self, now_ns: int) -> str | None:
        if self._shutdown_deadline_ns is None:
            return None
        # A session that seems to have ended although no request failed: this process was stopped, and has yet to ask.
        if self._request_failures and now_ns >= self._session_end_ns():
            seconds = self._settings.session_timeout_ns / 1e9
            return f"no controller has accepted a heartbeat for {seconds:g} s (broker.session.timeout.ms)"
        if now_ns >= self._shutdown_deadline_ns:
            seconds = self._settings.controlled_shutdown_timeout_ns / 1e9
            return f"the controller did not approve it within {seconds:g} s (diskraft.controlled.shutdown.timeout.ms)"
        return None

    def _session_end_ns(self) -> int:
        return self._accepted_ns + self._settings.session_timeout_ns

    def _failure_untold(self, directory_id: DirectoryId) -> str:
        seconds = self._settings.log_dir_failure_timeout_ns / 1e9
        return (
            f"this broker leads partitions in the failed directory {uuid_text(directory_id)} and could not tell the "
            f"controller within {seconds:g} s (log.dir.failure.timeout.ms)"
        )

    def _maybe_send(self, now_ns: int) -> list[Effect]:
        if self._in_flight or self._next_request_ns is None or now_ns < self._next_request_ns:
            return []
        self._in_flight = True
        self._next_request_ns = None
        if self._is_registration_next():
            self._owes_heartbeat = True
            self._asked_to_amend = self._lacking
            return [SendRegistration()]
        self._owes_heartbeat = self._has_untold_cordons = False
        self._sent_last_words = self._has_last_words
        self._sent_want_fence = self._has_last_words or not self._ready_to_unfence
        offline = tuple(d for d in self._failures if d in self._registered_directories)
        return [
            SendHeartbeat(
                broker_epoch=self.broker_epoch,
                want_fence=self._sent_want_fence,
                want_shut_down=self._shutdown_asked,
                offline_directories=offline,
            )
        ]

    def _is_registration_next(self) -> bool:
        if self.broker_epoch < 0:
            return True
        return self._must_register_again() and not self._owes_heartbeat and not self._has_last_words

    def _send_soon(self, now_ns: int) -> None:
        # Before the registration nothing is urgent: every attempt names the directories that are online when it is built,
        # and the first heartbeat follows the answer at once.
        if self.broker_epoch >= 0:
            self._next_request_ns = now_ns

    def _retry_later(self, now_ns: int) -> None:
        # The delay is capped at the heartbeat interval, because a longer pause would let the session expire. Registration
        # also needs short pauses: when a broker restarts after a kill, the controller refuses its registration until the old
        # session ends, and the broker should register soon after that.
        delay_ns = min(FIRST_RETRY_NS * 2 ** min(self._request_failures, 20), self._settings.heartbeat_interval_ns)
        self._request_failures += 1
        self._next_request_ns = now_ns + int(delay_ns * self._rng.uniform(1 - JITTER, 1 + JITTER))

    def _move_to(self, state: BrokerState) -> list[Effect]:
        self.state = state
        return [StateChanged(state)]
