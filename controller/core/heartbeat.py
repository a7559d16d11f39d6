"""Handles a broker's heartbeat: its session, its failed directories, its fencing (core).

Counterpart of processBrokerHeartbeat in Kafka's ReplicationControlManager, in a different order: failed directories are
handled first, so that the fencing decision and its elections see them as lost. Otherwise a heartbeat that unfences the
broker and reports a failed directory could elect a leader on that directory, and nothing would move the leadership away
later. The records, in order:

1. changes of partitions that lose this broker (ISR, leadership),
2. its registration change,
3. elections that need the broker unfenced. Each partition is changed at most once.

Brokers repeat what they report and ask for. If the last look at the partitions found nothing to change, they are not looked
at again before something changes (`MetadataState.election_changes`): a repeated heartbeat costs by its directories, not by
the partitions in them.

While a long operation is under way, a heartbeat that asks for nothing new is answered without an operation
(`answer_between_slices`), so that no broker is fenced because another broker lost many replicas.

A broker that asks to be unfenced stays fenced while its directory assignments are not known (`unfencing`). If it is unfenced
without them, what is left becomes LOST before its registration changes.

A heartbeat with a directory id that the broker never registered gets LOG_DIR_NOT_FOUND. It still renews the session, and the
known failures in it are still recorded, but it does not unfence the broker.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from common.ids import BrokerId, DirectoryId, Offset, TopicIdPartition
from common.metadata import metadata_version
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.records.metadata_frame import ApiMessageAndVersion
from controller.core.assign_replicas_to_dirs import generate_lost_records
from controller.core.broker_epochs import registration_of
from controller.core.broker_sessions import BrokerSessions
from controller.core.broker_state import (
    BrokerControlState,
    BrokerWish,
    calculate_next_broker_state,
    current_broker_state,
)
from controller.core.directory_failure import DirectoryFailure, directory_failure_events, handle_directory_failure
from controller.core.eligibility import Eligibility
from controller.core.fencing import generate_removal_records
from controller.core.leaderless import generate_elections_on_broker
from controller.core.long_decisions import Sliced
from controller.core.partition_change import PartitionChanges
from controller.core.registration_change import registration_change
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn
from controller.core.unfencing import Unfencing


@dataclass(frozen=True, slots=True)
class ReportedDirectories:
    """The directories that a heartbeat reports as offline, classified by the broker's registration. They have no duplicates
    and are in the order sent."""

    # Reported ids that this incarnation registered, even if they were reported before. The partitions in them are repaired
    # again, see `directory_failure`.
    known: tuple[DirectoryId, ...]
    # The subset of `known` that was registered as online until this heartbeat.
    news: tuple[DirectoryId, ...]
    # Reported ids that this incarnation never registered. Invariant: disjoint from `known`.
    unknown: tuple[DirectoryId, ...]
    # The registered directories that stay online, in registration order; empty if the last one is lost. Invariant: `news`
    # and `remaining` together are exactly the directories registered as online.
    remaining: tuple[DirectoryId, ...]

    @property
    def is_last_lost(self) -> bool:
        return bool(self.news) and not self.remaining


def sort_out_reported_directories(
    state: MetadataState, registration: BrokerRegistration, reported: Sequence[DirectoryId]
) -> ReportedDirectories:
    """Classifies the reported ids. All of them are ignored if metadata.version is below 17 or the registration has no
    directories."""
    online = registration.directories
    if not metadata_version.is_directory_assignment_supported(state.metadata_version) or not online:
        return ReportedDirectories((), (), (), online)
    # Use sets and dicts, because the sender decides how long these lists are and searching a long list is slow.
    registered = {*online}
    ever_registered = {*online, *registration.lost_directories}
    unique = dict.fromkeys(reported)
    return ReportedDirectories(
        known=tuple(directory for directory in unique if directory in ever_registered),
        news=tuple(directory for directory in unique if directory in registered),
        unknown=tuple(directory for directory in unique if directory not in ever_registered),
        remaining=tuple(directory for directory in online if directory not in unique),
    )


def handle_broker_heartbeat(
    turn: Turn, request: BrokerHeartbeatRequest
) -> Sliced[ControllerResult[BrokerHeartbeatResponse]]:
    """Handles one heartbeat. Raises ApiError(STALE_BROKER_EPOCH) if the broker is not registered with this epoch."""
    state = turn.state
    registration = registration_of(state, request.broker_id, request.broker_epoch)
    broker_id = registration.broker_id
    turn.sessions.touch(broker_id, Offset(request.current_metadata_offset), turn.now_ns)
    reported = sort_out_reported_directories(state, registration, [DirectoryId(each) for each in request.offline_log_dirs])
    wish = _wish(turn, registration, reported, request)
    following = calculate_next_broker_state(current_broker_state(registration), wish)
    question = _ask(turn, registration, following)
    if question.answer is Unfencing.REFUSED:
        following = BrokerControlState.FENCED
    after = replace(
        registration,
        fenced=following.is_fenced,
        in_controlled_shutdown=registration.in_controlled_shutdown or following is BrokerControlState.CONTROLLED_SHUTDOWN,
        directories=reported.remaining or registration.directories,
        lost_directories=tuple(sorted({*registration.lost_directories, *reported.news})),
        cordoned_directories=_cordoned(state, registration, request),
    )
    changes = PartitionChanges(state, turn.settings, Eligibility(state, subject=broker_id, after=after))
    unsettled = _Unsettled(turn, registration, after)
    failures = yield from unsettled.failures(changes, reported.known)
    handled = {partition for failure in failures for partition in failure.partitions}
    records = [record for failure in failures for record in failure.records]
    records += yield from generate_lost_records(state, changes, broker_id, question.given_up)
    records += yield from _records(state, changes, registration, after, handled.union(question.given_up), unsettled)
    _follow_shutdown(turn, broker_id, following, records)
    response = BrokerHeartbeatResponse(
        error_code=ErrorCode.LOG_DIR_NOT_FOUND if reported.unknown else ErrorCode.NONE,
        is_caught_up=wish.is_caught_up,
        is_fenced=following.is_fenced,
        should_shut_down=following is BrokerControlState.SHUTDOWN_NOW,
    )
    events = _events(registration, after, reported, failures, question)
    return ControllerResult(records, response, events=events)


def _cordoned(
    state: MetadataState, registration: BrokerRegistration, request: BrokerHeartbeatRequest
) -> tuple[DirectoryId, ...] | None:
    """Returns the cordoned directories after this heartbeat. Ids that this incarnation never registered are left out: the
    sender decides how many there are, and no replica can be in them."""
    if request.cordoned_log_dirs is None or not metadata_version.is_cordoning_supported(state.metadata_version):
        return registration.cordoned_directories
    registered = {*registration.directories, *registration.lost_directories}
    return tuple(sorted(registered.intersection(map(DirectoryId, request.cordoned_log_dirs))))


def answer_between_slices(
    turn: Turn, brokers: Mapping[BrokerId, BrokerRegistration], request: BrokerHeartbeatRequest
) -> BrokerHeartbeatResponse | None:
    """Answers a heartbeat while another operation is under way; None if the heartbeat has to wait for its turn.

    `brokers` are the registrations before that operation, which must be committed. The answer changes no more than the
    session: the broker is active and caught up, asks for nothing, reports no directory that is not recorded as lost, and
    changes no cordon.
    """
    registration = brokers.get(BrokerId(request.broker_id))
    if (
        registration is None
        or registration.epoch != request.broker_epoch
        or registration is not turn.state.brokers.get(registration.broker_id)
        or registration.fenced
        or registration.in_controlled_shutdown
        or request.want_fence
        or request.want_shut_down
        or not {*request.offline_log_dirs}.issubset(registration.lost_directories)
        or _cordoned(turn.state, registration, request) != registration.cordoned_directories
        or request.current_metadata_offset < turn.state.registration_offsets[registration.broker_id]
        # The operation under way may be the one that fences the broker because its session has expired.
        or not turn.sessions.is_valid(registration.broker_id, turn.now_ns)
    ):
        return None
    turn.sessions.touch(registration.broker_id, Offset(request.current_metadata_offset), turn.now_ns)
    return BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)


class _Unsettled:
    """Looks at the partitions that a heartbeat may change, unless the last look found nothing and nothing changed since."""

    def __init__(self, turn: Turn, registration: BrokerRegistration, after: BrokerRegistration) -> None:
        self._state = turn.state
        self._sessions = turn.sessions
        self._broker_id = registration.broker_id
        # A change of the registration decides again who may lead.
        self._may_be_settled = after == registration
        # The state does not count the changes of a fenced broker's partitions (`MetadataState.election_changes`) unless they
        # are in a lost directory.
        self._may_removal_be_settled = self._may_be_settled and not after.fenced

    def failures(self, changes: PartitionChanges, directories: Sequence[DirectoryId]) -> Sliced[list[DirectoryFailure]]:
        """Handles those of these lost directories that are not settled."""
        failures: list[DirectoryFailure] = []
        for directory in directories:
            if not self._is_settled(directory):
                failure = yield from handle_directory_failure(self._state, changes, self._broker_id, directory)
                failures.append(failure)
                self._note(directory, failure.records)
        return failures

    def removals(
        self, changes: PartitionChanges, handled: Container[TopicIdPartition]
    ) -> Sliced[list[ApiMessageAndVersion]]:
        """Takes the broker out of all partitions that are not `handled` otherwise."""
        if self._may_removal_be_settled and self._is_settled(None):
            return []
        records = yield from generate_removal_records(self._state, changes, self._broker_id, except_for=handled)
        if self._may_removal_be_settled:
            self._note(None, records)
        return records

    def _is_settled(self, what: DirectoryId | None) -> bool:
        return self._may_be_settled and self._sessions.is_settled(self._broker_id, what, self._state.election_changes)

    def _note(self, what: DirectoryId | None, records: Sequence[ApiMessageAndVersion]) -> None:
        if self._may_be_settled and not records:
            self._sessions.note_settled(self._broker_id, what, self._state.election_changes)


@dataclass(frozen=True, slots=True)
class _Question:
    """What came of the broker's wish to be unfenced, if it has one. `awaited` replicas keep it fenced, or become LOST."""

    answer: Unfencing
    awaited: int = 0
    # Whether the broker is refused for the first time since the last progress.
    is_news: bool = False
    given_up: Sequence[TopicIdPartition] = ()


