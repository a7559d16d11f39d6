"""How a broker finds the active controller: voters that are unreachable, silent or not leading, a wrong or unknown leader,
and the deadline."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from broker.controller_link.controller_channel import ControllerUnavailable
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from common.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from common.protocol.registry import APIS
from common.time_units import NS_PER_S
from tests.simulation.environment import SimulatedWorld
from tests.unit.broker.fake_controller import ATTEMPT_NS, Answer, ControllerSide

HEARTBEAT = BrokerHeartbeatRequest(broker_id=1, broker_epoch=7)


def lead(_: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(is_fenced=False)


def refuse(_: Any) -> BrokerHeartbeatResponse:
    return BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)


def stay_silent(_: Any) -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


def run(
    scenario: Callable[[ControllerSide], Awaitable[None]],
    answers: Mapping[ApiKey, Answer] | None = None,
    *,
    voters: int = 1,
    start: bool = True,
) -> None:
    async def in_world(world: SimulatedWorld) -> None:
        async with ControllerSide(world, answers or {ApiKey.BROKER_HEARTBEAT: lead}, voters=voters, start=start) as side:
            await scenario(side)

    SimulatedWorld(seed=1).run(in_world)


def test_an_answer_comes_back_whatever_its_error_code() -> None:
    """The channel itself handles only NOT_CONTROLLER. All other error codes are returned to the caller."""

    async def scenario(side: ControllerSide) -> None:
        side.controller.answers[ApiKey.BROKER_HEARTBEAT] = lambda _: BrokerHeartbeatResponse(
            error_code=ErrorCode.STALE_BROKER_EPOCH
        )
        response = await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(1))
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert side.controller.requests == [HEARTBEAT]

    run(scenario)


def test_what_the_active_controller_serves_is_known_from_its_first_answer_on() -> None:
    """Before that nothing is known. Afterwards it stays known while there is no controller, until another one answers."""

    async def scenario(side: ControllerSide) -> None:
        assert side.channel.served_versions == {}
        await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(1))
        served = side.channel.served_versions
        assert served == {key: APIS[key].advertised for key in (ApiKey.BROKER_HEARTBEAT, ApiKey.API_VERSIONS)}
        await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(1))
        assert side.channel.served_versions is served
        side.controller.close()
        with pytest.raises(ControllerUnavailable):
            await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(1))
        assert side.channel.served_versions is served
        side.controller.answers[ApiKey.CREATE_TOPICS] = refuse
        side.controller.start(side.group)
        await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(5))
        assert ApiKey.CREATE_TOPICS in side.channel.served_versions

    run(scenario)


def test_not_controller_is_asked_again_until_it_leads() -> None:
    """A restarted controller answers NOT_CONTROLLER until it has loaded its log. The broker retries until the request's
    deadline."""

    async def scenario(side: ControllerSide) -> None:
        side.controller.answers[ApiKey.BROKER_HEARTBEAT] = refuse
        sending = side.group.create_task(side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(5)))
        await side.world.until(lambda: len(side.controller.requests) == 3)
        side.controller.answers[ApiKey.BROKER_HEARTBEAT] = lead
        assert (await sending).error_code == ErrorCode.NONE
        assert len(side.controller.requests) == 4

    run(scenario)


def test_not_controller_in_every_topic_is_a_refusal_too() -> None:
    """CreateTopics has no error code for the whole request, so a node that does not lead puts NOT_CONTROLLER into every
    topic."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name="a"), CreatableTopic(name="b")], timeout_ms=1000)

    def refuse_once(asked: CreateTopicsRequest) -> CreateTopicsResponse:
        if len(refusals) < 2:
            refusals.append(asked)
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name) for topic in asked.topics])

    refusals: list[CreateTopicsRequest] = []

    async def scenario(side: ControllerSide) -> None:
        response = await side.channel.send(request, deadline_ns=side.deadline_ns(5))
        assert [result.error_code for result in response.topics] == [ErrorCode.NONE, ErrorCode.NONE]
        assert len(refusals) == 2

    run(scenario, {ApiKey.CREATE_TOPICS: refuse_once})


def test_a_refused_connection_is_tried_again_until_somebody_listens() -> None:
    """If the controller starts after the broker, the broker's first requests wait instead of failing."""

    async def scenario(side: ControllerSide) -> None:
        sending = side.group.create_task(side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(10)))
        await side.world.sleep(3)
        assert not sending.done()
        side.controller.start(side.group)
        assert (await sending).error_code == ErrorCode.NONE

    run(scenario, start=False)


def test_the_deadline_ends_the_search_and_says_what_was_seen() -> None:
    """If no controller listens or leads, ControllerUnavailable is raised at the deadline, with the reason."""

    async def scenario(side: ControllerSide) -> None:
        started_ns = side.env.now_ns()
        with pytest.raises(ControllerUnavailable, match="controller-100:9093: connection refused"):
            await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(1))
        assert side.env.now_ns() - started_ns <= NS_PER_S
        side.controller.start(side.group)
        side.controller.answers[ApiKey.BROKER_HEARTBEAT] = refuse
        started_ns = side.env.now_ns()
        with pytest.raises(ControllerUnavailable, match="controller-100:9093 is not the active controller"):
            await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(3))
        assert side.env.now_ns() - started_ns <= 3 * NS_PER_S

    run(scenario, start=False)


