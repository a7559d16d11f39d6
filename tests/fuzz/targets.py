"""All targets, by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.fuzz import configuration, files, records, segment, wire
from tests.fuzz.target import Target

TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {target.name: target for module in (wire, records, files, configuration, segment) for target in module.TARGETS}
)
