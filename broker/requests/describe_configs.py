"""Answers DescribeConfigs from the newest image and this broker's own configuration, in slices (shell without I/O)."""

from common.configuration.description import describe_configs
from common.configuration.resolver import ConfigResolver
from common.metadata.state import MetadataState
from common.net.request_context import RequestContext
from common.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from common.slices import result_in_slices


class DescribeConfigsRequests:
    """Handles DescribeConfigs."""

    def __init__(self, state: MetadataState, resolver: ConfigResolver) -> None:
        self._state = state
        self._resolver = resolver

    async def handle(self, _context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        return await result_in_slices(describe_configs(self._state, self._resolver, request))
