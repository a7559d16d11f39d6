"""ApiVersions: what the listener serves, and which features each version reports."""

from dataclasses import replace

import pytest

from broker.requests.api_versions import ApiVersionsRequests
from common.ids import BrokerId, Offset
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, KRAFT_VERSION_FEATURE, METADATA_VERSION_FEATURE
from common.metadata.state import MetadataState
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from common.protocol.registry import APIS
from common.protocol.schema import VersionRange
from common.records.metadata_records import FeatureLevelRecord
from tests.unit.broker.requests.contexts import context, over_the_wire, versions
from tests.unit.common.metadata.builders import level, replay

CLIENT = ApiVersionsRequest(client_software_name="test", client_software_version="1")
CLUSTER_ID = "a-cluster"
SERVED = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.DESCRIBE_LOG_DIRS)


def ask(state: MetadataState, version: int, request: ApiVersionsRequest = CLIENT) -> ApiVersionsResponse:
    requests = ApiVersionsRequests(state, SERVED, dict, cluster_id=CLUSTER_ID, broker_id=BrokerId(1))
    response = requests.handle(context(ApiKey.API_VERSIONS, version), request)
    received = over_the_wire(response, version)
    assert isinstance(received, ApiVersionsResponse)
    return received


def test_exactly_what_is_served_is_advertised() -> None:
    """The list is sorted by key and includes ApiVersions itself. Produce is listed from version 0 on for librdkafka,
    although only versions 3 and later are served."""
    advertised = {each.api_key: (each.min_version, each.max_version) for each in ask(MetadataState(), 4).api_keys}
    assert list(advertised) == sorted([*SERVED, ApiKey.API_VERSIONS])
    assert advertised[ApiKey.PRODUCE] == (0, 13)
    assert advertised[ApiKey.API_VERSIONS] == (0, 5)
    assert advertised[ApiKey.DESCRIBE_LOG_DIRS] == (0, 5)


@pytest.mark.parametrize(
    ("name", "software_version", "is_accepted"),
    [
        ("apache-kafka-java", "4.1.1", True),
        ("a", "1", True),
        ("", "1", False),
        ("a", "", False),
        ("-a", "1", False),
        ("a.", "1", False),
        ("a client", "1", False),
        ("a", "1\n", False),
    ],
)
def test_a_client_has_to_name_its_software(name: str, software_version: str, is_accepted: bool) -> None:
    """Others get INVALID_REQUEST and nothing else (KIP-511). Before version 3 clients could not name it."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version=software_version)
    for version in (3, 4, 5):
        response = ask(MetadataState(), version, request)
        assert response.error_code == (ErrorCode.NONE if is_accepted else ErrorCode.INVALID_REQUEST)
        assert bool(response.api_keys) is is_accepted
    assert ask(MetadataState(), 2, request).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (None, -1, ErrorCode.NONE),
        (None, 7, ErrorCode.INVALID_REQUEST),
        (CLUSTER_ID, 1, ErrorCode.NONE),
        (CLUSTER_ID, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        (CLUSTER_ID, -1, ErrorCode.INVALID_REQUEST),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
def test_a_client_that_wants_to_reach_another_node_has_to_start_again(
    cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    """KIP-1242. A client that does not know its cluster yet gets an answer from any. Half of a name is refused."""
    request = replace(CLIENT, cluster_id=cluster_id, node_id=node_id)
    response = ask(MetadataState(), 5, request)
    assert response.error_code == error
    assert bool(response.api_keys) is (error is ErrorCode.NONE)


def test_what_is_forwarded_is_offered_only_as_far_as_the_controller_serves_it() -> None:
    """Before any controller has answered, the broker offers what it knows itself. Requests that are not forwarded do not
    depend on the controller, and a forwarded one that the controller does not serve at all is not offered."""
    controller: dict[int, VersionRange] = {}
    served = (ApiKey.METADATA, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.ELECT_LEADERS, ApiKey.CREATE_TOPICS)
    requests = ApiVersionsRequests(MetadataState(), served, lambda: controller, cluster_id=CLUSTER_ID, broker_id=BrokerId(1))

    def advertised() -> dict[int, VersionRange]:
        response = requests.handle(context(ApiKey.API_VERSIONS, 4), CLIENT)
        return {each.api_key: VersionRange(each.min_version, each.max_version) for each in response.api_keys}

    own = advertised()
    assert own == {key: APIS[key].advertised for key in (*served, ApiKey.API_VERSIONS)}
    controller = {
        ApiKey.METADATA: VersionRange(0, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: VersionRange(0, 0),
        ApiKey.CREATE_TOPICS: VersionRange(5, 99),
    }
    known = advertised()
    assert known.pop(ApiKey.ALTER_PARTITION_REASSIGNMENTS) == VersionRange(0, 0)
    assert known.pop(ApiKey.CREATE_TOPICS) == VersionRange(5, own[ApiKey.CREATE_TOPICS].last)
    assert known == {key: own[key] for key in (ApiKey.METADATA, ApiKey.API_VERSIONS)}
    controller = {key: versions for key, versions in own.items() if key != ApiKey.METADATA}
    assert advertised() == own


def test_finalized_features_come_with_the_offset_that_they_are_from() -> None:
    """The offset of the last replayed record is the epoch of the features. Clients compare it, and can ignore an answer that
    is older than one they have."""
    state = replay(level(20), FeatureLevelRecord(name=DIRECTORY_NUMBERING_FEATURE, feature_level=1))
    response = ask(state, 4)
    assert response.finalized_features_epoch == Offset(1)
    assert {(each.name, each.min_version_level, each.max_version_level) for each in response.finalized_features} == {
        (METADATA_VERSION_FEATURE, 20, 20),
        (DIRECTORY_NUMBERING_FEATURE, 1, 1),
    }


def test_before_the_first_record_no_features_are_known() -> None:
    """A broker that is still starting answers with the epoch -1."""
    response = ask(MetadataState(), 4)
    assert (response.finalized_features_epoch, response.finalized_features) == (-1, [])


@pytest.mark.parametrize(("version", "is_listed"), [(3, False), (4, True)])
def test_features_that_begin_at_level_0_are_for_version_4(version: int, is_listed: bool) -> None:
    """Features with a lowest level of 0 are left out before version 4: older clients treat that level as a malformed answer
    and close the connection (KIP-1022)."""
    supported = {
        each.name: (each.min_version, each.max_version) for each in ask(MetadataState(), version).supported_features
    }
    assert METADATA_VERSION_FEATURE in supported
    assert (KRAFT_VERSION_FEATURE in supported) is is_listed
    assert (DIRECTORY_NUMBERING_FEATURE in supported) is is_listed


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_every_version_can_be_sent(version: int) -> None:
    """Features are left out of versions that have no field for them."""
    response = ask(replay(level(21)), version)
    assert len(response.api_keys) == 4
    assert bool(response.finalized_features) is (version >= 3)
