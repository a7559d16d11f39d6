"""FindCoordinator: every version, every kind of key, and each reason for which there is no coordinator now."""

import asyncio
from dataclasses import replace

import pytest

from broker.coordinator.core.group_partition import group_partition, java_string_hash
from broker.coordinator.core.key_partitions import KeyPartitions
from broker.requests.find_coordinator import FindCoordinatorHandler
from common.ids import NO_LEADER
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.state import MetadataState
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from common.records.metadata_records import BrokerEndpoint
from common.slices import ELEMENTS_PER_SLICE
from tests.counted import result_and_turns
from tests.unit.broker.requests.contexts import context, over_the_wire, versions
from tests.unit.common.metadata.builders import partition, register, replay, topic

NAME = "__consumer_offsets"
NEWEST = versions(ApiKey.FIND_COORDINATOR)[-1]
ENDPOINTS = [
    BrokerEndpoint(name="PLAINTEXT", host="inside", port=9092),
    BrokerEndpoint(name="OUTSIDE", host="outside", port=19092),
]


class Topics:
    """Stands in for automatic topic creation, whose last attempt was refused for this reason."""

    def __init__(self, refused: str | None = None) -> None:
        self.asked: list[str] = []
        self.refused = refused

    def create_internal(self, name: str) -> str | None:
        self.asked.append(name)
        return self.refused


def image(*, leader: int = 2, fenced: bool = False) -> MetadataState:
    """__consumer_offsets has two partitions; broker 1 leads the first, `leader` the second."""
    return replay(
        replace(register(1), end_points=ENDPOINTS),
        replace(register(2, fenced=fenced), end_points=ENDPOINTS),
        topic(1, NAME),
        partition(1, 0, [1, 2], directories=[UNASSIGNED] * 2, leader=1),
        partition(1, 1, [1, 2], directories=[UNASSIGNED] * 2, leader=leader),
    )


def ask(
    state: MetadataState, *keys: str, version: int = NEWEST, key_type: int = 0, listener: str = "PLAINTEXT"
) -> tuple[list[Coordinator], list[str]]:
    """Returns the entries of the answer, and the topics whose creation was asked for. Below version 4 the answer itself is
    the only entry."""
    topics = Topics()
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
    if version < 4:
        (key,) = keys
        request = FindCoordinatorRequest(key=key, key_type=key_type)
    handler = FindCoordinatorHandler(state, KeyPartitions(state), topics)
    answer = handler.handle(context(ApiKey.FIND_COORDINATOR, version, listener_name=listener), request)
    assert isinstance(answer, FindCoordinatorResponse)
    received = over_the_wire(answer, version)
    assert isinstance(received, FindCoordinatorResponse)
    if version < 4:
        entry = Coordinator(
            key=keys[0],
            node_id=received.node_id,
            host=received.host,
            port=received.port,
            error_code=received.error_code,
        )
        return [entry], topics.asked
    return received.coordinators, topics.asked


def group_of(index: int, partitions: int = 2) -> str:
    """Returns a group that belongs to this partition."""
    return next(name for number in range(99) if group_partition(name := f"group-{number}", partitions) == index)


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_the_leader_of_the_groups_partition_is_its_coordinator(version: int) -> None:
    """In every version, with the endpoint of the listener that the client uses."""
    for index, node_id in ((0, 1), (1, 2)):
        group = group_of(index)
        ((found,), _) = ask(image(), group, version=version, listener="OUTSIDE")
        assert (found.key, found.node_id, found.host, found.port) == (group, node_id, "outside", 19092)
        assert found.error_code == ErrorCode.NONE


def test_a_topic_that_grows_does_not_move_the_groups() -> None:
    """As in Kafka: what is in the log of the old partition would be lost to the group."""
    state = image()
    known = KeyPartitions(state)
    known.metadata_changed()
    handler = FindCoordinatorHandler(state, known, Topics())
    asked = context(ApiKey.FIND_COORDINATOR, NEWEST, listener_name="PLAINTEXT")
    groups = [f"group-{number}" for number in range(6)]
    request = FindCoordinatorRequest(coordinator_keys=groups)
    before = handler.handle(asked, request)
    replay(partition(1, 2, [1, 2], directories=[UNASSIGNED] * 2, leader=1), into=state)
    assert any(group_partition(each, 3) != group_partition(each, 2) for each in groups)
    assert handler.handle(asked, request) == before


