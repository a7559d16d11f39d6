"""Registers the controllers of the cluster, and describes those that are registered (core).

Counterpart of registerController in Kafka's ClusterControlManager and of ControllerRegistrationsPublisher (KIP-919). A
controller registers in each incarnation, as soon as metadata.version permits it. The registration says where clients reach
the controller and which features it supports. It is no sign of life: nothing removes it, and it neither makes a node a voter
nor has anything to do with elections.
"""

from collections.abc import Mapping

from common.metadata.metadata_version import CONTROLLER_REGISTRATION_LEVEL, level_name
from common.metadata.registrations import ControllerRegistration
from common.metadata.snapshot import controller_record
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import ControllerEndpoint, ControllerFeature, RegisterControllerRecord
from controller.core.registration import REGISTRATION_BYTES_MAX
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.turn import Turn


def handle_controller_registration(
    turn: Turn, request: ControllerRegistrationRequest
) -> ControllerResult[ControllerRegistrationResponse]:
    """Registers the controller. Writes nothing if it is registered with exactly this, so a request that was sent twice does
    no harm. Raises ApiError: UNSUPPORTED_VERSION below metadata.version 3.7-IV0, INVALID_REQUEST, INVALID_REGISTRATION."""
    state = turn.state
    _check_level(state, "controllers cannot register")
    if request.controller_id < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{request.controller_id} is no controller id")
    _check_size(request)
    record = _record(request)
    before = state.controllers.get(request.controller_id)
    if before is not None and controller_record(before) == record:
        return ControllerResult([], ControllerRegistrationResponse())
    event = ControllerEvent(
        "controller_registered",
        {
            "controller_id": request.controller_id,
            "endpoints": [f"{each.name}://{each.host}:{each.port}" for each in request.listeners],
        },
    )
    return ControllerResult([ApiMessageAndVersion(record, 0)], ControllerRegistrationResponse(), events=[event])


def is_registered(state: MetadataState, request: ControllerRegistrationRequest) -> bool:
    """Whether this incarnation of the controller is registered, or cannot be at the current metadata.version."""
    if state.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        return True
    registered = state.controllers.get(request.controller_id)
    return registered is not None and registered.incarnation_id == request.incarnation_id


def registered_controllers(state: MetadataState) -> Mapping[int, ControllerRegistration]:
    """Returns the registrations by controller id. Raises ApiError(UNSUPPORTED_VERSION) below metadata.version 3.7-IV0."""
    _check_level(state, "controllers cannot be described")
    return dict(state.controllers)


def describe_controllers(turn: Turn, _request: None) -> ControllerResult[Mapping[int, ControllerRegistration]]:
    """`registered_controllers` as an operation, whose answer waits until everything in it is committed."""
    return ControllerResult([], registered_controllers(turn.state))


def _check_level(state: MetadataState, what: str) -> None:
    if state.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{what} at metadata.version {level_name(state.metadata_version)}; "
            f"that needs {level_name(CONTROLLER_REGISTRATION_LEVEL)}",
        )


def _check_size(request: ControllerRegistrationRequest) -> None:
    size = sum(16 + 4 * (len(listener.name) + len(listener.host)) for listener in request.listeners)
    size += sum(16 + 4 * len(feature.name) for feature in request.features)
    if size > REGISTRATION_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, f"the registration is larger than {REGISTRATION_BYTES_MAX} bytes")


def _record(request: ControllerRegistrationRequest) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )
