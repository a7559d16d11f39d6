"""ListConfigResources: topics, brokers and configured groups, and nothing that has no configuration here."""

import pytest

from broker.requests.list_config_resources import ListConfigResourcesRequests
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from common.records.metadata_records import ConfigRecord
from tests.unit.broker.requests.contexts import context, over_the_wire
from tests.unit.common.metadata.builders import register, replay, topic

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
STATE = replay(
    register(10),
    register(2, fenced=True),
    topic(1, "b"),
    topic(2, "a"),
    *(
        ConfigRecord(resource_type=GROUP, resource_name=group, name="consumer.session.timeout.ms", value=value)
        for group, value in (("h", "50000"), ("g", "50000"), ("f", "50000"), ("f", None))
    ),
)
TOPICS, BROKERS, GROUPS = [(TOPIC, "a"), (TOPIC, "b")], [(BROKER, "2"), (BROKER, "10")], [(GROUP, "g"), (GROUP, "h")]


def ask(*types: int, version: int = 1) -> ListConfigResourcesResponse:
    request = ListConfigResourcesRequest(resource_types=list(types))
    assert over_the_wire(request, version) == request
    response = ListConfigResourcesRequests(STATE).handle(context(ApiKey.LIST_CONFIG_RESOURCES, version), request)
    assert over_the_wire(response, version) == response
    return response


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([], [*TOPICS, *BROKERS, *GROUPS]),
        ([TOPIC], TOPICS),
        ([BROKER, BROKER], BROKERS),
        ([BROKER, TOPIC], [*TOPICS, *BROKERS]),
        ([GROUP], GROUPS),
        ([BROKER_LOGGER, CLIENT_METRICS], []),
    ],
)
def test_the_resources_of_the_requested_types(types: list[int], expected: list[tuple[int, str]]) -> None:
    """No type means all types. Fenced brokers have a configuration, too. Brokers are in the order of their ids.
    A group from which the last key was deleted has no configuration any more."""
    response = ask(*types)
    assert response.error_code == ErrorCode.NONE
    assert [(each.resource_type, each.resource_name) for each in response.config_resources] == expected


@pytest.mark.parametrize("resource_type", [0, 1, 3, -1, 64])
def test_an_unknown_type_is_refused(resource_type: int) -> None:
    """Kafka's error for a type that cannot be listed."""
    response = ask(TOPIC, resource_type)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


def test_the_first_version_asks_for_client_metrics() -> None:
    """There are none. Topics and brokers must not be listed: this version has no field for the type."""
    response = ask(version=0)
    assert (response.error_code, response.config_resources) == (ErrorCode.NONE, [])
