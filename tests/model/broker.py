"""One broker of the model: its disks, and the production cores that decide what it does.

The shells that carry out the decisions are asyncio code with files and sockets, so this module takes their place. It
creates, closes and deletes logs at once, and hands requests to the caller. Time is abstract: what is due may happen at any
moment, and so may what is due later. No state depends on a clock.

A broker is never changed in place. The methods that stand for events return the next one and the requests that it sends.
"""

import copy
import errno
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import FunctionType, MethodType, NoneType
from typing import Any

from broker.controller_link.assignments import Assignments
from broker.core.directory_assignments import DirectoryAssignments
from broker.core.directory_reports import DirectoryReports
from broker.core.hosted_replicas import HostedReplicas
from broker.core.lifecycle import (
    BrokerLifecycle,
    BrokerState,
    DirectoryFailed,
    Effect,
    Halt,
    LifecycleSettings,
    MetadataApplied,
    ReadyToUnfence,
    SendHeartbeat,
    SendRegistration,
    Start,
    Tick,
)
from broker.core.lifecycle import Event as LifecycleEvent
from broker.core.reconcile import Action
from broker.core.unfence_gate import UnfenceGate
from common.environment.interface import LogDirError
from common.ids import BrokerEpoch, BrokerId, DirectoryId, TopicIdPartition, Uuid
from common.log_dirs.log_directories import HaltNode, LogDirectories, LogDirectory
from common.metadata.delta import MetadataDelta
from common.metadata.state import MetadataState
from tests.model.metadata import Log

NOW_NS = 1
LATER_NS = 2
FOREVER_NS = 10**18
NO_LOG = -1


