"""Sends each request of an AdminClient to the right node, and retries until it is answered or its deadline passes (shell).

Counterpart of the Call objects and the thread of Kafka's KafkaAdminClient. An attempt ends at the request timeout, the whole
call at its own deadline. After a disconnect, a timeout or a retriable error, the call pauses, longer each time. It then
fetches the metadata again and chooses the node for the next attempt.
"""

import asyncio
from typing import Any, Final

from admin.config import AdminConfig
from admin.coordinators import FIND_COORDINATOR_VERSION, coordinator_error, coordinator_request
from admin.errors import (
    RETRIABLE,
    AdminError,
    AttemptFailed,
    InvalidArgument,
    TimedOut,
    UnsupportedRequest,
    check,
    failure,
)
from admin.known_nodes import Destination, GroupCoordinator, KnownNodes, Role
from admin.response_errors import ErrorOf, no_error
from common.configuration.endpoints import HostPort
from common.environment.interface import Environment
from common.net.node_channel import ChannelError, NodeChannel, NotServed
from common.protocol.errors import ErrorCode, LocalProtocolError, error_name
from common.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse, EndpointType
from common.protocol.messages.find_coordinator import FindCoordinatorResponse
from common.protocol.messages.metadata import MetadataRequest, MetadataResponse
from common.protocol.schema import Struct
from common.time_units import NS_PER_MS, NS_PER_S

BACKOFF_JITTER: Final = 0.2

# How long a call may take in silence. Some callers are people in front of a terminal.
SLOW_CALL_NS: Final = 5 * NS_PER_S

# What a call waits for until the address of its destination is known, as Kafka's timeout messages name it.
NODE_ASSIGNMENT: Final = "a node assignment"

# The calls that a client of the controllers can make. Others need brokers, as in Kafka.
CALLS_OF_CONTROLLERS: Final = frozenset(
    {
        "alterPartitionReassignments",
        "describeCluster",
        "describeConfigs",
        "describeFeatures",
        "describeMetadataQuorum",
        "incrementalAlterConfigs",
        "listPartitionReassignments",
        "unregisterBroker",
        "updateFeatures",
    }
)

# The calls that a broker answers once the active controller has answered it. If a broker is silent, that is why in most
# cases.
CALLS_FOR_THE_CONTROLLER: Final = frozenset(
    {
        "alterPartitionReassignments",
        "createPartitions",
        "createTopics",
        "deleteTopics",
        "describeMetadataQuorum",
        "electLeaders",
        "incrementalAlterConfigs",
        "listPartitionReassignments",
        "unregisterBroker",
        "updateFeatures",
    }
)


class _Call:
    """A call in progress, with the details that its timeout message needs."""

    def __init__(
        self,
        name: str,
        request: Struct,
        destination: Destination,
        error_of: ErrorOf,
        version: int | None,
        *,
        is_single_attempt: bool,
    ) -> None:
        # The name of the call in Kafka's timeout messages: "describeLogDirs".
        self.name = name
        self.request = request
        self.destination = destination
        self.error_of = error_of
        self.version = version
        self.is_single_attempt = is_single_attempt
        # The number of attempts for which an address was found.
        self.attempts = 0
        # The number of pauses so far. It determines the length of the next pause.
        self.pauses = 0
        self.waiting_for = NODE_ASSIGNMENT
        self.last_error: Exception | None = None

    def timed_out(self) -> TimedOut:
        attempts = f" after {self.attempts} attempt{'' if self.attempts == 1 else 's'}" if self.attempts else ""
        reason = f" ({self.last_error})" if self.last_error is not None else ""
        return TimedOut(f"Timed out waiting for {self.waiting_for}{attempts}. Call: {self.name}{reason}")


