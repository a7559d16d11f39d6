"""Registers a broker's incarnation with its endpoints, features and directories (core).

Counterpart of registerBroker in Kafka's ClusterControlManager, with the rules of docs/DESIGN.md, "Registration and fencing".

1. A new incarnation gets a new epoch and starts fenced. The same batch first takes its predecessor out of every leadership,
   and out of every ISR that has another member, exactly as fencing would.
2. The same incarnation keeps its epoch, its fencing, its controlled shutdown and its cordons. It can only lose directories:
   a directory that the new request leaves out counts as a reported failure, and none is added: a directory that was lost
   before stays lost. Only a registration that named none, below metadata.version 17, may be followed by one with
   directories. That one leaves out every other directory to which a replica is assigned by now.
3. The epoch is the offset of the first record of the batch, so it is unique and always rises. But a broker is caught up only
   once it has applied its registration record, which may come later in the batch.
4. A broker that still runs in ZooKeeper mode registers as a migrating one, with its directories, if the controller allows it
   (`zookeeper.metadata.migration.enable`). Until the metadata has been copied from ZooKeeper, no other broker may register.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from common.ids import BrokerEpoch, BrokerId, DirectoryId, IncarnationId, uuid_text
from common.metadata import metadata_version
from common.metadata.directory_ids import is_reserved
from common.metadata.metadata_version import METADATA_VERSION_FEATURE, MINIMUM_LEVEL, SupportedLevels
from common.metadata.registrations import BrokerRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord, ZkMigrationState
from controller.core.broker_sessions import BrokerSessions
from controller.core.directory_failure import DirectoryFailure, directory_failure_events, handle_directory_failure
from controller.core.eligibility import Eligibility
from controller.core.fencing import generate_removal_records
from controller.core.long_decisions import Sliced
from controller.core.partition_change import PartitionChanges
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn

# The largest registration accepted. A registration is a single record, so it must fit into one batch of the metadata log,
# with room to spare.
REGISTRATION_BYTES_MAX = 1024 * 1024


def handle_broker_registration(
    turn: Turn, request: BrokerRegistrationRequest
) -> Sliced[ControllerResult[BrokerRegistrationResponse]]:
    """Registers the broker. Raises ApiError, without writing anything, if the registration is refused."""
    state = turn.state
    # Partition records use negative ids for "no leader" and "leader unchanged", so a broker id must not be negative.
    if request.broker_id < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{request.broker_id} is no broker id")
    previous = state.brokers.get(BrokerId(request.broker_id))
    is_same_incarnation = previous is not None and previous.incarnation_id == request.incarnation_id
    if request.cluster_id != turn.settings.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"this is cluster {turn.settings.cluster_id}, the broker belongs to {request.cluster_id}",
        )
    if previous is not None and not is_same_incarnation:
        _validate_predecessor_is_gone(previous, turn.sessions, turn.now_ns)
    _validate_migration(turn, request)
    _validate_size(request)
    directories = _validated_directories(state, request)
    _validate_features(state, request)
    if previous is not None and is_same_incarnation:
        return (yield from _register_again(turn, request, previous, directories))
    return (yield from _register_new_incarnation(turn, request, previous, directories))


# --- checks -----------------------------------------------------------------------------------------------------


def _validate_predecessor_is_gone(previous: BrokerRegistration, sessions: BrokerSessions, now_ns: int) -> None:
    # A fenced predecessor never blocks a new incarnation. An unfenced predecessor blocks the new incarnation until its own
    # session expires.
    if not previous.fenced and sessions.is_valid(previous.broker_id, now_ns):
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {previous.broker_id} is running as another incarnation, {uuid_text(previous.incarnation_id)}",
        )


def _validate_migration(turn: Turn, request: BrokerRegistrationRequest) -> None:
    state = turn.state
    reason = ""
    if not request.is_migrating_zk_broker:
        if state.zk_migration_state is ZkMigrationState.PRE_MIGRATION:
            reason = (
                "the metadata is still in ZooKeeper; until it has been migrated only brokers of that cluster may register"
            )
    elif not turn.settings.is_zk_migration_enabled:
        reason = "brokers in ZooKeeper mode need zookeeper.metadata.migration.enable=true on every controller"
    elif state.metadata_version < metadata_version.ZK_MIGRATION_LEVEL:
        reason = (
            f"brokers in ZooKeeper mode need metadata.version 3.4-IV0, this cluster has "
            f"{metadata_version.level_name(state.metadata_version)}"
        )
    if reason:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, reason)


def _validate_size(request: BrokerRegistrationRequest) -> None:
    size = 16 * len(request.log_dirs) + 4 * len(request.rack or "")
    size += sum(16 + 4 * (len(listener.name) + len(listener.host)) for listener in request.listeners)
    size += sum(16 + 4 * len(feature.name) for feature in request.features)
    if size > REGISTRATION_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, f"the registration is larger than {REGISTRATION_BYTES_MAX} bytes")


def _validated_directories(state: MetadataState, request: BrokerRegistrationRequest) -> tuple[DirectoryId, ...]:
    sent = [DirectoryId(each) for each in request.log_dirs]
    if not metadata_version.is_directory_assignment_supported(state.metadata_version):
        if len(sent) > 1:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{len(sent)} log directories need metadata.version 3.7-IV2, this cluster has "
                f"{metadata_version.level_name(state.metadata_version)}",
            )
        return ()
    if not sent:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the registration names no log directory")
    for directory_id in sent:
        if is_reserved(directory_id):
            raise ApiError(ErrorCode.INVALID_REGISTRATION, f"directory id {uuid_text(directory_id)} is reserved")
    if len(set(sent)) != len(sent):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "the registration names a directory id twice")
    owners = state.directory_owners()
    for directory_id in sent:
        owner = owners.get(directory_id)
        if owner is not None and owner != request.broker_id:
            raise ApiError(
                ErrorCode.INVALID_REGISTRATION, f"directory id {uuid_text(directory_id)} belongs to broker {owner}"
            )
    return tuple(sorted(sent))


def _validate_features(state: MetadataState, request: BrokerRegistrationRequest) -> None:
    supported = {
        feature.name: SupportedLevels(feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    supported.setdefault(METADATA_VERSION_FEATURE, SupportedLevels(MINIMUM_LEVEL, MINIMUM_LEVEL))
    # A feature that the cluster has not finalized is at level 0, and the broker must support that level too.
    finalized = dict.fromkeys(supported, 0) | {METADATA_VERSION_FEATURE: state.metadata_version} | state.features
    for name, level in sorted(finalized.items()):
        levels = supported.get(name, SupportedLevels(0, 0))
        if level not in levels:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"feature {name} is finalized at level {level}, the broker supports {levels}",
            )


# --- records ----------------------------------------------------------------------------------------------------


def _register_new_incarnation(
    turn: Turn,
    request: BrokerRegistrationRequest,
    previous: BrokerRegistration | None,
    directories: tuple[DirectoryId, ...],
) -> Sliced[ControllerResult[BrokerRegistrationResponse]]:
    state = turn.state
    epoch = BrokerEpoch(turn.next_write_offset)
    broker_id = BrokerId(request.broker_id)
    records: list[ApiMessageAndVersion] = []
    is_clean = previous is None or request.previous_broker_epoch == previous.epoch
    if previous is not None:
        # The removal is needed if the predecessor stopped uncleanly or was never fenced. After a clean shutdown the
        # predecessor is in no ISR that has another member, and no records are generated.
        eligibility = Eligibility(state, subject=broker_id, after=replace(previous, fenced=True))
        changes = PartitionChanges(state, turn.settings, eligibility)
        records = yield from generate_removal_records(state, changes, broker_id)
    # Only now: until here, the predecessor may have been answered between two slices.
    turn.sessions.remove(broker_id)
    terms = _Terms(epoch, fenced=True, in_controlled_shutdown=False, directories=directories)
    records.append(_register_broker_record(state, request, terms))
    event = ControllerEvent(
        "broker_registered",
        {
            "broker_id": broker_id,
            "broker_epoch": epoch,
            "incarnation_id": request.incarnation_id,
            "is_clean_restart": is_clean,
            "directories": [uuid_text(each) for each in directories],
            "partitions_left": len(records) - 1,
        },
    )
    return ControllerResult(records, BrokerRegistrationResponse(broker_epoch=epoch), events=[event])


def _register_again(
    turn: Turn,
    request: BrokerRegistrationRequest,
    previous: BrokerRegistration,
    sent: tuple[DirectoryId, ...],
) -> Sliced[ControllerResult[BrokerRegistrationResponse]]:
    state = turn.state
    lost = {*previous.lost_directories}
    # A request that was sent before a directory failed may come after the one that leaves the directory out. The broker
    # names no directory as failed that its registration left out, so this one must not bring it in.
    is_first = not (lost or previous.directories)
    registered = {*previous.directories}
    recorded = tuple(each for each in sent if is_first or each in registered)
    if sent and not recorded:
        # Do not record an empty list. It would mean "a broker without registered directories", for which every directory
        # counts as online.
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "this incarnation has lost every directory that it names")
    kept = {*recorded}
    # Without registered directories, each one to which a replica is assigned has counted as online until now.
    online = state.assigned_directories(previous.broker_id) if is_first else previous.directories
    left_out = tuple(each for each in online if each not in kept and not is_reserved(each))
    after = replace(
        previous,
        directories=recorded,
        lost_directories=tuple(sorted({*lost, *previous.directories} - kept)),
    )
    failures: list[DirectoryFailure] = []
    if recorded:
        eligibility = Eligibility(state, subject=previous.broker_id, after=after)
        changes = PartitionChanges(state, turn.settings, eligibility)
        for each in left_out:
            failure = yield from handle_directory_failure(state, changes, previous.broker_id, each)
            failures.append(failure)
    records = [record for failure in failures for record in failure.records]
    terms = _Terms(previous.epoch, previous.fenced, previous.in_controlled_shutdown, recorded, previous.cordoned_directories)
    records.append(_register_broker_record(state, request, terms))
    events: list[ControllerEvent] = []
    for failure in failures:
        events += directory_failure_events(previous.broker_id, failure, is_news=True)
    events.append(
        ControllerEvent(
            "broker_registered_again",
            {
                "broker_id": previous.broker_id,
                "broker_epoch": previous.epoch,
                "directories": [uuid_text(each) for each in recorded],
            },
        )
    )
    return ControllerResult(records, BrokerRegistrationResponse(broker_epoch=previous.epoch), events=events)


@dataclass(frozen=True, slots=True)
class _Terms:
    """The fields of a registration that are decided by the controller, not by the broker."""

    epoch: BrokerEpoch
    fenced: bool
    in_controlled_shutdown: bool
    directories: Sequence[DirectoryId]
    # None until a heartbeat of this incarnation tells.
    cordoned: Sequence[DirectoryId] | None = None


def _register_broker_record(state: MetadataState, request: BrokerRegistrationRequest, terms: _Terms) -> ApiMessageAndVersion:
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        is_migrating_zk_broker=request.is_migrating_zk_broker,
        incarnation_id=IncarnationId(request.incarnation_id),
        broker_epoch=terms.epoch,
        end_points=[
            BrokerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        fenced=terms.fenced,
        # Below 3.3-IV3 the record does not have the field in_controlled_shutdown.
        in_controlled_shutdown=terms.in_controlled_shutdown
        and state.metadata_version >= metadata_version.IN_CONTROLLED_SHUTDOWN_LEVEL,
        log_dirs=list(terms.directories),
        cordoned_log_dirs=None if terms.cordoned is None else list(terms.cordoned),
    )
    return ApiMessageAndVersion(record, metadata_version.register_broker_record_version(state.metadata_version))
