"""Configuration changes that a broker forwards: what it refuses, what it forwards, and when it answers."""

import asyncio
from typing import Any

import pytest

from broker.controller_link.forwarding import Forwarding
from broker.requests.alter_configs import TIMEOUT_MS, AlterConfigsRequests
from common.ids import BrokerId
from common.protocol.errors import ErrorCode
from common.protocol.messages import alter_configs as legacy
from common.protocol.messages import incremental_alter_configs as incremental
from common.time_units import NS_PER_MS, NS_PER_S
from tests.unit.broker.controller_link.test_forwarding import Broker, context_of, run

TOPIC, BROKER = 2, 4


class Handlers:
    """Broker 1's handlers. The broker has caught up with the committed change once the test sets `caught_up`."""

    def __init__(self, broker: Broker, *, code: ErrorCode = ErrorCode.NONE) -> None:
        self.world = broker.world
        self.caught_up = asyncio.Event()
        self.catching_up = 0
        forwarding = Forwarding(
            broker.side.env, channel=broker.side.channel, follower=broker.follower, is_current_since=lambda _: False
        )
        self.requests = AlterConfigsRequests(
            broker.side.env, forwarding, broker_id=BrokerId(1), log_dirs=["/a", "/b"], catch_up=self._catch_up
        )
        self._code = code
        broker.respond = self._respond

    async def _catch_up(self) -> None:
        self.catching_up += 1
        await self.caught_up.wait()

    def _respond(self, request: Any) -> Any:
        module: Any = legacy if isinstance(request, legacy.AlterConfigsRequest) else incremental
        results = [
            module.AlterConfigsResourceResponse(
                error_code=self._code, resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in request.resources
        ]
        return (
            legacy.AlterConfigsResponse(responses=results)
            if module is legacy
            else incremental.IncrementalAlterConfigsResponse(responses=results)
        )

    def send(self, request: Any, version: int) -> "asyncio.Task[Any]":
        context = context_of(request, version)
        handler: Any = self.requests.handlers()[context.api_key]
        return self.world.loop.create_task(handler(context, request))


def change(*resources: tuple[int, str], validate_only: bool = False) -> incremental.IncrementalAlterConfigsRequest:
    return incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[incremental.AlterableConfig(name="key", config_operation=0, value="value")],
            )
            for resource_type, name in resources
        ],
        validate_only=validate_only,
    )


def replacement(*resources: tuple[int, str]) -> legacy.AlterConfigsRequest:
    return legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                resource_type=resource_type,
                resource_name=name,
                configs=[legacy.AlterableConfig(name="key", value="value")],
            )
            for resource_type, name in resources
        ]
    )


def test_the_answer_waits_until_the_change_is_applied() -> None:
    """The client's next request to this broker may read the configuration back."""

    async def scenario(broker: Broker) -> None:
        handlers = Handlers(broker)
        answering = handlers.send(change((TOPIC, "t")), 1)
        await broker.world.until(lambda: handlers.catching_up == 1)
        assert not answering.done()
        handlers.caught_up.set()
        assert [each.error_code for each in (await answering).responses] == [ErrorCode.NONE]

    run(scenario)


def test_a_broker_that_cannot_catch_up_answers_at_last() -> None:
    """The change is committed, so the broker still reports success."""

    async def scenario(broker: Broker) -> None:
        handlers = Handlers(broker)
        response = await handlers.send(change((TOPIC, "t")), 1)
        assert [each.error_code for each in response.responses] == [ErrorCode.NONE]
        assert TIMEOUT_MS * NS_PER_MS <= broker.elapsed_ns < TIMEOUT_MS * NS_PER_MS + NS_PER_S

    run(scenario)


@pytest.mark.parametrize(("validate_only", "code"), [(True, ErrorCode.NONE), (False, ErrorCode.INVALID_CONFIG)])
def test_what_changed_nothing_has_nothing_to_wait_for(validate_only: bool, code: ErrorCode) -> None:
    """The request was validate-only, or the controller refused every resource."""

    async def scenario(broker: Broker) -> None:
        handlers = Handlers(broker, code=code)
        await handlers.send(change((TOPIC, "t"), validate_only=validate_only), 1)
        assert handlers.catching_up == 0

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "versions"),
    [
        (change((BROKER, "2"), (TOPIC, "t"), (BROKER, "1"), (BROKER, "")), (0, 1)),
        (replacement((BROKER, "2"), (TOPIC, "t"), (BROKER, "1"), (BROKER, "")), (0, 1, 2)),
    ],
)
def test_another_brokers_configuration_is_refused_and_the_rest_sent_on(request_: Any, versions: tuple[int, ...]) -> None:
    """The controller gets the request without the refused resource, in the same version as the client's request."""

    async def scenario(broker: Broker) -> None:
        handlers = Handlers(broker)
        handlers.caught_up.set()
        for version in versions:
            response = await handlers.send(request_, version)
            assert [(each.resource_name, each.error_code) for each in response.responses] == [
                ("t", ErrorCode.NONE),
                ("1", ErrorCode.NONE),
                ("", ErrorCode.NONE),
                ("2", ErrorCode.INVALID_REQUEST),
            ]
            assert broker.inner.pop().resources == request_.resources[1:]

    run(scenario)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2", "Unexpected broker id, expected 1, but received 2"),
        ("one", "Node id must be an integer, but it is: one"),
        ("x" * 32_000, "Node id must be an integer, but it is: xxx"),
    ],
)
def test_a_request_of_which_nothing_is_left_does_not_reach_the_controller(name: str, message: str) -> None:
    """The broker answers with Kafka's error and message."""

    async def scenario(broker: Broker) -> None:
        handlers = Handlers(broker)
        (result,) = (await handlers.send(change((BROKER, name)), 1)).responses
        assert (result.error_code, result.resource_name) == (ErrorCode.INVALID_REQUEST, name)
        assert result.error_message.startswith(message)
        assert len(result.error_message) < 32_768
        assert broker.inner == []

    run(scenario)


@pytest.mark.parametrize(
    ("value", "operation", "refused"),
    [
        ("/a", 0, None),
        ("*", 0, None),
        ("", 0, None),
        ("/a, /b", 0, None),
        ("/a,/c", 0, "/c is not in log.dirs of broker 1: /a, /b"),
        ("/c", 2, "/c is not in log.dirs of broker 1: /a, /b"),
        ("/c", 3, None),
        (None, 1, None),
    ],
)
def test_only_the_broker_knows_the_directories_that_can_be_cordoned(
    value: str | None, operation: int, refused: str | None
) -> None:
    """What is taken off the list may be gone from log.dirs. What cannot be cordoned does not reach the controller."""

    async def scenario(broker: Broker) -> None:
        handlers = Handlers(broker)
        handlers.caught_up.set()
        config = incremental.AlterableConfig(name="cordoned.log.dirs", config_operation=operation, value=value)
        resource = incremental.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
        request = incremental.IncrementalAlterConfigsRequest(resources=[resource])
        [answer] = (await handlers.send(request, 1)).responses
        code = ErrorCode.NONE if refused is None else ErrorCode.INVALID_REQUEST
        assert (answer.error_code, answer.error_message) == (code, refused)

    run(scenario)