class RequestSender:
    """Owns the channels of an AdminClient, one for each address."""

    def __init__(
        self,
        env: Environment,
        bootstrap: list[HostPort],
        config: AdminConfig,
        task_group: asyncio.TaskGroup,
        *,
        endpoint_type: EndpointType = EndpointType.BROKER,
    ) -> None:
        self._env = env
        self._config = config
        self._task_group = task_group
        self._nodes = KnownNodes(bootstrap, env.rng, endpoint_type)
        self._channels: dict[HostPort, NodeChannel] = {}
        # Held by the one call that fetches metadata; the others wait for its result.
        self._fetching = asyncio.Lock()
        self._is_closed = False

    async def send(
        self,
        request: Struct,
        destination: Destination,
        *,
        name: str,
        deadline_ns: int,
        error_of: ErrorOf = no_error,
        version: int | None = None,
        is_single_attempt: bool = False,
    ) -> Any:
        """Returns the response of the destination. `error_of` extracts the error of the response as a whole: after a
        retriable error there is another attempt, and any other error is left to the caller. Raises AdminError.

        With `is_single_attempt`, the caller decides which node to ask after a failure: AttemptFailed says that the node did
        not answer, or that no broker knows it."""
        if self._nodes.endpoint_type is EndpointType.CONTROLLER and name not in CALLS_OF_CONTROLLERS:
            raise AdminError(
                ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"controllers do not take this call; ask brokers (Call: {name})"
            )
        call = _Call(name, request, destination, error_of, version, is_single_attempt=is_single_attempt)
        stop_watching = self._env.call_at(self._env.now_ns() + SLOW_CALL_NS, lambda: self._report_slow(call))
        try:
            async with self._env.timeout_at(deadline_ns):
                return await self._until_answered(call, deadline_ns)
        except TimeoutError:
            raise call.timed_out() from call.last_error
        finally:
            stop_watching()

    def _report_slow(self, call: _Call) -> None:
        reason = {} if call.last_error is None else {"reason": str(call.last_error)}
        self._env.log.warning("call_waiting", call=call.name, waiting_for=call.waiting_for, **reason)

    def close(self) -> None:
        """Drops every connection. All calls in progress fail."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()

    # --- attempts ------------------------------------------------------------------------------------------------
    async def _until_answered(self, call: _Call, deadline_ns: int) -> Any:
        while True:
            address = await self._address_of(call, deadline_ns)
            call.attempts += 1
            call.waiting_for = self._answer_of(address, call.name)
            try:
                response = await self._attempt(address, call.request, deadline_ns, call.version)
            except NotServed as error:
                raise UnsupportedRequest(f"{error} (Call: {call.name})") from error
            except ChannelError as error:
                call.last_error = error
            else:
                code, message = call.error_of(response)
                if code not in RETRIABLE:
                    return response
                call.last_error = failure(code, message)
                self._nodes.distrust()
            if call.is_single_attempt:
                raise AttemptFailed(f"{call.last_error} (Call: {call.name})") from call.last_error
            await self._pause(call)

    def _answer_of(self, address: HostPort, name: str) -> str:
        asks = self._nodes.endpoint_type is EndpointType.BROKER and name in CALLS_FOR_THE_CONTROLLER
        return f"an answer of {address}" + (" (it asks the controller)" if asks else "")

    async def _attempt(self, address: HostPort, request: Struct, deadline_ns: int, version: int | None = None) -> Any:
        """Makes one attempt. Raises ChannelError, InvalidArgument, and TimeoutError if the deadline has already passed."""
        now_ns = self._env.now_ns()
        if now_ns >= deadline_ns:
            # Nothing was sent, so do not count this as a failure of the node.
            raise TimeoutError
        request_deadline_ns = now_ns + self._config.request_timeout_ms * NS_PER_MS
        try:
            response = await self._channel(address).send(
                request, version=version, deadline_ns=min(request_deadline_ns, deadline_ns)
            )
        except NotServed:
            raise
        except LocalProtocolError as error:
            raise InvalidArgument(f"cannot encode the request: {error}") from error
        except ChannelError as error:
            if self._nodes.note_failure(address) and not self._is_closed:
                self._env.log.warning("node_unavailable", address=str(address), reason=str(error))
            raise
        self._nodes.note_success(address)
        return response

    async def _pause(self, call: _Call) -> None:
        if self._is_closed:
            raise closed(call.name)
        call.pauses += 1
        await self.pause(call.pauses - 1)

    async def pause(self, pauses: int) -> None:
        """Waits before another attempt, after this many pauses."""
        delay_ms = min(self._config.retry_backoff_ms << min(pauses, 30), self._config.retry_backoff_max_ms)
        jitter = 1 + BACKOFF_JITTER * (2 * self._env.rng.random() - 1)
        await self._env.sleep_until(self._env.now_ns() + int(delay_ms * NS_PER_MS * jitter))

    # --- nodes ---------------------------------------------------------------------------------------------------
    async def _address_of(self, call: _Call, deadline_ns: int) -> HostPort:
        """Returns the address of the call's destination, waiting until the cluster has one."""
        while True:
            failed = await self._refresh_metadata(deadline_ns)
            if failed is not None:
                call.last_error = failed
            elif isinstance(call.destination, GroupCoordinator):
                # The coordinator is asked for before each attempt: that it has moved is why most attempts are repeated.
                found = await self._find_coordinator(call.destination, deadline_ns)
                if isinstance(found, HostPort):
                    return found
                call.waiting_for = NODE_ASSIGNMENT
                call.last_error = found
            else:
                address = self._nodes.address_of(call.destination, self._is_connected)
                if address is not None:
                    return address
                call.waiting_for = NODE_ASSIGNMENT
                call.last_error = AdminError(ErrorCode.BROKER_NOT_AVAILABLE, self._missing(call.destination))
                self._nodes.distrust()
                if call.is_single_attempt:
                    raise AttemptFailed(f"{call.last_error} (Call: {call.name})") from call.last_error
            await self._pause(call)

    async def _find_coordinator(self, group: GroupCoordinator, deadline_ns: int) -> HostPort | Exception:
        """Returns the address of the group's coordinator, or the error for which a later attempt is worthwhile. Raises any
        other AdminError."""
        address = self._nodes.address_of(Role.ANY_BROKER, self._is_connected)
        assert address is not None, "there are always the bootstrap servers"
        try:
            response: FindCoordinatorResponse = await self._attempt(
                address, coordinator_request(group.group_id), deadline_ns, FIND_COORDINATOR_VERSION
            )
        except NotServed as error:
            raise UnsupportedRequest(str(error)) from error
        except ChannelError as error:
            return error
        code, message = coordinator_error(response)
        if code in RETRIABLE:
            return failure(code, message)
        check(code, message)
        found = response.coordinators[0]
        return HostPort(found.host, found.port)

    async def _refresh_metadata(self, deadline_ns: int) -> ChannelError | None:
        """Fetches the metadata if necessary. Returns an error if no node answered."""
        async with self._fetching:
            if not self._nodes.needs_metadata(self._env.now_ns()):
                return None
            errors: list[ChannelError] = []
            for address in self._nodes.to_ask(self._is_connected):
                try:
                    nodes, controller_id = await self._fetch_nodes(address, deadline_ns)
                except ChannelError as error:
                    errors.append(error)
                    continue
                self._nodes.replace(nodes, controller_id=controller_id, source=address, now_ns=self._env.now_ns())
                return None
        reasons = "; ".join(map(str, errors))
        if all(isinstance(error, NotServed) for error in errors):
            raise UnsupportedRequest(f"{reasons}; is it a {self._nodes.endpoint_type.name.lower()}?")
        return ChannelError(reasons)

    async def _fetch_nodes(self, address: HostPort, deadline_ns: int) -> tuple[dict[int, HostPort], int]:
        """Returns the nodes that this one knows, and the id of the controller. Raises RequestFailed if a broker is asked for
        controllers."""
        if self._nodes.endpoint_type is EndpointType.BROKER:
            metadata: MetadataResponse = await self._attempt(address, _BROKERS_ONLY, deadline_ns)
            return {each.node_id: HostPort(each.host, each.port) for each in metadata.brokers}, metadata.controller_id
        cluster: DescribeClusterResponse = await self._attempt(address, _CONTROLLERS, deadline_ns)
        if cluster.error_code != ErrorCode.NONE:
            message = cluster.error_message or error_name(cluster.error_code)
            raise failure(cluster.error_code, f"{address} does not name the controllers: {message}")
        return {each.broker_id: HostPort(each.host, each.port) for each in cluster.brokers}, cluster.controller_id

    def _missing(self, destination: Destination) -> str:
        if isinstance(destination, Role):
            return "the cluster has no controller at the moment"
        return f"{self._nodes.endpoint_type.name.lower()} {destination} is not in the cluster's metadata"

    def _channel(self, address: HostPort) -> NodeChannel:
        channel = self._channels.get(address)
        if channel is None:
            if self._is_closed:
                raise ChannelError("the AdminClient is closed")
            channel = self._channels[address] = NodeChannel(
                self._env,
                host=address.host,
                port=address.port,
                client_id=self._config.client_id,
                task_group=self._task_group,
            )
        return channel

    def _is_connected(self, address: HostPort) -> bool:
        channel = self._channels.get(address)
        return channel is not None and channel.is_connected


def closed(name: str) -> TimedOut:
    """Returns the error of a call that is interrupted because its client is closed."""
    return TimedOut(f"The AdminClient was closed. Call: {name}")


_CONTROLLERS: Final = DescribeClusterRequest(endpoint_type=EndpointType.CONTROLLER)
_BROKERS_ONLY: Final = MetadataRequest(topics=[], allow_auto_topic_creation=False)