def test_several_keys_are_answered_each() -> None:
    """A key that is named twice is answered once."""
    first, second = group_of(0), group_of(1)
    (found, _) = ask(image(), first, second, first)
    assert [(each.key, each.node_id) for each in found] == [(first, 1), (second, 2)]


def test_the_coordinators_of_many_keys_are_found_in_slices() -> None:
    """Counts the turns of the event loop. The answers are in the order of the keys."""
    state = image()
    groups = [f"group-{number}" for number in range(3 * ELEMENTS_PER_SLICE)]

    async def scenario() -> tuple[FindCoordinatorResponse, int]:
        asked = context(ApiKey.FIND_COORDINATOR, NEWEST, listener_name="PLAINTEXT")
        handler = FindCoordinatorHandler(state, KeyPartitions(state), Topics())
        answer = handler.handle(asked, FindCoordinatorRequest(coordinator_keys=groups))
        assert not isinstance(answer, FindCoordinatorResponse)
        return await result_and_turns(answer)

    response, turns = asyncio.run(scenario())
    assert turns > 2
    assert [each.key for each in response.coordinators] == groups
    assert {each.node_id for each in response.coordinators} == {1, 2}


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_the_first_question_of_all_creates_the_topic(version: int) -> None:
    """The client is told to try again, and the creation begins."""
    ((found,), asked) = ask(replay(register(1)), "g", version=version)
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert asked == [NAME]


@pytest.mark.parametrize(
    ("state", "listener"),
    [(image(leader=NO_LEADER), "PLAINTEXT"), (image(fenced=True), "PLAINTEXT"), (image(), "NOBODY")],
    ids=["without a leader", "with a fenced leader", "with a leader that this listener does not reach"],
)
def test_a_partition_has_no_coordinator(state: MetadataState, listener: str) -> None:
    ((found,), asked) = ask(state, group_of(1), listener=listener)
    assert (found.error_code, found.node_id, asked) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, [])


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR)[1:])
@pytest.mark.parametrize("key_type", [2, 9])
def test_other_keys_are_refused_for_good(version: int, key_type: int) -> None:
    ((found,), asked) = ask(image(), "key", version=version, key_type=key_type)
    assert (found.error_code, found.node_id, asked) == (ErrorCode.INVALID_REQUEST, -1, [])


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR)[1:])
def test_a_transactional_id_has_a_topic_of_its_own(version: int) -> None:
    """The offsets topic exists, the other one does not: its creation begins."""
    ((found,), asked) = ask(image(), "t", version=version, key_type=1)
    assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert asked == ["__transaction_state"]


@pytest.mark.parametrize(
    ("text", "hashed"),
    [("", 0), ("a", 97), ("console-consumer-41567", 161198264), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
)
def test_the_hash_is_javas(text: str, hashed: int) -> None:
    """Values of String.hashCode: among them the smallest integer, and a character of two UTF-16 units."""
    assert java_string_hash(text) == hashed


def test_a_group_whose_hash_has_no_absolute_value_is_in_the_first_partition() -> None:
    assert group_partition("polygenelubricants", 50) == 0
    assert group_partition("a", 50) == 47


@pytest.mark.parametrize("refused", [None, "The replication factor is 3, there are 1 brokers."])
def test_a_client_hears_why_the_topic_cannot_be_created(refused: str | None) -> None:
    state = replay(register(1))
    handler = FindCoordinatorHandler(state, KeyPartitions(state), Topics(refused))
    asked = context(ApiKey.FIND_COORDINATOR, NEWEST, listener_name="PLAINTEXT")
    answer = handler.handle(asked, FindCoordinatorRequest(coordinator_keys=["g"]))
    assert isinstance(answer, FindCoordinatorResponse)
    (found,) = answer.coordinators
    told = f"{NAME} is being created." if refused is None else f"{NAME} cannot be created: {refused}"
    assert (found.error_code, found.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, told)