def _ask(turn: Turn, registration: BrokerRegistration, following: BrokerControlState) -> _Question:
    broker_id = registration.broker_id
    if not registration.fenced or following.is_fenced:
        return _Question(Unfencing.ALLOWED)
    count, is_news = turn.awaited.count(broker_id), turn.awaited.is_first_question(broker_id)
    answer = turn.awaited.ask(broker_id, turn.now_ns, silence_max_ns=turn.settings.session_timeout_ns)
    given_up = turn.awaited.of_broker(broker_id) if answer is Unfencing.WITH_LOSSES else ()
    return _Question(answer, count, is_news, given_up)


def _wish(
    turn: Turn,
    registration: BrokerRegistration,
    reported: ReportedDirectories,
    request: BrokerHeartbeatRequest,
) -> BrokerWish:
    state = turn.state
    is_leaving = request.want_shut_down or registration.in_controlled_shutdown
    return BrokerWish(
        wants_fence=request.want_fence,
        wants_shut_down=request.want_shut_down,
        is_caught_up=request.current_metadata_offset >= state.registration_offsets[registration.broker_id],
        leads_partitions=is_leaving and _leads_outside(state, registration.broker_id, reported.known),
        is_shutdown_seen=is_leaving and _is_shutdown_seen(state, turn.sessions, registration.broker_id),
        may_not_be_unfenced=bool(reported.unknown),
        has_lost_everything=reported.is_last_lost,
    )


