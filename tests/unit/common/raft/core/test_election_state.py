"""The quorum-state file in both versions, valid and damaged."""

import pytest

from common.ids import BrokerId, LeaderEpoch
from common.raft.core.election_state import (
    ElectionState,
    InvalidQuorumState,
    decode_quorum_state,
    encode_quorum_state,
)

LED = ElectionState(epoch=LeaderEpoch(5), leader_id=BrokerId(3))
VERSION_1 = b'{"leaderId":%s,"leaderEpoch":%s,"votedId":%s,"votedDirectoryId":"%s","data_version":1}'
VOTED = ElectionState(epoch=LeaderEpoch(6), voted_id=BrokerId(1))


def test_version_0_reads_as_apache_kafka_writes_it() -> None:
    """The line must match exactly, because Apache Kafka's tools and nodes read it."""
    assert encode_quorum_state(LED, [BrokerId(1), BrokerId(3)]) == (
        b'{"clusterId":"","leaderId":3,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":3}],"data_version":0}'
    )


@pytest.mark.parametrize("state", [LED, VOTED, ElectionState()])
def test_what_is_written_is_read_back(state: ElectionState) -> None:
    """A state with a leader, with a vote or with neither is the same after encoding and decoding."""
    assert decode_quorum_state(encode_quorum_state(state, [BrokerId(1)])) == state


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (VERSION_1 % (b"3", b"5", b"-1", b"AAAAAAAAAAAAAAAAAAAAAA"), LED),
        (VERSION_1 % (b"-1", b"6", b"1", b"AAAAAAAAAAAAAAAAAAAAAA"), VOTED),
        (VERSION_1 % (b"-1", b"0", b"-1", b"AAAAAAAAAAAAAAAAAAAAAA"), ElectionState()),
        (VERSION_1 % (b"-1", b"6", b"1", b"AAECAwQFBgcICQoLDA0ODw"), VOTED),
    ],
)
def test_version_1_is_read(line: bytes, state: ElectionState) -> None:
    """Apache Kafka writes version 1 under kraft.version 1. The directory id of the vote is not read."""
    assert decode_quorum_state(line) == state


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":2}',
        b'{"leaderId":1,"leaderEpoch":-2,"votedId":-1,"data_version":0}',
        b'{"leaderId":"1","leaderEpoch":2,"votedId":-1,"data_version":0}',
        b'{"leaderId":1,"leaderEpoch":true,"votedId":-1,"data_version":0}',
    ],
)
def test_a_damaged_file_is_refused(content: bytes) -> None:
    """Any damage raises InvalidQuorumState, so that the startup can report it with the name of the file."""
    with pytest.raises(InvalidQuorumState):
        decode_quorum_state(content)
