"""Describes the configuration of topics, brokers and this controller (core).

As an operation without records it is answered once everything that it may have read is committed.
"""

from common.configuration.description import describe_configs
from common.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from controller.core.result import ControllerResult
from controller.core.turn import Turn


def handle_describe_configs(turn: Turn, request: DescribeConfigsRequest) -> ControllerResult[DescribeConfigsResponse]:
    """Describes the requested resources. Each has its own error."""
    return ControllerResult([], describe_configs(turn.state, turn.settings.resolver, request))
