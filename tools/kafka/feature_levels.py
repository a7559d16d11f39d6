"""The commands `version-mapping` and `feature-dependencies`, which kafka-features and kafka-storage have both (shell).

Counterpart of the commands of these names in Kafka's FeatureCommand and StorageTool. They show the features of this release,
which all work at any metadata.version.
"""

import argparse

from common.metadata.metadata_version import (
    CONTROLLER_FEATURES,
    DEFAULT_LEVEL,
    DEFAULT_TRANSACTION_VERSION,
    KRAFT_VERSION_FEATURE,
    LATEST_LEVEL,
    LEVEL_NAMES,
    METADATA_VERSION_FEATURE,
    MINIMUM_BOOTSTRAP_LEVEL,
    TRANSACTION_VERSION_FEATURE,
    UnknownMetadataVersion,
    level_name,
    parse_level,
    transaction_version_of,
)
from tools.errors import ToolError


def version_mapping(arguments: argparse.Namespace) -> int:
    """Prints the level that each feature has in this release. Raises ToolError."""
    release = arguments.release_version
    level = DEFAULT_LEVEL if release is None else release_level(release)
    print(f"{METADATA_VERSION_FEATURE}={level} ({level_name(level)})")
    print(f"{KRAFT_VERSION_FEATURE}=0")
    version = DEFAULT_TRANSACTION_VERSION if release is None else transaction_version_of(level)
    print(f"{TRANSACTION_VERSION_FEATURE}={version}")
    return 0


def feature_dependencies(arguments: argparse.Namespace) -> int:
    """Prints for each NAME=LEVEL which other features it requires. Raises ToolError."""
    for text in arguments.feature:
        name, level = parse_name_and_level(text)
        if name == METADATA_VERSION_FEATURE:
            if level not in LEVEL_NAMES:
                raise ToolError(f"Unknown metadata.version {level}")
            print(f"{name}={level} ({level_name(level)}) has no dependencies.")
            continue
        if name not in CONTROLLER_FEATURES:
            raise ToolError(f"Unknown feature: {name}")
        if level not in CONTROLLER_FEATURES[name]:
            raise ToolError(f"No feature:{name} with feature level {level}")
        print(f"{name}={level} has no dependencies.")
    return 0


def release_level(text: str) -> int:
    """Returns the metadata.version of a release, or of a name like 3.9-IV0. Raises ToolError."""
    try:
        return parse_level(text)
    except UnknownMetadataVersion:
        low, high = level_name(MINIMUM_BOOTSTRAP_LEVEL), level_name(LATEST_LEVEL)
        raise ToolError(f"Unknown release version '{text}'. Supported versions are: {low} to {high}") from None


def parse_name_and_level(text: str) -> tuple[str, int]:
    """Parses NAME=LEVEL. Raises ToolError with Kafka's text."""
    name, separator, level = text.partition("=")
    if not separator:
        raise ToolError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        number = int(level)
    except ValueError:
        number = 1 << 15
    if not -(1 << 15) <= number < 1 << 15:
        raise ToolError(f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short.")
    return name.strip(), number
