"""Answers FindCoordinator: which broker leads the partition that a group or a transactional id belongs to (shell).

Counterpart of KafkaApis.handleFindCoordinatorRequest. The coordinator's endpoint is the one on the listener that the client
is connected to. The first request of all finds no topic: it starts the creation, and the client tries again after
COORDINATOR_NOT_AVAILABLE.
"""

from collections.abc import Awaitable, Generator, Iterable, Mapping
from enum import IntEnum
from typing import Protocol

from broker.coordinator.core.group_partition import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from broker.coordinator.core.key_partitions import KeyPartitions
from common.metadata.state import MetadataState
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from common.slices import ELEMENTS_PER_SLICE, at_once, result_in_slices

_SEVERAL_KEYS_FIRST_VERSION = 4
_NO_NODE = -1


class CoordinatorType(IntEnum):
    """The kinds of keys, with Kafka's numbers."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TOPICS: Mapping[int, str] = {
    CoordinatorType.GROUP: OFFSETS_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTION_STATE_TOPIC,
}


class InternalTopicCreation(Protocol):
    """Creates a topic that the brokers need for themselves (`AutoTopics`)."""

    def create_internal(self, name: str) -> str | None: ...


class FindCoordinatorHandler:
    """Handles FindCoordinator; the request server calls `handle`."""

    def __init__(self, state: MetadataState, key_partitions: KeyPartitions, topics: InternalTopicCreation) -> None:
        self._state = state
        self._key_partitions = key_partitions
        self._topics = topics

    def handle(
        self, context: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
        """Names the coordinator of each key, or the error for this key. Those of many keys are found in slices."""
        if context.api_version >= _SEVERAL_KEYS_FIRST_VERSION:
            keys = dict.fromkeys(request.coordinator_keys)
            finding = self._find_all(keys, request.key_type, context.listener_name)
            return (
                at_once(finding) if len(keys) <= ELEMENTS_PER_SLICE else result_in_slices(finding, items=ELEMENTS_PER_SLICE)
            )
        found = self._find(request.key, request.key_type, context.listener_name)
        return FindCoordinatorResponse(
            error_code=found.error_code,
            error_message=found.error_message or ErrorCode(found.error_code).name,
            node_id=found.node_id,
            host=found.host,
            port=found.port,
        )

    def _find_all(
        self, keys: Iterable[str], key_type: int, listener_name: str
    ) -> Generator[None, None, FindCoordinatorResponse]:
        """Yields after each key."""
        response = FindCoordinatorResponse()
        for key in keys:
            response.coordinators.append(self._find(key, key_type, listener_name))
            yield
        return response

    def _find(self, key: str, key_type: int, listener_name: str) -> Coordinator:
        name = _TOPICS.get(key_type)
        if name is None:
            return _refused(key, ErrorCode.INVALID_REQUEST, f"This cluster has no coordinators of type {key_type}.")
        found = self._key_partitions.find(name, key)
        if found is None:
            why = self._topics.create_internal(name)
            now = f"{name} is being created." if why is None else f"{name} cannot be created: {why}"
            return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, now)
        partition = self._state.partition(*found)
        registration = None if partition is None else self._state.brokers.get(partition.leader)
        endpoint = None if registration is None else registration.endpoint(listener_name)
        if partition is None or registration is None or registration.fenced or endpoint is None:
            return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"The partition of {name} has no leader.")
        return Coordinator(key=key, node_id=partition.leader, host=endpoint.host, port=endpoint.port)


def _refused(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=_NO_NODE, port=_NO_NODE, error_code=error, error_message=message)
