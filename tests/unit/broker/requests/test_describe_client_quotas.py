"""DescribeClientQuotas: which entities a filter accepts, and which filters are refused."""

from collections.abc import Mapping

import pytest

from broker.requests.describe_client_quotas import DescribeClientQuotasRequests
from common.metadata.state import MetadataState
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaMatch,
)
from common.records.metadata_records import ClientQuotaRecord, QuotaEntity
from tests.unit.broker.requests.contexts import context, over_the_wire, versions
from tests.unit.common.metadata.builders import replay

NEWEST = versions(ApiKey.DESCRIBE_CLIENT_QUOTAS)[-1]


def quota(value: float, key: str = "producer_byte_rate", remove: bool = False, **entity: str | None) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[QuotaEntity(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()],
        key=key,
        value=value,
        remove=remove,
    )


QUOTAS = (
    quota(1, user="u"),
    quota(2, user=None),
    quota(3, user="u", client_id="c"),
    quota(4, client_id="c", user=None),
    quota(5, client_id="c"),
    quota(6, "connection_creation_rate", ip="10.0.0.1"),
    quota(7, "consumer_byte_rate", user="u"),
    quota(8, user="gone"),
    quota(0, user="gone", remove=True),
)


def exact(kind: str, name: str | None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=QuotaMatch.EXACT, match=name)


def default(kind: str, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=QuotaMatch.DEFAULT, match=match)


def specified(kind: str, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=QuotaMatch.SPECIFIED, match=match)


def ask(
    *components: ComponentData, strict: bool = False, state: MetadataState | None = None, version: int = NEWEST
) -> DescribeClientQuotasResponse:
    requests = DescribeClientQuotasRequests(replay(*QUOTAS) if state is None else state)
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    assert over_the_wire(request, version) == request
    response = requests.handle(context(ApiKey.DESCRIBE_CLIENT_QUOTAS, version), request)
    assert over_the_wire(response, version) == response
    return response


def values(response: DescribeClientQuotasResponse) -> list[list[float]]:
    """Returns the values of each entity."""
    return [[each.value for each in entry.values] for entry in response.entries or ()]


CASES: Mapping[str, tuple[list[ComponentData], bool, list[list[float]]]] = {
    "no component accepts everything": ([], False, [[1, 7], [2], [3], [4], [5], [6]]),
    "no component and strict accepts nothing": ([], True, []),
    "a user, with any client": ([exact("user", "u")], False, [[1, 7], [3]]),
    "a user alone": ([exact("user", "u")], True, [[1, 7]]),
    "the default user": ([default("user")], False, [[2], [4]]),
    "the default user alone": ([default("user")], True, [[2]]),
    "any user": ([specified("user")], False, [[1, 7], [2], [3], [4]]),
    "any user alone": ([specified("user")], True, [[1, 7], [2]]),
    "a user and a client": ([exact("client-id", "c"), exact("user", "u")], True, [[3]]),
    "any user and a client": ([exact("client-id", "c"), specified("user")], True, [[3], [4]]),
    "an address": ([exact("ip", "10.0.0.1")], True, [[6]]),
    "an unknown name": ([exact("user", "x")], False, []),
    "a name whose quota was removed": ([exact("user", "gone")], False, []),
}


@pytest.mark.parametrize(("components", "strict", "expected"), CASES.values(), ids=CASES)
def test_what_a_filter_accepts(components: list[ComponentData], strict: bool, expected: list[list[float]]) -> None:
    """A strict filter accepts only entities of exactly its types. Each entity has one entry with all its values."""
    assert values(ask(*components, strict=strict)) == expected


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLIENT_QUOTAS))
def test_an_entry_names_its_entity(version: int) -> None:
    """The default entity has no name. Keys come with their values."""
    response = ask(default("user"), exact("client-id", "c"), version=version)
    assert response.entries is not None
    (entry,) = response.entries
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("client-id", "c"), ("user", None)]
    assert [(each.key, each.value) for each in entry.values] == [("producer_byte_rate", 4.0)]
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)


def test_a_cluster_without_quotas_has_no_entries() -> None:
    """The list is empty and not null: null is for errors."""
    assert ask(state=MetadataState()).entries == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([exact("", "u")], ErrorCode.INVALID_REQUEST),
        ([exact("user", "u"), specified("user")], ErrorCode.INVALID_REQUEST),
        ([specified("user"), default("user")], ErrorCode.INVALID_REQUEST),
        ([exact("group", "g")], ErrorCode.UNSUPPORTED_VERSION),
        ([exact("user", None)], ErrorCode.INVALID_REQUEST),
        ([default("user", "u")], ErrorCode.INVALID_REQUEST),
        ([specified("user", "u")], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match_type=3, match=None)], ErrorCode.INVALID_REQUEST),
        ([exact("ip", "10.0.0.1"), exact("user", "u")], ErrorCode.INVALID_REQUEST),
        ([specified("client-id"), default("ip")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_without_a_meaning_is_refused(components: list[ComponentData], code: ErrorCode) -> None:
    """Types that are empty, repeated, unknown or impossible together, and matches that do not fit their type."""
    with pytest.raises(ApiError) as refused:
        ask(*components)
    assert refused.value.code is code
