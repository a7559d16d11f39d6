"""The levels of the feature metadata.version and what each one permits (core).

Counterpart of Kafka's MetadataVersion. The level decides which record versions a controller may write. Readers understand
all versions of a record at any level.

The numbering of the reserved directory ids does not depend on the level. A cluster with KIP-858's numbers has the feature
`diskraft.directory.numbering` at level 1, which keeps Apache's brokers out. A cluster without this feature uses Apache's
numbers. The feature is finalized before any partition is written, so a node that reads the log from the start knows the
numbering in time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from common.protocol.numbering import Numbering
from common.records.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ZkMigrationRecord,
)

METADATA_VERSION_FEATURE: Final = "metadata.version"
KRAFT_VERSION_FEATURE: Final = "kraft.version"
DIRECTORY_NUMBERING_FEATURE: Final = "diskraft.directory.numbering"
DIRECTORY_NUMBERING_KIP858: Final = 1
TRANSACTION_VERSION_FEATURE: Final = "transaction.version"
# Kafka's levels of transaction.version (KIP-890): flexible records in __transaction_state; a new epoch for each transaction.
FLEXIBLE_RECORDS_TRANSACTION_VERSION: Final = 1
EPOCH_BUMP_TRANSACTION_VERSION: Final = 2
GROUP_VERSION_FEATURE: Final = "group.version"
ELIGIBLE_LEADER_REPLICAS_FEATURE: Final = "eligible.leader.replicas.version"
# What a cluster is formatted with unless a release is named. It is more than a metadata.version of 3.9 brings in Kafka:
# docs/DESIGN.md, "Decisions between the KIPs and Apache Kafka".
DEFAULT_TRANSACTION_VERSION: Final = EPOCH_BUMP_TRANSACTION_VERSION

# The first KRaft level. A log without a metadata.version record has this level.
MINIMUM_LEVEL: Final = 1
# The lowest level that a cluster can be formatted with. Lower levels are never written to the log.
MINIMUM_BOOTSTRAP_LEVEL: Final = 4
DEFAULT_LEVEL: Final = 21
# Share groups and Streams groups, which this code does not have, are features of their own in Kafka's releases.
LATEST_LEVEL: Final = 33

NO_OP_LEVEL: Final = 5
BROKER_REGISTRATION_CHANGE_LEVEL: Final = 6
IN_CONTROLLED_SHUTDOWN_LEVEL: Final = 7
ZK_MIGRATION_LEVEL: Final = 8
SCRAM_LEVEL: Final = 11
NO_EPOCH_BUMP_ON_ISR_SHRINK_LEVEL: Final = 12
TRANSACTIONS_LEVEL: Final = 13
DELEGATION_TOKEN_LEVEL: Final = 14
CONTROLLER_REGISTRATION_LEVEL: Final = 15
DIRECTORY_ASSIGNMENT_LEVEL: Final = 17
ELIGIBLE_LEADER_REPLICAS_LEVEL: Final = 23
TRANSACTION_VERSION_LEVEL: Final = 24
CORDONED_DIRECTORIES_LEVEL: Final = 30
# The lowest metadata.version with which Kafka 4 lets another feature rise above level 0.
FURTHER_FEATURES_LEVEL: Final = IN_CONTROLLED_SHUTDOWN_LEVEL

LEVEL_NAMES: Final = MappingProxyType(
    {
        1: "3.0-IV1",
        2: "3.1-IV0",
        3: "3.2-IV0",
        4: "3.3-IV0",
        5: "3.3-IV1",
        6: "3.3-IV2",
        7: "3.3-IV3",
        8: "3.4-IV0",
        9: "3.5-IV0",
        10: "3.5-IV1",
        11: "3.5-IV2",
        12: "3.6-IV0",
        13: "3.6-IV1",
        14: "3.6-IV2",
        15: "3.7-IV0",
        16: "3.7-IV1",
        17: "3.7-IV2",
        18: "3.7-IV3",
        19: "3.7-IV4",
        20: "3.8-IV0",
        21: "3.9-IV0",
        22: "4.0-IV0",
        23: "4.0-IV1",
        24: "4.0-IV2",
        25: "4.0-IV3",
        26: "4.1-IV0",
        27: "4.1-IV1",
        28: "4.2-IV0",
        29: "4.2-IV1",
        30: "4.3-IV0",
        31: "4.4-IV0",
        32: "4.4-IV1",
        33: "4.4-IV2",
    }
)

_LEVELS_BY_NAME: Final = MappingProxyType({name: level for level, name in LEVEL_NAMES.items()})


@dataclass(frozen=True, slots=True)
class SupportedLevels:
    """The range of levels of a feature that this code supports."""

    minimum: int
    maximum: int

    def __contains__(self, level: int) -> bool:
        return self.minimum <= level <= self.maximum

    def __str__(self) -> str:
        return f"{self.minimum} to {self.maximum}"


Features = Mapping[str, SupportedLevels]

# What our controllers announce when they register and in ApiVersions. kraft.version 0 means a static quorum. The level of
# group.version is for Apache Kafka's brokers: ours serve the consumer protocol at either (docs/DESIGN.md).
CONTROLLER_FEATURES: Final[Features] = MappingProxyType(
    {
        METADATA_VERSION_FEATURE: SupportedLevels(MINIMUM_LEVEL, LATEST_LEVEL),
        KRAFT_VERSION_FEATURE: SupportedLevels(0, 0),
        DIRECTORY_NUMBERING_FEATURE: SupportedLevels(0, DIRECTORY_NUMBERING_KIP858),
        TRANSACTION_VERSION_FEATURE: SupportedLevels(0, EPOCH_BUMP_TRANSACTION_VERSION),
        GROUP_VERSION_FEATURE: SupportedLevels(0, 1),
    }
)
# What our brokers announce. It is more: they follow Apache Kafka's controllers even where these change their voters at run
# time (KIP-853) or choose leaders among replicas outside the ISR that have all that is committed (KIP-966).
BROKER_FEATURES: Final[Features] = MappingProxyType(
    {
        **CONTROLLER_FEATURES,
        KRAFT_VERSION_FEATURE: SupportedLevels(0, 1),
        ELIGIBLE_LEADER_REPLICAS_FEATURE: SupportedLevels(0, 1),
    }
)


def supported_levels(features: Features, name: str) -> SupportedLevels:
    """Returns the levels of a feature that a node with these features supports; only level 0 (absent) of one that it does
    not know."""
    return features.get(name, SupportedLevels(0, 0))


class UnknownMetadataVersion(ValueError):
    """The level of metadata.version, or of the numbering feature, is unknown."""


def level_name(level: int) -> str:
    """Returns Kafka's name for the level, or the number itself if the level is unknown."""
    return LEVEL_NAMES.get(level, str(level))


