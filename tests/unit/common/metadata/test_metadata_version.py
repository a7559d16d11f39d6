"""The levels of metadata.version, and how to find a log's numbering of directory ids."""

import pytest

from common.metadata.metadata_version import (
    CONTROLLER_FEATURES,
    DEFAULT_LEVEL,
    LATEST_LEVEL,
    LEVEL_NAMES,
    UnknownMetadataVersion,
    level_name,
    numbering_of,
    numbering_of_level,
    parse_level,
    partition_change_record_version,
    partition_record_version,
    register_broker_record_version,
)
from common.protocol.numbering import Numbering
from common.records.metadata_records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    KnownRecord,
    NoOpRecord,
    TopicRecord,
)

NUMBERED = FeatureLevelRecord(name="diskraft.directory.numbering", feature_level=1)
LEVEL_21 = FeatureLevelRecord(name="metadata.version", feature_level=21)


@pytest.mark.parametrize(
    ("level", "register", "partition"),
    [
        (1, 0, 0),
        (6, 0, 0),
        (7, 1, 0),
        (8, 2, 0),
        (16, 2, 0),
        (17, 3, 1),
        (21, 3, 1),
        (22, 3, 1),
        (23, 3, 2),
        (29, 3, 2),
    ],
)
def test_each_level_permits_the_record_versions_that_kafka_writes_at_it(level: int, register: int, partition: int) -> None:
    """Each level permits the record versions that Kafka writes at that level."""
    assert register_broker_record_version(level) == register
    assert partition_record_version(level) == partition
    assert partition_change_record_version(level) == partition


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("3.9-IV0", 21),
        ("3.9", 21),
        ("3.9.1", 21),
        ("21", 21),
        ("3.7", 19),
        ("3.7-IV2", 17),
        ("4.0", 25),
        ("4.2", 29),
        ("3.3", 7),
    ],
)
def test_names_releases_and_numbers_are_understood_as_levels(text: str, level: int) -> None:
    """A level may be given by name (3.9-IV0), by release (3.9), by patch release (3.9.1) or by number (21)."""
    assert parse_level(text) == level


@pytest.mark.parametrize("text", ["", "3.9-IV9", "2.8", "34", "0", "-1", "3.", "latest", "³"])
def test_any_other_text_is_refused_as_a_level(text: str) -> None:
    """Text that names no known level is refused, and the error lists the known levels."""
    with pytest.raises(UnknownMetadataVersion, match=r"3\.9-IV0"):
        parse_level(text)


def test_level_names_have_no_gap_and_a_future_level_is_its_number() -> None:
    """LEVEL_NAMES has no gaps. A level newer than all known ones is printed as its number."""
    assert list(LEVEL_NAMES) == list(range(1, 34))
    assert level_name(DEFAULT_LEVEL) == "3.9-IV0"
    assert level_name(99) == "99"
    supported = CONTROLLER_FEATURES["metadata.version"]
    assert DEFAULT_LEVEL in supported
    assert LATEST_LEVEL + 1 not in supported


@pytest.mark.parametrize(
    ("records", "numbering"),
    [
        ([LEVEL_21, NUMBERED], Numbering.KIP858),
        ([BeginTransactionRecord(name="b"), LEVEL_21, NUMBERED, EndTransactionRecord()], Numbering.KIP858),
        ([LEVEL_21], Numbering.APACHE),
        ([], None),
        ([BeginTransactionRecord(name="b"), NoOpRecord()], None),
        ([TopicRecord(name="t")], Numbering.APACHE),
        ([LEVEL_21, NoOpRecord(), TopicRecord(name="t"), NUMBERED], Numbering.APACHE),
    ],
)
def test_numbering_of_a_log(records: list[KnownRecord], numbering: Numbering | None) -> None:
    """The log uses KIP-858's numbers if diskraft.directory.numbering is among its first records, otherwise Apache's. A log
    without features has not decided."""
    assert numbering_of(records) is numbering


def test_an_unknown_numbering_is_not_guessed() -> None:
    """A log with an unknown level of diskraft.directory.numbering is refused, not read with a known numbering."""
    assert numbering_of_level(0) is Numbering.APACHE
    with pytest.raises(UnknownMetadataVersion):
        numbering_of([FeatureLevelRecord(name="diskraft.directory.numbering", feature_level=2)])
