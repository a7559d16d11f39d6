"""Describes the configuration of topics, brokers and this controller (core).

As an operation without records it is answered once everything that it may have read is committed.
"""

from common.configuration.description import describe_configs
from common.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from controller.core.long_decisions import RESOURCE_COST, Sliced, slices_of
from controller.core.result import ControllerResult
from controller.core.turn import Turn


def handle_describe_configs(
    turn: Turn, request: DescribeConfigsRequest
) -> Sliced[ControllerResult[DescribeConfigsResponse]]:
    """Describes the requested resources, in slices. Each has its own error."""
    response = yield from slices_of(describe_configs(turn.state, turn.settings.resolver, request), RESOURCE_COST)
    return ControllerResult([], response)
