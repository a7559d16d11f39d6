"""Which numbering the records of a log select for the records after them."""

from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE
from common.metadata.record_reader import MetadataRecordReader
from common.protocol.numbering import Numbering
from common.records.metadata_frame import encode_record
from common.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    KnownRecord,
)

NUMBERED = FeatureLevelRecord(name=DIRECTORY_NUMBERING_FEATURE, feature_level=1)


def numberings(*records: KnownRecord) -> list[Numbering]:
    """Decodes the records and returns the numbering after each."""
    reader = MetadataRecordReader()
    found = []
    for record in records:
        reader.decode(encode_record(record, 0, Numbering.APACHE))
        found.append(reader.numbering)
    return found


def test_the_numbering_counts_for_the_rest_of_its_transaction_and_after() -> None:
    assert numberings(BeginTransactionRecord(), NUMBERED, EndTransactionRecord(), BeginTransactionRecord()) == [
        Numbering.APACHE,
        *[Numbering.KIP858] * 3,
    ]


def test_an_aborted_transaction_does_not_select_the_numbering() -> None:
    """The feature of an aborted transaction is not finalized, so the records after it have the numbering from before."""
    assert numberings(BeginTransactionRecord(), NUMBERED, AbortTransactionRecord()) == [
        Numbering.APACHE,
        Numbering.KIP858,
        Numbering.APACHE,
    ]
    aborted = (BeginTransactionRecord(), AbortTransactionRecord())
    assert numberings(NUMBERED, *aborted)[-1] is Numbering.KIP858
