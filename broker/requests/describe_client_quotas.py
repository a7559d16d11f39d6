"""Answers DescribeClientQuotas from the quotas that the metadata log sets (shell without I/O; KIP-546).

Counterpart of ClientQuotasImage.describe in Kafka. The quotas are kept but not enforced; only a log that Apache Kafka wrote
contains any.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from common.metadata.state import MetadataState
from common.net.request_context import RequestContext
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    QuotaMatch,
    ValueData,
)
from common.records.metadata_records import ClientQuotaRecord, MetadataRecordType

USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES = (USER, CLIENT_ID, IP)

# An entity: the name for each entity type. None is the default entity of the type.
Entity = Mapping[str, str | None]


@dataclass(slots=True)
class _Filter:
    names: dict[str, str | None] = field(default_factory=dict)
    any_name: set[str] = field(default_factory=set)

    @property
    def types(self) -> set[str]:
        return self.names.keys() | self.any_name

    def accepts(self, entity: Entity, *, strict: bool) -> bool:
        if strict and entity.keys() != self.types:
            return False
        return self.types <= entity.keys() and all(entity[kind] == name for kind, name in self.names.items())


class DescribeClientQuotasRequests:
    """Handles DescribeClientQuotas."""

    def __init__(self, state: MetadataState) -> None:
        self._state = state

    def handle(self, _context: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
        """Returns one entry per entity that the filter accepts. A strict filter accepts only entities that have exactly its
        types. Raises ApiError for a filter without a meaning."""
        wanted = _filter(request.components)
        entries: dict[frozenset[tuple[str, str | None]], EntryData] = {}
        for record in self._state.kept_records.get(MetadataRecordType.CLIENT_QUOTA_RECORD, {}).values():
            quota = cast(ClientQuotaRecord, record)
            entity = {part.entity_type: part.entity_name for part in quota.entity}
            if wanted.accepts(entity, strict=request.strict):
                entry = entries.setdefault(frozenset(entity.items()), _entry(entity))
                entry.values.append(ValueData(key=quota.key, value=quota.value))
        return DescribeClientQuotasResponse(error_message=None, entries=list(entries.values()))


def _entry(entity: Entity) -> EntryData:
    return EntryData(entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()])


def _filter(components: list[ComponentData]) -> _Filter:
    wanted = _Filter()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "an entity type is empty")
        if kind in wanted.types:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the filter names the entity type {kind} twice")
        if kind not in ENTITY_TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"there is no entity type {kind}")
        if (component.match_type == QuotaMatch.EXACT) != (component.match is not None):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the match of {kind} does not fit its type {component.match_type}")
        if component.match_type == QuotaMatch.SPECIFIED:
            wanted.any_name.add(kind)
        elif component.match_type in (QuotaMatch.EXACT, QuotaMatch.DEFAULT):
            wanted.names[kind] = component.match
        else:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no match type {component.match_type}")
    if IP in wanted.types and len(wanted.types) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{IP} cannot be combined with {USER} or {CLIENT_ID}")
    return wanted
