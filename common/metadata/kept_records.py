"""Records that nothing in Diskraft acts on yet: what identifies each, and which record removes it (core).

Quotas, ACLs, SCRAM credentials and delegation tokens have no effect here, but a log that Apache Kafka wrote may contain
them, and its nodes must find them again in our snapshots. So the state keeps them in one table: record type, then key, then
the last record with that key. The key is what the record replaces or removes in Apache Kafka. Removing a key that is absent
is no error, because no decision depends on these records.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from common.records.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    KnownRecord,
    MetadataRecordType,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

# The kept records of one type by key, in order of first appearance.
KeptTable = dict[Hashable, KnownRecord]


@dataclass(frozen=True, slots=True)
class _Rule:
    # The type of the records that the record is kept with or removed from.
    record_type: MetadataRecordType
    key: Callable[[Any], Hashable]
    removes: Callable[[Any], bool]


def _sets(record_type: MetadataRecordType, key: Callable[[Any], Hashable]) -> _Rule:
    return _Rule(record_type, key, lambda _: False)


def _removes(record_type: MetadataRecordType, key: Callable[[Any], Hashable]) -> _Rule:
    return _Rule(record_type, key, lambda _: True)


def _quota_key(record: ClientQuotaRecord) -> Hashable:
    # The order of an entity's parts has no meaning.
    return frozenset((part.entity_type, part.entity_name) for part in record.entity), record.key


_ACL, _SCRAM = MetadataRecordType.ACCESS_CONTROL_ENTRY_RECORD, MetadataRecordType.USER_SCRAM_CREDENTIAL_RECORD
_TOKEN, _QUOTA = MetadataRecordType.DELEGATION_TOKEN_RECORD, MetadataRecordType.CLIENT_QUOTA_RECORD

_RULES: Final[Mapping[type, _Rule]] = MappingProxyType(
    {
        ClientQuotaRecord: _Rule(_QUOTA, _quota_key, lambda record: record.remove),
        AccessControlEntryRecord: _sets(_ACL, lambda record: record.id),
        RemoveAccessControlEntryRecord: _removes(_ACL, lambda record: record.id),
        UserScramCredentialRecord: _sets(_SCRAM, lambda record: (record.name, record.mechanism)),
        RemoveUserScramCredentialRecord: _removes(_SCRAM, lambda record: (record.name, record.mechanism)),
        DelegationTokenRecord: _sets(_TOKEN, lambda record: record.token_id),
        RemoveDelegationTokenRecord: _removes(_TOKEN, lambda record: record.token_id),
    }
)

# The records that `keep` takes.
KEPT_RECORDS: Final = tuple(_RULES)


def keep(kept: dict[int, KeptTable], record: KnownRecord) -> None:
    """Keeps the record, or drops the one that it removes. Leaves no empty table behind."""
    rule = _RULES[type(record)]
    key = rule.key(record)
    if not rule.removes(record):
        kept.setdefault(rule.record_type, {})[key] = record
        return
    table = kept.get(rule.record_type)
    if table is not None:
        table.pop(key, None)
        if not table:
            del kept[rule.record_type]
