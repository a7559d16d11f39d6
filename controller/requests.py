"""The handlers of the controller listener (shell).

Counterpart of Kafka's ControllerApis. Most handlers submit an operation to the quorum controller; Fetch, FetchSnapshot and
DescribeQuorum belong to the quorum driver. A broker forwards client requests in an Envelope, together with the client's
principal. The Envelope's response contains the complete response that the broker passes on to the client.

The error code of an Envelope is about the forwarding, not about the request inside. NOT_CONTROLLER is the exception: if the
inner request fails with it, so does the Envelope, and the broker retries with another controller instead of passing the
error to the client.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Protocol

from common.configuration.description import describe_configs
from common.environment.interface import Environment
from common.ids import BrokerId, Offset, Uuid
from common.metadata.metadata_version import CONTROLLER_FEATURES
from common.net.api_versions import advertised_versions, api_versions_response, invalid_request_response, supported_features
from common.net.endpoint_types import check_endpoint_type
from common.net.error_responses import error_response
from common.net.request_context import Authorize, Handler, Principal, RequestContext, allow_all
from common.protocol.api_keys import FORWARDABLE, ApiKey
from common.protocol.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED
from common.protocol.codec import decode_request_in_slices, decode_with_version, encode, encode_in_slices, joined
from common.protocol.errors import ApiError, ErrorCode, RemoteProtocolError
from common.protocol.framing import UnsupportedRequest, parse_request, response_header_version
from common.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from common.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from common.protocol.messages.default_principal_data import DefaultPrincipalData
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from common.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    EndpointType,
)
from common.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from common.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from common.protocol.messages.headers import ResponseHeader
from common.protocol.registry import APIS
from common.slices import ELEMENTS_PER_SLICE, result_in_slices
from common.time_units import NS_PER_MS
from controller.core.allocate_producer_ids import allocate_producer_ids
from controller.core.alter_configs import handle_alter_configs, handle_incremental_alter_configs
from controller.core.alter_partition import TOPIC_ID_FIRST_VERSION, handle_alter_partition, with_older_errors
from controller.core.alter_partition_reassignments import alter_partition_reassignments
from controller.core.assign_replicas_to_dirs import handle_assign_replicas_to_dirs
from controller.core.broker_sessions import BrokerSessions
from controller.core.controller_registration import (
    describe_controllers,
    handle_controller_registration,
    registered_controllers,
)
from controller.core.create_partitions import create_partitions
from controller.core.describe_configs import handle_describe_configs
from controller.core.elect_leaders import elect_leaders
from controller.core.heartbeat import answer_between_slices, handle_broker_heartbeat
from controller.core.list_partition_reassignments import list_partition_reassignments
from controller.core.registration import handle_broker_registration
from controller.core.topics import create_topics, delete_topics
from controller.core.turn import Operation
from controller.core.unregister import handle_unregister_broker
from controller.core.update_features import update_features
from controller.quorum_controller import QuorumController

# The first version of DeleteTopics whose clients know TOPIC_DELETION_DISABLED.
DELETION_DISABLED_FIRST_VERSION = 3
# Errors that do not refuse a registration: the broker sends it to another controller, or once more.
NOT_REFUSALS = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)
# How many logged refusals are remembered. Any peer can send registrations, so their number has no other limit.
REFUSALS_MAX = 100

# The operation for each API whose requests go through the event queue.
OPERATIONS: Final = MappingProxyType[ApiKey, Operation[Any, Any]](
    {
        ApiKey.CREATE_TOPICS: create_topics,
        ApiKey.DELETE_TOPICS: delete_topics,
        ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
        ApiKey.CREATE_PARTITIONS: create_partitions,
        ApiKey.ELECT_LEADERS: elect_leaders,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
        ApiKey.ALTER_PARTITION: handle_alter_partition,
        ApiKey.BROKER_REGISTRATION: handle_broker_registration,
        ApiKey.BROKER_HEARTBEAT: handle_broker_heartbeat,
        ApiKey.UNREGISTER_BROKER: handle_unregister_broker,
        ApiKey.UPDATE_FEATURES: update_features,
        ApiKey.ALLOCATE_PRODUCER_IDS: allocate_producer_ids,
        ApiKey.CONTROLLER_REGISTRATION: handle_controller_registration,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS: handle_assign_replicas_to_dirs,
    }
)
# Those that also depend on who sent the request.
ALTERATIONS: Final = MappingProxyType[ApiKey, Callable[..., Any]](
    {
        ApiKey.ALTER_CONFIGS: handle_alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
    }
)


class TimedRequest(Protocol):
    """A request that carries the client's timeout."""

    timeout_ms: int


