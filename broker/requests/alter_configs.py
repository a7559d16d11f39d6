"""Answers AlterConfigs and IncrementalAlterConfigs through the active controller (shell).

Counterpart of Kafka's ConfigAdminManager. The broker refuses changes of another broker's configuration, because a client has
to send those to that broker. The controller validates all other changes. After the controller's answer, this broker applies
everything that is committed by then, and only then answers the client. So the change is in effect on this broker, and a
client that reads the configuration back finds it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from broker.controller_link.forwarding import Forwarding
from common.configuration.server import ALL_LOG_DIRS, CORDONED_LOG_DIRS
from common.environment.interface import Environment
from common.ids import BrokerId
from common.net.request_context import Handler, RequestContext
from common.protocol.api_keys import ApiKey
from common.protocol.codec import encode
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.framing import request_header_version
from common.protocol.messages import alter_configs as legacy
from common.protocol.messages import incremental_alter_configs as incremental
from common.protocol.messages.headers import RequestHeader
from common.protocol.schema import Struct
from common.records.metadata_records import ConfigResourceType
from common.time_units import NS_PER_MS

# The requests have no timeout field.
TIMEOUT_MS = 30_000
# What an operation of IncrementalAlterConfigs is, and which ones add to the value. AlterConfigs sets whole values.
_SET = incremental.ConfigOperation.SET
_ADDING = (_SET, incremental.ConfigOperation.APPEND)

Request = TypeVar("Request", legacy.AlterConfigsRequest, incremental.IncrementalAlterConfigsRequest)


class AlterConfigsRequests:
    """Handles both requests. `log_dirs` are this broker's directories. `catch_up` returns once the broker has applied
    everything that was committed when `catch_up` was called."""

    def __init__(
        self,
        env: Environment,
        forwarding: Forwarding,
        *,
        broker_id: BrokerId,
        log_dirs: Sequence[str],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._log_dirs = log_dirs
        self._env = env
        self._forwarding = forwarding
        self._broker_id = broker_id
        self._catch_up = catch_up

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.ALTER_CONFIGS: self.handle_alter_configs,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: self.handle_incremental_alter_configs,
        }

    async def handle_alter_configs(
        self, context: RequestContext, request: legacy.AlterConfigsRequest
    ) -> legacy.AlterConfigsResponse:
        """Answers once the new configurations are in effect here."""
        results = await self._results(context, request, legacy.AlterConfigsResourceResponse)
        return legacy.AlterConfigsResponse(responses=results)

    async def handle_incremental_alter_configs(
        self, context: RequestContext, request: incremental.IncrementalAlterConfigsRequest
    ) -> incremental.IncrementalAlterConfigsResponse:
        """Answers once the changes are in effect here."""
        results = await self._results(context, request, incremental.AlterConfigsResourceResponse)
        return incremental.IncrementalAlterConfigsResponse(responses=results)

    async def _results(self, context: RequestContext, request: Request, result: Callable[..., Any]) -> list[Any]:
        """Returns one result per resource of the request, the refused ones last."""
        refused: list[Any] = []
        forwarded: list[Any] = []
        for resource in request.resources:
            error = self._refusal(resource)
            if error is None:
                forwarded.append(resource)
            else:
                refused.append(
                    result(
                        error_code=error.code,
                        error_message=error.message,
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                )
        if not forwarded:
            return refused
        if refused:
            context = _with_request(context, replace(request, resources=forwarded))
        response: Any = await self._forwarding.forward(context, timeout_ms=TIMEOUT_MS)
        if not request.validate_only and any(each.error_code == ErrorCode.NONE for each in response.responses):
            await self._applied()
        return [*response.responses, *refused]

    def _refusal(self, resource: legacy.AlterConfigsResource | incremental.AlterConfigsResource) -> ApiError | None:
        name = resource.resource_name
        if resource.resource_type != ConfigResourceType.BROKER or name == "":
            return None
        if name == str(self._broker_id):
            return self._refusal_of_cordons(resource)
        if not (name.isascii() and name.removeprefix("-").isdecimal()):
            return ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
        return ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {self._broker_id}, but received {name}")

    def _refusal_of_cordons(
        self, resource: legacy.AlterConfigsResource | incremental.AlterConfigsResource
    ) -> ApiError | None:
        """Refuses to cordon what is no directory of this broker (KIP-1066): only the broker knows its paths."""
        known = {*self._log_dirs, ALL_LOG_DIRS, ""}
        unknown = [
            path.strip()
            for config in resource.configs
            if config.name == CORDONED_LOG_DIRS and getattr(config, "config_operation", _SET) in _ADDING
            for path in (config.value or "").split(",")
            if path.strip() not in known
        ]
        if not unknown:
            return None
        return ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{unknown[0]} is not in log.dirs of broker {self._broker_id}: {', '.join(self._log_dirs)}",
        )

    async def _applied(self) -> None:
        try:
            async with self._env.timeout_at(self._env.now_ns() + TIMEOUT_MS * NS_PER_MS):
                await self._catch_up()
        except TimeoutError:
            # The change is committed anyway, and this broker will apply it later.
            return


def _with_request(context: RequestContext, request: Struct) -> RequestContext:
    """Returns the context with `request` as the content of the request."""
    header = RequestHeader(
        request_api_key=context.api_key,
        request_api_version=context.api_version,
        correlation_id=context.correlation_id,
        client_id=context.client_id,
    )
    encoded = encode(header, request_header_version(type(request), context.api_version))
    return replace(context, request_bytes=memoryview(encoded + encode(request, context.api_version)))
