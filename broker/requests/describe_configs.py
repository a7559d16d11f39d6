"""Answers DescribeConfigs from the newest image and this broker's own configuration, in slices (shell without I/O)."""

from collections.abc import Coroutine
from typing import Any

from common.configuration.description import describe_configs
from common.configuration.resolver import ConfigResolver
from common.metadata.state import MetadataState
from common.net.request_context import RequestContext
from common.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from common.slices import result_in_slices

# What all configs of a topic take in a response, about.
_RESOURCE_BYTES = 1500


class DescribeConfigsRequests:
    """Handles DescribeConfigs."""

    def __init__(self, state: MetadataState, resolver: ConfigResolver) -> None:
        self._state = state
        self._resolver = resolver

    def handle(
        self, context: RequestContext, request: DescribeConfigsRequest
    ) -> Coroutine[Any, Any, DescribeConfigsResponse]:
        """Returns a coroutine of the response."""
        context.memory.expect_response(len(request.resources) * _RESOURCE_BYTES)
        return result_in_slices(describe_configs(self._state, self._resolver, request))