def parse_level(text: str) -> int:
    """Parses a level from its name ("3.9-IV0"), its number, or a release.

    For a release ("3.9", "3.9.1") it returns the last level of that release. Raises UnknownMetadataVersion.
    """
    if text in _LEVELS_BY_NAME:
        return _LEVELS_BY_NAME[text]
    if text.isascii() and text.isdigit() and int(text) in LEVEL_NAMES:
        return int(text)
    release = ".".join(text.split(".")[:2]) if "-" not in text else text
    levels = [level for name, level in _LEVELS_BY_NAME.items() if name.partition("-")[0] == release]
    if not levels:
        raise UnknownMetadataVersion(f"'{text}' is no metadata.version; known are {', '.join(_LEVELS_BY_NAME)}")
    return max(levels)


def transaction_version_of(level: int) -> int:
    """Returns the transaction.version that a release with this metadata.version has by default."""
    return EPOCH_BUMP_TRANSACTION_VERSION if level >= TRANSACTION_VERSION_LEVEL else 0


def is_directory_assignment_supported(level: int) -> bool:
    """Whether records and requests carry the directories of replicas at this level."""
    return level >= DIRECTORY_ASSIGNMENT_LEVEL


def is_cordoning_supported(level: int) -> bool:
    """Whether records and requests carry the cordoned directories of brokers at this level (KIP-1066)."""
    return level >= CORDONED_DIRECTORIES_LEVEL


def register_broker_record_version(level: int) -> int:
    """Returns the version in which to write a RegisterBrokerRecord."""
    if is_cordoning_supported(level):
        return 4
    if level >= DIRECTORY_ASSIGNMENT_LEVEL:
        return 3
    if level >= ZK_MIGRATION_LEVEL:
        return 2
    return 1 if level >= IN_CONTROLLED_SHUTDOWN_LEVEL else 0


def partition_record_version(level: int) -> int:
    """Returns the version in which to write a PartitionRecord."""
    if level >= ELIGIBLE_LEADER_REPLICAS_LEVEL:
        return 2
    return 1 if level >= DIRECTORY_ASSIGNMENT_LEVEL else 0


def partition_change_record_version(level: int) -> int:
    """Returns the version in which to write a PartitionChangeRecord: the same as for a PartitionRecord."""
    return partition_record_version(level)


# The types of records that a log may start with: feature records, and those that may precede or separate them.
_PREAMBLE = (FeatureLevelRecord, BeginTransactionRecord, EndTransactionRecord, NoOpRecord, ZkMigrationRecord)


def numbering_of(records: Iterable[object]) -> Numbering | None:
    """Returns the numbering selected by the first feature records of a log, snapshot or bootstrap file.

    Stops reading at the first record that is not allowed before a feature record. Returns None if the records end before the
    first feature record. All records must have taken effect: none may belong to an aborted transaction.
    """
    selected = None
    for record in records:
        if not isinstance(record, _PREAMBLE):
            return Numbering.APACHE
        if isinstance(record, FeatureLevelRecord):
            if record.name == DIRECTORY_NUMBERING_FEATURE:
                return numbering_of_level(record.feature_level)
            selected = Numbering.APACHE
    return selected


def numbering_of_level(level: int) -> Numbering:
    """Returns the numbering for a level of the numbering feature (0 if absent). Raises UnknownMetadataVersion."""
    if level == 0:
        return Numbering.APACHE
    if level == DIRECTORY_NUMBERING_KIP858:
        return Numbering.KIP858
    raise UnknownMetadataVersion(f"{DIRECTORY_NUMBERING_FEATURE} has level {level}, known are 0 and 1")