class _Even(random.Random):
    """Draws the middle of every range: times are abstract."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


_RNG = _Even()
_SETTINGS = LifecycleSettings(
    heartbeat_interval_ns=LATER_NS,
    registration_timeout_ns=FOREVER_NS,
    log_dir_failure_timeout_ns=FOREVER_NS,
    session_timeout_ns=FOREVER_NS,
    controlled_shutdown_timeout_ns=FOREVER_NS,
)


@dataclass(frozen=True, slots=True)
class Disk:
    """One disk. Its logs survive the process: for each replica how many records it holds. `is_dead` says whether the disk
    fails every operation."""

    directory_id: DirectoryId
    logs: Mapping[TopicIdPartition, int] = field(default_factory=dict)
    is_dead: bool = False

    @property
    def key(self) -> tuple[Any, ...]:
        return self.directory_id, self.is_dead, tuple(sorted(self.logs.items()))


# --- requests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registration:
    incarnation: int
    directories: tuple[DirectoryId, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    sent: SendHeartbeat
    metadata_offset: int


@dataclass(frozen=True, slots=True)
class AssignmentBatch:
    broker_epoch: BrokerEpoch
    batch: tuple[tuple[DirectoryId, tuple[TopicIdPartition, ...]], ...]


Request = Registration | Heartbeat | AssignmentBatch


# --- the process -------------------------------------------------------------------------------------------------------


class _Sender:
    """Takes the place of AssignmentsSender and of its environment: what is to happen later happens at once."""

    def __init__(self, queue: DirectoryAssignments) -> None:
        self.queue = queue
        self.env = self

    def now_ns(self) -> int:
        return NOW_NS

    def call_at(self, _when_ns: int, callback: Callable[[], None]) -> None:
        callback()

    def wish(self, wishes: Mapping[TopicIdPartition, DirectoryId]) -> None:
        if wishes:
            self.queue.wish(wishes, NOW_NS)

    def settle(self, replicas: Any) -> None:
        self.queue.settle(replicas)


def _previous_directories(broker_id: BrokerId, log: Log) -> tuple[DirectoryId, ...] | None:
    """Returns what PreviousDirectories finds, which reads the log from its beginning."""
    found: dict[DirectoryId, None] = {}
    at: Log | None = log
    while at is not None and (registration := at.state.brokers.get(broker_id)) is not None:
        found |= dict.fromkeys((*registration.directories, *registration.lost_directories))
        if not registration.fenced:
            return tuple(sorted(found))
        at = at.parent
    return None


class Process:
    """One incarnation of a broker: the production cores, wired up as the daemon does it."""

    def __init__(self, broker_id: BrokerId, disks: tuple[Disk, ...], log: Log) -> None:
        self.broker_id = broker_id
        self.applied = log
        paths = [f"/disk-{number}" for number in range(len(disks))]
        found = [
            LogDirectory(path=path, directory_id=None, cause="dead")
            if disk.is_dead
            else LogDirectory(path=path, directory_id=disk.directory_id)
            for path, disk in zip(paths, disks, strict=True)
        ]
        metadata = LogDirectory(path="/metadata", directory_id=DirectoryId(Uuid(b"metadata-%07d." % broker_id)))
        self.directories = LogDirectories([*found, metadata], data_dirs=paths, metadata_dir="/metadata")
        # Where the logs are, of the online directories.
        self.hosted: dict[TopicIdPartition, DirectoryId] = {
            key: disk.directory_id for disk in disks if not disk.is_dead for key in disk.logs
        }
        self.reports = DirectoryReports()
        self.known = HostedReplicas(broker_id, log.state, self.directories, self.reports)
        self.known.previous_directories = _previous_directories(broker_id, log)
        self.queue = DirectoryAssignments(rng=_RNG, reports=self.reports)
        self.gate = UnfenceGate()
        self.has_opened = False
        self.assignments = Assignments(
            log.state,
            broker_id=broker_id,
            replicas=self,
            sender=_Sender(self.queue),  # type: ignore[arg-type]
            gate=self.gate,
            on_open=self._open,
        )
        self.lifecycle = BrokerLifecycle(
            _SETTINGS, rng=_RNG, leads_in=self.known.leads_in, has_pending_assignment_into=self.queue.has_pending_into
        )

    # --- what Assignments asks of the replicas ---

    def hosted_directories(self) -> Mapping[TopicIdPartition, DirectoryId]:
        return self.hosted

    def wished_assignments(self) -> Mapping[TopicIdPartition, DirectoryId]:
        return self.known.wishes

    def is_being_created(self, _key: TopicIdPartition) -> bool:
        return False

    def is_unplaceable(self, key: TopicIdPartition) -> bool:
        return self.known.is_unplaceable(key)

    def reported_copy(self, key: TopicIdPartition) -> DirectoryId | None:
        return self.known.reported_copy(key)

    def is_missing(self, key: TopicIdPartition) -> bool:
        return self.known.is_missing(key)

    def _open(self) -> None:
        self.has_opened = True


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker with its disks. `process` is None while it is not running. A process is shared by the states that have it, so
    it is copied before it changes."""

    broker_id: BrokerId
    disks: tuple[Disk, ...]
    incarnation: int
    process: Process | None
    key: tuple[Any, ...] = ()

    @staticmethod
    def new(broker_id: int, directories: int) -> "Broker":
        disks = tuple(
            Disk(DirectoryId(Uuid(f"broker-{broker_id}-disk-{number}".encode().ljust(16, b"."))))
            for number in range(directories)
        )
        return _sealed(Broker(BrokerId(broker_id), disks, 0, None))

    def version(self, key: TopicIdPartition) -> int:
        """Returns how many records the loaded log of the replica has; NO_LOG if there is none."""
        if self.process is None:
            return NO_LOG
        where = self.process.hosted.get(key)
        return next((disk.logs[key] for disk in self.disks if disk.directory_id == where), NO_LOG)

    def with_version(self, key: TopicIdPartition, version: int) -> "Broker":
        """Returns the broker after its log of the replica has been brought to this number of records."""
        assert self.process is not None
        where = self.process.hosted[key]
        disks = tuple(
            replace(disk, logs={**disk.logs, key: version}) if disk.directory_id == where else disk for disk in self.disks
        )
        return _sealed(replace(self, disks=disks))

    # --- events ------------------------------------------------------------------------------------------------------

    def started(self, log: Log, disks: tuple[Disk, ...]) -> tuple["Broker", list[Request]]:
        """Starts the next incarnation, which has caught up with the log before it loads its replicas, as the daemon does."""
        process = Process(self.broker_id, disks, log)
        running = _Running(replace(self, disks=disks, incarnation=self.incarnation + 1, process=process))
        running.apply(log.state.delta_since(MetadataState()))
        running.step(Start())
        return running.ended()

    def killed(self) -> "Broker":
        return _sealed(replace(self, process=None))

    def applies(self, log: Log) -> tuple["Broker", list[Request]]:
        running = _Running(self._copied())
        running.process.applied = log
        running.process.known._state = running.process.assignments._state = log.state
        running.apply(log.delta)
        running.step(MetadataApplied())
        return running.ended()

    def ticks(self) -> tuple["Broker", list[Request]]:
        """The next request of the lifecycle is due."""
        running = _Running(self._copied())
        running.step(Tick(), LATER_NS)
        return running.ended()

    def sends_assignments(self) -> tuple["Broker", list[Request]]:
        running = _Running(self._copied())
        process = running.process
        batch = process.queue.next_batch(FOREVER_NS)
        if batch:
            parts = tuple((directory, tuple(keys)) for directory, keys in batch.items())
            running.requests.append(AssignmentBatch(process.lifecycle.broker_epoch, parts))
        return running.ended()

    def fails_directory(self, number: int) -> tuple["Broker", list[Request]]:
        disks = tuple(replace(disk, is_dead=disk.is_dead or index == number) for index, disk in enumerate(self.disks))
        running = _Running(replace(self._copied(), disks=disks))
        running.fail_directory(number)
        return running.ended()

    def begins_move(self, key: TopicIdPartition, number: int) -> tuple["Broker", list[Request]]:
        """A client moves the replica to the disk with this number."""
        running = _Running(self._copied())
        running.process.known.movement.begin(key, self.disks[number].directory_id)
        return running.ended()

    def can_advance_copy(self, key: TopicIdPartition) -> bool:
        """Whether there is something to do for the copy of a moving replica once it has caught up."""
        assert self.process is not None
        known = self.process.known
        target = known.movement.target(key)
        if target is None:
            return False
        return known.may_swap(key) or (known.movement.reported(key) is None and known.assigned(key) != target)

    def advances_copy(self, key: TopicIdPartition) -> tuple["Broker", list[Request]]:
        """The copy has caught up: the broker reports its directory, or the copy becomes the current log."""
        running = _Running(self._copied())
        running.advance_copy(key)
        return running.ended()

    def hears(self, event: LifecycleEvent) -> tuple["Broker", list[Request]]:
        """The answer to a registration or a heartbeat, or the news that there is none."""
        running = _Running(self._copied())
        running.step(event)
        return running.ended()

    def hears_assigned(
        self, codes: Mapping[tuple[DirectoryId, TopicIdPartition], int] | None
    ) -> tuple["Broker", list[Request]]:
        """The answer to assignments; None if they failed as a whole."""
        running = _Running(self._copied())
        if codes is None:
            running.process.queue.handle_failure(NOW_NS)
        else:
            for key in running.process.queue.handle_answer(codes, NOW_NS).final:
                running.reconcile(key)
        return running.ended()

    def _copied(self) -> "Broker":
        return replace(self, process=_copy(self.process, {}))


