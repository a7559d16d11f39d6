"""ApiVersions: what the listener serves, and which features each version reports."""

import pytest

from broker.requests.api_versions import ApiVersionsRequests
from common.ids import Offset
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, KRAFT_VERSION_FEATURE, METADATA_VERSION_FEATURE
from common.metadata.state import MetadataState
from common.protocol.api_keys import ApiKey
from common.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from common.records.metadata_records import FeatureLevelRecord
from tests.unit.broker.requests.contexts import context, over_the_wire, versions
from tests.unit.common.metadata.builders import level, replay

SERVED = (ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.DESCRIBE_LOG_DIRS)


def ask(state: MetadataState, version: int) -> ApiVersionsResponse:
    response = ApiVersionsRequests(state, SERVED).handle(context(ApiKey.API_VERSIONS, version), ApiVersionsRequest())
    received = over_the_wire(response, version)
    assert isinstance(received, ApiVersionsResponse)
    return received


def test_exactly_what_is_served_is_advertised() -> None:
    """The list is sorted by key and includes ApiVersions itself. Produce is listed from version 0 on for librdkafka,
    although only versions 3 and later are served."""
    advertised = {each.api_key: (each.min_version, each.max_version) for each in ask(MetadataState(), 4).api_keys}
    assert list(advertised) == sorted([*SERVED, ApiKey.API_VERSIONS])
    assert advertised[ApiKey.PRODUCE] == (0, 12)
    assert advertised[ApiKey.API_VERSIONS] == (0, 4)
    assert advertised[ApiKey.DESCRIBE_LOG_DIRS] == (0, 4)


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
