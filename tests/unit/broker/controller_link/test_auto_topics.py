"""Automatic topic creation: one request at a time for each name, with the broker's defaults, and a new attempt after a
failure."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.controller_link.auto_topics import AutoTopics, offsets_topic, transaction_state_topic
from common.configuration.server_loading import load_server_config
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from tests.simulation.environment import SimulatedWorld
from tests.unit.broker.fake_controller import ControllerSide

OFFSETS = "__consumer_offsets"
PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "100@controller:9093",
    "offsets.topic.segment.bytes": "123456",
    "offsets.topic.num.partitions": "7",
}


def answer(request: CreateTopicsRequest, code: int = ErrorCode.NONE) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=code, error_message="why") for topic in request.topics]
    )


def run(
    scenario: Callable[[ControllerSide, AutoTopics], Coroutine[Any, Any, None]],
    *,
    is_enabled: bool = True,
    num_partitions: int = 4,
    default_replication_factor: int = 3,
    start: bool = True,
) -> None:
    async def in_world(world: SimulatedWorld) -> None:
        async with ControllerSide(world, {ApiKey.CREATE_TOPICS: answer}, start=start) as side:
            topics = AutoTopics(
                side.env,
                is_enabled=is_enabled,
                num_partitions=num_partitions,
                default_replication_factor=default_replication_factor,
                channel=side.channel,
                task_group=side.group,
                internal={OFFSETS: offsets_topic(OFFSETS, load_server_config(PROPERTIES))},
            )
            await scenario(side, topics)

    SimulatedWorld(seed=1).run(in_world)


def names(side: ControllerSide) -> list[list[str]]:
    return [[topic.name for topic in request.topics] for request in side.controller.requests]


def test_topics_are_created_with_the_brokers_defaults() -> None:
    """As in Kafka, num.partitions and default.replication.factor are those of this broker; the controller may have other
    values."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        topics.create(["a", "b", "a"])
        await side.world.until(lambda: side.controller.requests)
        assert names(side) == [["a", "b"]]
        (first, _) = side.controller.requests[0].topics
        assert (first.num_partitions, first.replication_factor, first.assignments) == (4, 3, [])

    run(scenario)


def test_defaults_that_no_topic_can_have_reach_the_controller() -> None:
    """Defaults too large for the request's fields are sent as the largest values that fit. The controller refuses them; the
    broker does not fail."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        topics.create(["a"])
        await side.world.until(lambda: side.controller.requests)
        (asked,) = side.controller.requests[0].topics
        assert (asked.num_partitions, asked.replication_factor) == (2**31 - 1, 2**15 - 1)

    run(scenario, num_partitions=2**31, default_replication_factor=2**15)


def test_what_is_under_way_is_not_asked_for_again() -> None:
    """A producer repeats its Metadata request many times a second, but a topic is not requested again while its creation is
    in flight. Meanwhile, other topics can be created."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        response: asyncio.Future[CreateTopicsResponse] = asyncio.get_running_loop().create_future()
        side.controller.answers[ApiKey.CREATE_TOPICS] = lambda _: response
        for _ in range(10):
            topics.create(["a"])
            await side.world.sleep(0.1)
        assert names(side) == [["a"]]
        topics.create(["a", "b"])
        await side.world.until(lambda: len(side.controller.requests) == 2)
        assert names(side) == [["a"], ["b"]]
        side.controller.answers[ApiKey.CREATE_TOPICS] = answer
        response.set_result(answer(side.controller.requests[0]))
        await side.world.sleep(0.1)
        topics.create(["a"])
        await side.world.until(lambda: len(side.controller.requests) == 3)

    run(scenario)


def test_few_topics_are_under_way_at_a_time() -> None:
    """Clients name more than a thousand topics while the controller does not answer. At most 1000 are in flight. The others
    are ignored, and clients can request them again when the first ones are done."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        response: asyncio.Future[CreateTopicsResponse] = asyncio.get_running_loop().create_future()
        side.controller.answers[ApiKey.CREATE_TOPICS] = lambda _: response
        topics.create([f"first-{number}" for number in range(600)])
        topics.create([f"second-{number}" for number in range(600)])
        topics.create(["third"])
        await side.world.sleep(0.1)
        assert [len(asked) for asked in names(side)] == [600, 400]
        side.controller.answers[ApiKey.CREATE_TOPICS] = answer
        response.set_result(answer(side.controller.requests[0]))
        await side.world.sleep(0.1)
        topics.create(["third"])
        await side.world.until(lambda: names(side)[-1] == ["third"])

    run(scenario)


def test_a_refusal_is_logged_and_the_topic_asked_for_again_later() -> None:
    """If there are not enough brokers yet, one log line says so, and the next Metadata request tries again."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        side.controller.answers[ApiKey.CREATE_TOPICS] = lambda request: answer(request, ErrorCode.INVALID_REPLICATION_FACTOR)
        topics.create(["a"])
        refused = await side.world.event("auto_topic_refused")
        assert refused.fields == {"topic": "a", "error": "INVALID_REPLICATION_FACTOR", "reason": "why"}
        side.controller.answers[ApiKey.CREATE_TOPICS] = answer
        topics.create(["a"])
        await side.world.until(lambda: len(side.controller.requests) == 2)

    run(scenario)