# What is never changed in place, so that the copies of a process share it.
_PLAIN = (int, str, bytes, tuple, frozenset, NoneType, FunctionType, Enum)
_SHARED = (*_PLAIN, random.Random, LifecycleSettings, LogDirectories, Log, MetadataState)


def _copy(value: Any, copies: dict[int, Any]) -> Any:
    """Does what `copy.deepcopy` does, in a third of the time: it knows what is shared, and only the types that there are."""
    if isinstance(value, _SHARED):
        return value
    if id(value) in copies:
        return copies[id(value)]
    if isinstance(value, MethodType):
        return MethodType(value.__func__, _copy(value.__self__, copies))
    if type(value) is dict:
        return copies.setdefault(id(value), {key: _copy(each, copies) for key, each in value.items()})
    if type(value) in (list, set):
        return copies.setdefault(id(value), type(value)(_copy(each, copies) for each in value))
    made = copies[id(value)] = object.__new__(type(value))
    for name in getattr(value, "__slots__", None) or vars(value):
        object.__setattr__(made, name, _copy(getattr(value, name), copies))
    return made


class _Running:
    """A broker whose process is being changed by one event."""

    def __init__(self, broker: Broker) -> None:
        assert broker.process is not None
        self.broker = broker
        self.process = broker.process
        self.logs: list[dict[TopicIdPartition, int]] = [dict(disk.logs) for disk in broker.disks]
        self.requests: list[Request] = []
        self.has_halted = False

    def apply(self, delta: MetadataDelta) -> None:
        process = self.process
        epoch = process.lifecycle.broker_epoch
        process.known.metadata_changed(delta, broker_epoch=epoch if epoch >= 0 else None, hosted=process.hosted)
        for key in delta.changed_partitions:
            self.reconcile(key)
        process.assignments.published(delta.changed_partitions.keys())
        self.look_at_gate()

    def look_at_gate(self) -> None:
        """Fixes the gate at the first image that has the registration, and passes on that it has opened."""
        process = self.process
        registration = process.applied.state.brokers.get(process.broker_id)
        is_known = registration is not None and registration.epoch == process.lifecycle.broker_epoch
        if is_known and not process.gate.is_fixed:
            process.assignments.fix_gate()
        if process.has_opened:
            process.has_opened = False
            self.step(ReadyToUnfence())

    def reconcile(self, key: TopicIdPartition) -> None:
        """Counterpart of `Reconciliation.reconcile`, with disks that create and delete at once."""
        process = self.process
        decision = process.known.decide(key, process.hosted.get(key))
        if decision.action is Action.CREATE:
            directory_id = decision.directory or self._roomiest()
            process.known.note_wish(key, None)
            self.logs[self._number(directory_id)][key] = 0
            process.hosted[key] = directory_id
            process.known.log_created(key)
            self.reconcile(key)
            return
        if decision.action is Action.DELETE:
            del self.logs[self._number(process.hosted.pop(key))][key]
        if process.known.note_wish(key, decision.wish):
            process.assignments.wishes_changed()

    def _roomiest(self) -> DirectoryId:
        return min(self.process.directories.online, key=lambda each: len(self.logs[self._number(each)]))

    def _number(self, directory_id: DirectoryId) -> int:
        return next(number for number, disk in enumerate(self.broker.disks) if disk.directory_id == directory_id)

    def fail_directory(self, number: int) -> None:
        process = self.process
        process.directories = copy.deepcopy(process.directories)
        process.known._directories = process.directories
        error = LogDirError(f"/disk-{number}", "append", errno.EIO)
        if any(isinstance(effect, HaltNode) for effect in process.directories.step(error)):
            self.has_halted = True
            return
        directory_id = self.broker.disks[number].directory_id
        gone = [key for key, where in process.hosted.items() if where == directory_id]
        for key in list(process.hosted):
            if process.known.movement.target(key) == directory_id or key in gone:
                process.known.movement.end(key)
                self.reconcile(key)
        for key in gone:
            del process.hosted[key]
            process.known.log_went_offline(key, directory_id)
        self.step(DirectoryFailed(directory_id))
        for key in gone:
            self.reconcile(key)
        self.look_at_gate()

    def advance_copy(self, key: TopicIdPartition) -> None:
        """Counterpart of `Moves`, which copies and swaps."""
        known, hosted = self.process.known, self.process.hosted
        if not known.copy_caught_up(key):
            target = known.movement.target(key)
            assert target is not None
            self.logs[self._number(target)][key] = self.logs[self._number(hosted[key])].pop(key)
            hosted[key] = target
            known.movement.end(key)
        self.reconcile(key)

    def step(self, event: LifecycleEvent, now_ns: int = NOW_NS) -> None:
        for effect in self.process.lifecycle.step(event, now_ns):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendRegistration():
                self.requests.append(Registration(self.broker.incarnation, tuple(self.process.directories.online)))
            case SendHeartbeat():
                self.requests.append(Heartbeat(effect, self.process.applied.end_offset - 1))
            case Halt():
                self.has_halted = True
            case _:
                pass

    def ended(self) -> tuple[Broker, list[Request]]:
        disks = tuple(replace(disk, logs=logs) for disk, logs in zip(self.broker.disks, self.logs, strict=True))
        broker = replace(self.broker, disks=disks)
        if self.has_halted:
            return _sealed(replace(broker, process=None)), []
        self.look_at_gate()
        _forget_times(self.process)
        return _sealed(broker), self.requests