class QuorumHandlers(Protocol):
    """The requests that the quorum driver handles itself."""

    def handle_fetch(self, context: RequestContext, request: Any) -> Awaitable[Any]: ...

    def handle_fetch_snapshot(self, context: RequestContext, request: Any) -> Awaitable[Any]: ...

    def handle_describe_quorum(self, context: RequestContext, request: Any) -> Any: ...


class ControllerRequests:
    """The request handlers of one controller node."""

    def __init__(
        self,
        env: Environment,
        controller: QuorumController,
        quorum: QuorumHandlers,
        *,
        cluster_id: str,
        authorize: Authorize = allow_all,
    ) -> None:
        self._env = env
        self._controller = controller
        self._cluster_id = cluster_id
        self._authorize = authorize
        # Held while a forwarded request is decoded, so that no later one overtakes it.
        self._opening = asyncio.Lock()
        self._handlers: Mapping[ApiKey, Handler] = {
            ApiKey.FETCH: quorum.handle_fetch,
            ApiKey.API_VERSIONS: self.handle_api_versions,
            ApiKey.CREATE_TOPICS: self.handle_timed_operation,
            ApiKey.DELETE_TOPICS: self.handle_delete_topics,
            ApiKey.DESCRIBE_CONFIGS: self.handle_describe_configs,
            ApiKey.ALTER_CONFIGS: self.handle_alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.handle_alter_configs,
            ApiKey.CREATE_PARTITIONS: self.handle_timed_operation,
            ApiKey.ELECT_LEADERS: self.handle_timed_operation,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.handle_timed_operation,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.handle_operation,
            ApiKey.DESCRIBE_QUORUM: quorum.handle_describe_quorum,
            ApiKey.ALTER_PARTITION: self.handle_alter_partition,
            ApiKey.ENVELOPE: self.handle_envelope,
            ApiKey.FETCH_SNAPSHOT: quorum.handle_fetch_snapshot,
            ApiKey.DESCRIBE_CLUSTER: self.handle_describe_cluster,
            ApiKey.BROKER_REGISTRATION: self.handle_broker_registration,
            ApiKey.BROKER_HEARTBEAT: self.handle_broker_heartbeat,
            ApiKey.UNREGISTER_BROKER: self.handle_operation,
            ApiKey.UPDATE_FEATURES: self.handle_operation,
            ApiKey.ALLOCATE_PRODUCER_IDS: self.handle_operation,
            ApiKey.CONTROLLER_REGISTRATION: self.handle_operation,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS: self.handle_operation,
        }
        self._advertised = advertised_versions(self._handlers)
        # The refused registrations that were logged: broker, incarnation and reason. A broker that tries again and again is
        # logged once, but again after its next start.
        self._refusals: set[tuple[int, Uuid, str]] = set()

    def handlers(self) -> Mapping[ApiKey, Handler]:
        """Returns the handlers for the request servers of the controller listeners."""
        return self._handlers

    # --- operations ---------------------------------------------------------------------------------------------

    def handle_operation(self, context: RequestContext, request: Any, *, deadline_ns: int | None = None) -> Awaitable[Any]:
        """Submits the request's operation to the quorum controller. The response is ready when the operation's records are
        committed."""
        name, operation = context.api_key.name.lower(), OPERATIONS[context.api_key]
        return self._controller.submit(name, operation, request, deadline_ns=deadline_ns)

    async def handle_timed_operation(self, context: RequestContext, request: TimedRequest) -> Any:
        """Like `handle_operation`, but raises REQUEST_TIMED_OUT after the client's timeout. An operation that has begun by
        then is not undone, and one that has not is not carried out, as in Kafka: never with a timeout of 0 or less."""
        deadline_ns = context.received_ns + max(request.timeout_ms, 0) * NS_PER_MS
        try:
            async with self._env.timeout_at(deadline_ns):
                return await self.handle_operation(context, request, deadline_ns=deadline_ns)
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "the change was not committed in time") from None

    def handle_alter_configs(self, context: RequestContext, request: Any) -> Awaitable[Any]:
        operation = partial(ALTERATIONS[context.api_key], is_forwarded=context.is_forwarded)
        return self._controller.submit(context.api_key.name.lower(), operation, request)

    async def handle_delete_topics(self, context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        is_enabled = self._controller.settings.is_topic_deletion_enabled
        if not is_enabled and context.api_version < DELETION_DISABLED_FIRST_VERSION:
            raise ApiError(ErrorCode.INVALID_REQUEST, "delete.topic.enable is false")
        response: DeleteTopicsResponse = await self.handle_timed_operation(context, request)
        return response

    async def handle_alter_partition(
        self, context: RequestContext, request: AlterPartitionRequest
    ) -> AlterPartitionResponse:
        response: AlterPartitionResponse = await self.handle_operation(context, request)
        return with_older_errors(response) if context.api_version < TOPIC_ID_FIRST_VERSION else response

    async def handle_broker_registration(
        self, context: RequestContext, request: BrokerRegistrationRequest
    ) -> BrokerRegistrationResponse:
        """Logs why a registration is refused: its response holds nothing but an error code."""
        try:
            response: BrokerRegistrationResponse = await self.handle_operation(context, request)
        except ApiError as error:
            refusal = (request.broker_id, request.incarnation_id, str(error))
            if error.code not in NOT_REFUSALS and refusal not in self._refusals:
                if len(self._refusals) >= REFUSALS_MAX:
                    self._refusals.clear()
                self._refusals.add(refusal)
                self._env.log.warning(
                    "registration_refused", broker_id=request.broker_id, error=error.code.name, reason=error.message
                )
            raise
        return response

    def handle_broker_heartbeat(
        self, context: RequestContext, request: BrokerHeartbeatRequest
    ) -> Awaitable[BrokerHeartbeatResponse]:
        def keep_session(sessions: BrokerSessions) -> None:
            # Renew the session: the broker is alive even if this controller is too busy to handle its heartbeat
            # (KAFKA-15019).
            self._controller.timed_out_heartbeat_count += 1
            registration = self._controller.state.brokers.get(BrokerId(request.broker_id))
            if registration is not None and registration.epoch == request.broker_epoch:
                offset = Offset(request.current_metadata_offset)
                sessions.touch(registration.broker_id, offset, self._env.now_ns())

        deadline_ns = context.received_ns + self._controller.settings.session_timeout_ns // 2
        return self._controller.submit(
            context.api_key.name.lower(),
            OPERATIONS[context.api_key],
            request,
            deadline_ns=deadline_ns,
            on_timeout=keep_session,
            early=answer_between_slices,
        )

    # --- the cluster --------------------------------------------------------------------------------------------

    def handle_api_versions(self, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        refusal = invalid_request_response(request, context.api_version)
        if refusal is not None:
            return refusal
        response = api_versions_response(self._advertised)
        response.supported_features = supported_features(CONTROLLER_FEATURES, context.api_version)
        response.finalized_features = [
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(self._controller.state.features.items())
        ]
        response.finalized_features_epoch = self._controller.committed_offset
        return response

    async def handle_describe_cluster(
        self, context: RequestContext, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Returns the registered controllers, each with its address on the listener that was asked (KIP-919)."""
        check_endpoint_type(request, context.api_version, served=EndpointType.CONTROLLER)
        if self._controller.is_active:
            # What the state has must be committed before a client may see it.
            controllers = await self._controller.submit("describe_cluster", describe_controllers, None)
        else:
            controllers = registered_controllers(self._controller.state)
        addresses = {each.controller_id: each.endpoint(context.listener_name) for each in controllers.values()}
        leader_id = self._controller.leader.leader_id
        return DescribeClusterResponse(
            endpoint_type=EndpointType.CONTROLLER,
            cluster_id=self._cluster_id,
            controller_id=-1 if leader_id is None else leader_id,
            brokers=[
                DescribeClusterBroker(broker_id=controller_id, host=address.host, port=address.port)
                for controller_id, address in sorted(addresses.items())
                if address is not None
            ],
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
            ),
        )

    async def handle_describe_configs(
        self, context: RequestContext, request: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        """A standby describes what is committed; the active controller must not describe more."""
        if self._controller.is_active:
            response: DescribeConfigsResponse = await self.handle_operation(context, request)
            return response
        description = describe_configs(self._controller.state, self._controller.settings.resolver, request)
        return await result_in_slices(description)

    # --- forwarded requests -------------------------------------------------------------------------------------

    async def handle_envelope(self, context: RequestContext, envelope: EnvelopeRequest) -> EnvelopeResponse:
        """Handles the inner request with the authority of the forwarded principal."""
        async with self._opening:
            inner, request = await self._opened(context, envelope)
        try:
            self._authorize(inner, request)
            response = self._handlers[inner.api_key](inner, request)
            if isinstance(response, Awaitable):
                response = await response
        except ApiError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            response = error_response(request, inner.api_key, error.code, error.message)
        header_version = response_header_version(type(response), inner.api_version)
        header = encode(ResponseHeader(correlation_id=inner.correlation_id), header_version)
        body = await result_in_slices(encode_in_slices(response, inner.api_version), items=ELEMENTS_PER_SLICE)
        return EnvelopeResponse(response_data=header + joined(body))

    async def _opened(self, context: RequestContext, envelope: EnvelopeRequest) -> tuple[RequestContext, Any]:
        """Returns the inner request and its context, after it was decoded in slices. Raises ApiError if the request is
        malformed or must not be forwarded."""
        frame = memoryview(envelope.request_data)
        try:
            header, body = parse_request(frame)
            api_key = ApiKey(header.request_api_key)
            if api_key not in FORWARDABLE:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{api_key.name} cannot be forwarded")
            # Trailing bytes are allowed, as in requests that a client sends to a broker directly.
            decoding = decode_request_in_slices(APIS[api_key].request, body, header.request_api_version)
            request, _ = await result_in_slices(decoding, items=ELEMENTS_PER_SLICE)
        except UnsupportedRequest as error:
            # The broker runs a later release, and its client may use a version that came with it.
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"the forwarded request is not served: {error}") from error
        except RemoteProtocolError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the forwarded request cannot be read: {error}") from error
        inner = replace(
            context,
            api_key=api_key,
            api_version=header.request_api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            peer=f"{_host(envelope.client_host_address)}:0",
            principal=_principal(envelope.request_principal),
            request_bytes=frame,
            is_forwarded=True,
        )
        return inner, request


def _principal(serialized: bytes | None) -> Principal:
    """Decodes Kafka's serialization: a two-byte version, then DefaultPrincipalData."""
    try:
        principal = decode_with_version(DefaultPrincipalData, serialized or b"")
    except RemoteProtocolError as error:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    return Principal(principal.type, principal.name)


def _host(address: bytes) -> str:
    try:
        return str(ipaddress.ip_address(bytes(address)))
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the client's address has neither 4 nor 16 bytes") from None
