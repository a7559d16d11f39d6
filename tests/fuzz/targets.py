"""All targets, by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.fuzz import configuration, files, records, segment, tools, wire
from tests.fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {target.name: target for module in (wire, records, files, configuration, segment, tools) for target in module.TARGETS}
)