def _leads_outside(state: MetadataState, broker_id: BrokerId, failed: Sequence[DirectoryId]) -> bool:
    if not failed:
        return state.leads_any(broker_id)
    return any(
        state.topics[topic_id].partitions[index].directory(broker_id) not in failed
        for topic_id, index in state.partitions_led_by(broker_id)
    )


def _is_shutdown_seen(state: MetadataState, sessions: BrokerSessions, broker_id: BrokerId) -> bool:
    moved_at = sessions.controlled_shutdown_offset(broker_id)
    if moved_at is None:
        return False
    return all(
        sessions.metadata_offset(other) >= moved_at
        for other, registration in state.brokers.items()
        if other != broker_id and not registration.fenced and not registration.in_controlled_shutdown
    )


def _records(
    state: MetadataState,
    changes: PartitionChanges,
    registration: BrokerRegistration,
    after: BrokerRegistration,
    handled: Container[TopicIdPartition],
    unsettled: "_Unsettled",
) -> Sliced[list[ApiMessageAndVersion]]:
    """Returns what follows on the changes of the `handled` partitions."""
    records: list[ApiMessageAndVersion] = []
    if after.in_controlled_shutdown or (after.fenced and not registration.fenced):
        # The removal is repeated during a controlled shutdown, because the broker may have gained leaderships meanwhile.
        records += yield from unsettled.removals(changes, handled)
    change = registration_change(state.metadata_version, registration, after)
    if change is not None:
        records.append(change)
    if registration.fenced and not after.fenced:
        records += yield from generate_elections_on_broker(state, changes, registration.broker_id, except_for=handled)
    return records