def _forget_times(process: Process) -> None:
    lifecycle, queue = process.lifecycle, process.queue
    if lifecycle._next_request_ns is not None:
        lifecycle._next_request_ns = NOW_NS if lifecycle._next_request_ns <= NOW_NS else LATER_NS
    lifecycle._last_step_ns = NOW_NS
    lifecycle._request_failures = 0
    queue._request_failures = queue._retry_not_before_ns = 0
    for wishes in (queue._ready, queue._in_flight):
        for wish in wishes.values():
            wish.not_before_ns = wish.failures = 0


def _sealed(broker: Broker) -> Broker:
    """Returns the broker with the key that says everything about it."""
    process = broker.process
    key: tuple[Any, ...] = (broker.broker_id, broker.incarnation, tuple(disk.key for disk in broker.disks))
    if process is not None:
        key += (process.applied.number, *_key_of(process))
    return replace(broker, key=key)


def _key_of(process: Process) -> tuple[Any, ...]:
    lifecycle, queue, known, gate = process.lifecycle, process.queue, process.known, process.gate
    return (
        tuple(process.directories.online),
        tuple(sorted(process.hosted.items())),
        (
            lifecycle.state.value,
            lifecycle.broker_epoch,
            lifecycle.is_fenced,
            lifecycle._in_flight,
            lifecycle._next_request_ns,
            lifecycle._ready_to_unfence,
            lifecycle._sent_want_fence,
            lifecycle._registered_directories,
            tuple((each, failure.acknowledged) for each, failure in lifecycle._failures.items()),
        ),
        tuple(
            tuple(sorted((key, wish.directory_id, wish.is_settled, wish.is_wished_again) for key, wish in wishes.items()))
            for wishes in (queue._ready, queue._in_flight)
        ),
        tuple(
            sorted((key, each.directory_id, each.is_answered, each.is_only) for key, each in process.reports._latest.items())
        ),
        tuple(sorted(known._wishes.items())),
        tuple(sorted(known._went_offline_in.items())),
        tuple(sorted(known._newer)),
        tuple((key, move.target, move.state.value) for key, move in sorted(known.movement._moves.items())),
        known._registered_at,
        tuple(known.previous_directories or ()),
        None if gate._waiting is None else tuple(sorted(gate._waiting)),
        process.assignments._was_open,
        tuple(sorted(process.assignments._known.items())),
    )


def heartbeat_matters(broker: Broker, log: Log) -> bool:
    """Whether the next heartbeat can change anything. One of an unfenced broker without failures only renews its session."""
    process = broker.process
    if process is None:
        return False
    registration = log.state.brokers.get(broker.broker_id)
    return (
        process.lifecycle.state is not BrokerState.RUNNING
        or bool(process.lifecycle._failures)
        or registration is None
        or registration.fenced
    )
