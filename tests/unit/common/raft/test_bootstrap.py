"""The bootstrap.checkpoint that formatting writes."""

import pytest

from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, METADATA_VERSION_FEATURE, numbering_of
from common.protocol.numbering import Numbering
from common.raft.bootstrap import bootstrap_records, make_bootstrap_checkpoint, read_bootstrap_checkpoint
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import FeatureLevelRecord, NoOpRecord


@pytest.mark.parametrize("numbering", list(Numbering))
def test_a_new_cluster_begins_with_its_features(numbering: Numbering) -> None:
    """metadata.version comes first. The numbering feature follows only if KIP-858's numbering is used."""
    records = read_bootstrap_checkpoint(make_bootstrap_checkpoint(bootstrap_records(20, numbering), written_ms=7))
    expected = [
        FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=20),
        FeatureLevelRecord(name=DIRECTORY_NUMBERING_FEATURE, feature_level=1),
    ]
    assert [entry.record for entry in records] == (expected if numbering is Numbering.KIP858 else expected[:1])
    assert [entry.version for entry in records] == [0] * len(records)
    assert numbering_of(entry.record for entry in records) is numbering


def test_the_defaults_of_a_new_cluster() -> None:
    """A new cluster gets metadata.version 3.9-IV0 and KIP-858's numbering, even without a bootstrap.checkpoint."""
    assert [each.record for each in bootstrap_records()] == [
        FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=21),
        FeatureLevelRecord(name=DIRECTORY_NUMBERING_FEATURE, feature_level=1),
    ]


def test_metadata_version_has_to_come_first() -> None:
    """metadata.version must be the first record, because Apache's readers derive all other record versions from it."""
    other = ApiMessageAndVersion(FeatureLevelRecord(name=DIRECTORY_NUMBERING_FEATURE, feature_level=1), 0)
    for records in ([], [other], [ApiMessageAndVersion(NoOpRecord(), 0)]):
        with pytest.raises(ValueError, match=r"metadata\.version"):
            make_bootstrap_checkpoint(records)