def _follow_shutdown(
    turn: Turn, broker_id: BrokerId, following: BrokerControlState, records: Sequence[ApiMessageAndVersion]
) -> None:
    sessions = turn.sessions
    if following is not BrokerControlState.CONTROLLED_SHUTDOWN:
        sessions.set_controlled_shutdown_offset(broker_id, None)
    elif records or sessions.controlled_shutdown_offset(broker_id) is None:
        sessions.set_controlled_shutdown_offset(broker_id, Offset(turn.next_write_offset + len(records) - 1))


def _events(
    registration: BrokerRegistration,
    after: BrokerRegistration,
    reported: ReportedDirectories,
    failures: Sequence[DirectoryFailure],
    question: _Question,
) -> list[ControllerEvent]:
    broker = {"broker_id": registration.broker_id, "broker_epoch": registration.epoch}
    events: list[ControllerEvent] = []
    news = {*reported.news}
    for failure in failures:
        is_news = failure.directory_id in news and not (registration.fenced and reported.is_last_lost)
        events += directory_failure_events(registration.broker_id, failure, is_news=is_news)
    if reported.unknown:
        # Log one line, not one per id, because the sender decides how long the list is.
        unknown = {"directory_id": reported.unknown[0], "count": len(reported.unknown)}
        events.append(ControllerEvent("unknown_log_dir_reported", broker | unknown, is_about_commit=False))
    if after.in_controlled_shutdown and not registration.in_controlled_shutdown:
        events.append(ControllerEvent("broker_controlled_shutdown", broker))
    if question.answer is Unfencing.REFUSED and question.is_news:
        events.append(
            ControllerEvent("broker_kept_fenced", broker | {"partitions": question.awaited}, is_about_commit=False)
        )
    if question.given_up:
        events.append(ControllerEvent("awaited_replicas_lost", broker | {"partitions": question.awaited}))
    if registration.fenced and not after.fenced:
        events.append(ControllerEvent("broker_unfenced", broker))
    if after.fenced and not registration.fenced:
        reason = "every log directory is lost" if reported.is_last_lost else "the broker asked for it"
        events.append(ControllerEvent("broker_fenced", broker | {"reason": reason}))
    return events