def test_a_silent_controller_costs_one_attempt() -> None:
    """If no answer comes within the time for one attempt, the request is sent again on a new connection."""

    async def scenario(side: ControllerSide) -> None:
        side.controller.answers[ApiKey.BROKER_HEARTBEAT] = stay_silent
        started_ns = side.env.now_ns()
        sending = side.group.create_task(side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(10)))
        await side.world.until(lambda: side.controller.requests)
        side.controller.answers[ApiKey.BROKER_HEARTBEAT] = lead
        await sending
        assert ATTEMPT_NS <= side.env.now_ns() - started_ns < 2 * ATTEMPT_NS
        assert len(side.controller.requests) == 2

    run(scenario)


def test_a_request_may_be_given_one_long_attempt() -> None:
    """A request that must not be carried out twice gets a long attempt timeout, so it is not sent again just because the
    answer is slow."""

    async def scenario(side: ControllerSide) -> None:
        async def answer_later() -> CreateTopicsResponse:
            await side.world.sleep(5)
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="a")])

        side.controller.answers[ApiKey.CREATE_TOPICS] = lambda _: answer_later()
        response = await side.channel.send(
            CreateTopicsRequest(topics=[CreatableTopic(name="a")]),
            deadline_ns=side.deadline_ns(30),
            attempt_timeout_ns=30 * NS_PER_S,
        )
        assert response.topics[0].name == "a"
        assert len(side.controller.requests) == 1

    run(scenario, {ApiKey.CREATE_TOPICS: stay_silent})


def test_a_heartbeat_does_not_wait_behind_other_requests() -> None:
    """Responses on one connection come in the order of the requests, so a slow request would delay heartbeats. Heartbeats
    therefore have a connection of their own."""

    async def scenario(side: ControllerSide) -> None:
        creating = side.group.create_task(
            side.channel.send(
                CreateTopicsRequest(topics=[CreatableTopic(name="a")]),
                deadline_ns=side.deadline_ns(20),
                attempt_timeout_ns=20 * NS_PER_S,
            )
        )
        await side.world.until(lambda: side.controller.requests)
        started_ns = side.env.now_ns()
        await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(5))
        await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(5))
        assert side.env.now_ns() - started_ns < NS_PER_S // 10
        assert not creating.done()
        assert side.controller.connection_count == 2
        creating.cancel()

    run(scenario, {ApiKey.BROKER_HEARTBEAT: lead, ApiKey.CREATE_TOPICS: stay_silent})


def test_an_attempt_that_times_out_takes_no_forwarded_request_along() -> None:
    """A request that times out closes its connection. The forwarded request is on another connection, so it is neither lost
    nor sent twice."""

    async def scenario(side: ControllerSide) -> None:
        async def answer_later() -> EnvelopeResponse:
            await side.world.sleep(5)
            return EnvelopeResponse(response_data=b"done")

        side.controller.answers[ApiKey.ENVELOPE] = lambda _: answer_later()
        forwarding = side.group.create_task(
            side.channel.send(
                EnvelopeRequest(request_data=b"x"), deadline_ns=side.deadline_ns(30), attempt_timeout_ns=30 * NS_PER_S
            )
        )
        with pytest.raises(ControllerUnavailable):
            await side.channel.send(CreateTopicsRequest(topics=[]), deadline_ns=side.deadline_ns(3))
        assert bytes((await forwarding).response_data) == b"done"
        envelopes = [request for request in side.controller.requests if isinstance(request, EnvelopeRequest)]
        assert len(envelopes) == 1

    run(scenario, {ApiKey.ENVELOPE: stay_silent, ApiKey.CREATE_TOPICS: stay_silent})


def test_a_leader_that_the_quorum_names_wrongly_does_not_keep_the_others_from_being_asked() -> None:
    """According to the quorum, the leader is a node that is gone. Every second attempt goes to the next voter instead, until
    one leads."""

    async def scenario(side: ControllerSide) -> None:
        side.controllers[100].close()
        side.controllers[101].answers[ApiKey.BROKER_HEARTBEAT] = refuse
        await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(5))
        assert side.controllers[102].requests == [HEARTBEAT]
        assert len(side.controllers[101].requests) == 1

    run(scenario, voters=3)


def test_concurrent_requests_walk_round_independently() -> None:
    """Two concurrent requests whose attempts fail at the same time must not make each other skip the voter that leads."""

    async def scenario(side: ControllerSide) -> None:
        side.controllers[100].close()
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(3)))
        assert len(side.controllers[101].requests) == 2

    run(scenario, voters=2)


def test_without_a_known_leader_the_last_one_is_asked_first() -> None:
    """While the quorum knows no leader, the voter that led last is asked first, then the other voters."""

    async def scenario(side: ControllerSide) -> None:
        side.leader_id = None
        for id_ in (100, 101):
            side.controllers[id_].answers[ApiKey.BROKER_HEARTBEAT] = refuse
        await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(5))
        await side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(5))
        assert [len(side.controllers[id_].requests) for id_ in (100, 101, 102)] == [1, 1, 2]

    run(scenario, voters=3)


def test_nothing_is_sent_after_close() -> None:
    """A request that waits for its next attempt fails. Another attempt would open a connection that is never closed."""

    async def scenario(side: ControllerSide) -> None:
        side.controller.answers[ApiKey.BROKER_HEARTBEAT] = refuse
        sending = side.group.create_task(_failure_of(side.channel.send(HEARTBEAT, deadline_ns=side.deadline_ns(60))))
        await side.world.until(lambda: side.controller.requests)
        side.channel.close()
        assert isinstance(await sending, ControllerUnavailable)
        await side.world.sleep(1)
        assert side.controller.connection_count == 0

    run(scenario)


async def _failure_of(sending: Awaitable[Any]) -> ControllerUnavailable | None:
    try:
        await sending
    except ControllerUnavailable as error:
        return error
    return None
