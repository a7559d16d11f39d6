"""The server-side assignors by their names (core)."""

from collections.abc import Mapping
from types import MappingProxyType

from broker.coordinator.core.consumer_group.assignor import Assignor
from broker.coordinator.core.consumer_group.range_assignor import assign_ranges
from broker.coordinator.core.consumer_group.uniform_assignor import assign_uniformly

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniformly, "range": assign_ranges})
