"""The first records of a new cluster, and the `bootstrap.checkpoint` file that holds them until they are in the log.

No I/O of its own. Counterpart of Kafka's BootstrapMetadata and BootstrapDirectory. The file is a snapshot of epoch 0. The
first active controller writes the file's records into the empty log. metadata.version comes first, then the feature that
selects KIP-858's numbering of the reserved directory ids (docs/DESIGN.md, "Ids and records"). A record that holds a
directory id must come after the record of that feature.
"""

from collections.abc import Sequence

from common.ids import LeaderEpoch
from common.metadata.metadata_version import (
    DEFAULT_LEVEL,
    DIRECTORY_NUMBERING_FEATURE,
    DIRECTORY_NUMBERING_KIP858,
    GROUP_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    TRANSACTION_VERSION_FEATURE,
)
from common.metadata.record_reader import MetadataRecordReader
from common.protocol.numbering import Numbering
from common.raft.core.record_batches import decode_values
from common.raft.core.snapshot_content import SnapshotEncoder, parse_snapshot
from common.records.metadata_frame import ApiMessageAndVersion, read_frame_head
from common.records.metadata_records import FeatureLevelRecord
from common.records.record import iterate_values

_BOOTSTRAP_EPOCH = LeaderEpoch(0)


def bootstrap_records(
    metadata_version: int = DEFAULT_LEVEL,
    numbering: Numbering = Numbering.KIP858,
    transaction_version: int = 0,
    group_version: int = 0,
) -> list[ApiMessageAndVersion]:
    """Returns the records of a cluster with these features. Those at level 0 have none."""
    levels = [(METADATA_VERSION_FEATURE, metadata_version)]
    if numbering is Numbering.KIP858:
        levels.append((DIRECTORY_NUMBERING_FEATURE, DIRECTORY_NUMBERING_KIP858))
    if transaction_version:
        levels.append((TRANSACTION_VERSION_FEATURE, transaction_version))
    if group_version:
        levels.append((GROUP_VERSION_FEATURE, group_version))
    return [ApiMessageAndVersion(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in levels]


def make_bootstrap_checkpoint(records: Sequence[ApiMessageAndVersion], *, written_ms: int = 0) -> bytes:
    """Encodes the content of `bootstrap.checkpoint`. Raises ValueError unless metadata.version comes first."""
    first = records[0].record if records else None
    if not isinstance(first, FeatureLevelRecord) or first.name != METADATA_VERSION_FEATURE:
        raise ValueError("the first bootstrap record has to be the feature level of metadata.version")
    encoder = SnapshotEncoder(epoch=_BOOTSTRAP_EPOCH, numbering=Numbering.KIP858, written_ms=written_ms)
    return b"".join([encoder.header(written_ms), *encoder.records(records), encoder.footer()])


def read_bootstrap_checkpoint(content: bytes) -> list[ApiMessageAndVersion]:
    """Decodes the records of `bootstrap.checkpoint`, with their versions. Raises InvalidSnapshot or UnreadableBatch."""
    reader = MetadataRecordReader()
    records = []
    for header, view in parse_snapshot(content).batches:
        # Decode before reading the versions below: `decode_values` reports everything that can be wrong with the batch.
        decoded = list(decode_values(header, view, reader))
        versions = [read_frame_head(value)[1] for _, value in iterate_values(view)]
        records += [ApiMessageAndVersion(*pair) for pair in zip(decoded, versions, strict=True)]
    return records