def test_another_broker_that_was_quicker_is_no_failure() -> None:
    """Several brokers may get the same client's Metadata requests, so TOPIC_ALREADY_EXISTS is not logged as a failure."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        side.controller.answers[ApiKey.CREATE_TOPICS] = lambda request: answer(request, ErrorCode.TOPIC_ALREADY_EXISTS)
        topics.create(["a"])
        await side.world.sleep(1)
        assert len(side.controller.requests) == 1
        assert side.world.events_named("auto_topic_refused") == []

    run(scenario)


@pytest.mark.slow
def test_an_unreachable_controller_is_logged_and_blocks_nothing() -> None:
    """After half a minute the broker gives up, and the same names can be requested again."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        topics.create(["a"])
        failed = await side.world.event("auto_topic_not_created")
        assert failed.fields["topics"] == ["a"]
        side.controller.start(side.group)
        topics.create(["a"])
        await side.world.until(lambda: side.controller.requests)

    run(scenario, start=False)


def test_nothing_is_created_when_it_is_switched_off() -> None:
    """Nothing is sent with auto.create.topics.enable=false, nor for an empty list of names."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        topics.create(["a"])
        topics.create([])
        await side.world.sleep(1)
        assert side.controller.requests == []

    run(scenario, is_enabled=False)


def test_an_internal_topic_has_settings_of_its_own_and_is_created_in_any_case() -> None:
    """The brokers need __consumer_offsets also where clients' topics are not created by themselves."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        topics.create([OFFSETS])
        topics.create_internal(OFFSETS)
        topics.create_internal(OFFSETS)
        await side.world.until(lambda: side.controller.requests)
        await side.world.sleep(1)
        assert names(side) == [[OFFSETS]]
        (asked,) = side.controller.requests[0].topics
        assert (asked.num_partitions, asked.replication_factor) == (7, 3)
        configs = {each.name: each.value for each in asked.configs}
        assert configs["segment.bytes"] == "123456"
        assert configs["compression.type"] == "producer"

    run(scenario, is_enabled=False)


def test_the_topic_of_the_transactional_ids_is_created_as_by_apache_kafka() -> None:
    """Tools show these settings."""
    topic = transaction_state_topic("__transaction_state", load_server_config(PROPERTIES))
    assert {each.name: each.value for each in topic.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": str(100 << 20),
        "unclean.leader.election.enable": "false",
    }
    assert (topic.num_partitions, topic.replication_factor) == (50, 3)


def test_a_client_that_asks_for_an_internal_topic_gets_the_same_one() -> None:
    """A Metadata request may name the topic before the first group needs it."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        topics.create([OFFSETS, "a"])
        await side.world.until(lambda: side.controller.requests)
        assert [topic.num_partitions for topic in side.controller.requests[0].topics] == [7, 4]

    run(scenario)


def test_an_internal_topic_that_cannot_be_created_is_tried_once_a_second() -> None:
    """All clients of all groups ask for it, many times a second. The controller and the log of events are spared."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        side.controller.answers[ApiKey.CREATE_TOPICS] = lambda request: answer(request, ErrorCode.INVALID_REPLICATION_FACTOR)
        for _ in range(50):
            topics.create_internal(OFFSETS)
            await side.world.sleep(0.05)
        assert len(side.controller.requests) == 3
        assert len(side.world.events_named("auto_topic_refused")) == 1

    run(scenario)


def test_another_reason_why_an_internal_topic_cannot_be_created_is_logged() -> None:
    """So is the same one, after the topic could be created."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        reasons = ["few brokers", "few brokers", "a policy", None, "a policy"]

        def refuse(request: CreateTopicsRequest) -> CreateTopicsResponse:
            reason = reasons.pop(0)
            code = ErrorCode.NONE if reason is None else ErrorCode.POLICY_VIOLATION
            return CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(name=each.name, error_code=code, error_message=reason) for each in request.topics
                ]
            )

        side.controller.answers[ApiKey.CREATE_TOPICS] = refuse
        while reasons:
            topics.create_internal(OFFSETS)
            await side.world.sleep(0.05)
        await side.world.until(lambda: topics.create_internal(OFFSETS) == "a policy")
        logged = [each.fields["reason"] for each in side.world.events_named("auto_topic_refused")]
        assert logged == ["few brokers", "a policy", "a policy"]

    run(scenario)


def test_why_an_internal_topic_cannot_be_created_is_known_until_it_is() -> None:
    """FindCoordinator tells clients, who would otherwise wait without a word."""

    async def scenario(side: ControllerSide, topics: AutoTopics) -> None:
        side.controller.answers[ApiKey.CREATE_TOPICS] = lambda request: answer(request, ErrorCode.INVALID_REPLICATION_FACTOR)
        assert topics.create_internal(OFFSETS) is None
        await side.world.event("auto_topic_refused")
        assert topics.create_internal(OFFSETS) == "why"
        side.controller.answers[ApiKey.CREATE_TOPICS] = answer
        await side.world.until(lambda: topics.create_internal(OFFSETS) is None)
        assert names(side) == [[OFFSETS]] * 2

    run(scenario)
