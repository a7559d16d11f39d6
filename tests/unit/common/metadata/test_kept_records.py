"""The records that nothing acts on: the last one of each key is kept until another record removes it."""

import pytest

from common.ids import Offset
from common.metadata.state import MetadataState, ReplayError
from common.records.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    KnownRecord,
    MetadataRecordType,
    ProducerIdsRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tests.unit.common.metadata.builders import replay, uuid


def quota(
    value: float, *names: tuple[str, str | None], key: str = "producer_byte_rate", remove: bool = False
) -> KnownRecord:
    entity = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in names]
    return ClientQuotaRecord(entity=entity, key=key, value=value, remove=remove)


USER = ("user", "u")
CLIENT = ("client-id", None)
ACL = AccessControlEntryRecord(id=uuid(1), principal="User:u")
SCRAM = UserScramCredentialRecord(name="u", mechanism=1, iterations=4096)
TOKEN, RENEWED = (DelegationTokenRecord(token_id="i", expiration_timestamp=time) for time in (1, 2))

# The records that are replayed, and those that are kept afterwards.
CASES: dict[str, tuple[list[KnownRecord], list[KnownRecord]]] = {
    "a quota is replaced": ([quota(1, USER), quota(2, USER)], [quota(2, USER)]),
    "the order of the entity's parts has no meaning": (
        [quota(1, USER, CLIENT), quota(2, CLIENT, USER)],
        [quota(2, CLIENT, USER)],
    ),
    "a part of an entity is another entity": (
        [quota(1, USER, CLIENT), quota(2, USER)],
        [quota(1, USER, CLIENT), quota(2, USER)],
    ),
    "the default entity is not the one with an empty name": (
        [quota(1, ("user", None)), quota(2, ("user", ""))],
        [quota(1, ("user", None)), quota(2, ("user", ""))],
    ),
    "each key is a quota": ([quota(1, USER), quota(2, USER, key="k")], [quota(1, USER), quota(2, USER, key="k")]),
    "a quota is removed": ([quota(1, USER), quota(1, USER, remove=True)], []),
    "one of two quotas is removed": ([quota(1, USER), quota(2, CLIENT), quota(0, USER, remove=True)], [quota(2, CLIENT)]),
    "an unknown quota is removed": ([quota(0, USER, remove=True)], []),
    "an acl is removed": ([ACL, RemoveAccessControlEntryRecord(id=uuid(1))], []),
    "another acl is removed": ([ACL, RemoveAccessControlEntryRecord(id=uuid(2))], [ACL]),
    "a credential is removed": ([SCRAM, RemoveUserScramCredentialRecord(name="u", mechanism=1)], []),
    "the credential of another mechanism is removed": (
        [SCRAM, RemoveUserScramCredentialRecord(name="u", mechanism=2)],
        [SCRAM],
    ),
    "a token is renewed": ([TOKEN, RENEWED], [RENEWED]),
    "a token is removed": ([TOKEN, RemoveDelegationTokenRecord(token_id="i")], []),
}


@pytest.mark.parametrize(("records", "expected"), CASES.values(), ids=CASES)
def test_the_last_record_of_each_key_is_kept(records: list[KnownRecord], expected: list[KnownRecord]) -> None:
    """No empty table stays behind: states are compared, and one of them may come from a snapshot."""
    state = replay(*records)
    assert [record for table in state.kept_records.values() for record in table.values()] == expected
    assert all(state.kept_records.values())


def test_kept_records_are_part_of_the_state() -> None:
    """Two states differ if their kept records do, and a state that is replaced takes over those of the other."""
    state = replay(ACL)
    assert state != MetadataState()
    before = state.replace_with(replay(TOKEN))
    assert list(before.kept_records) == [MetadataRecordType.ACCESS_CONTROL_ENTRY_RECORD]
    assert list(state.kept_records) == [MetadataRecordType.DELEGATION_TOKEN_RECORD]


def test_the_next_producer_id_only_rises() -> None:
    """A record with the same or a lower id would let two producers have one id."""
    state = replay(ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=1000))
    assert state.next_producer_id == 1000
    assert state != MetadataState()
    for next_id in (1000, 999, 0):
        with pytest.raises(ReplayError, match="the next producer id is"):
            state.replay(ProducerIdsRecord(next_producer_id=next_id), offset=Offset(1))
    assert replay(ProducerIdsRecord(next_producer_id=2000), into=state).next_producer_id == 2000
