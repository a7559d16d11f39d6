"""The quorum-state file, both versions, good and bad."""

import json

import pytest

from common.ids import BrokerId, LeaderEpoch, Uuid
from common.raft.core.election_state import (
    ElectionState,
    InvalidQuorumState,
    decode_quorum_state,
    encode_quorum_state,
    encode_quorum_state_v1,
)

LED = ElectionState(epoch=LeaderEpoch(5), leader_id=BrokerId(3))
VOTED = ElectionState(epoch=LeaderEpoch(6), voted_id=BrokerId(1))


def test_version_0_reads_as_apache_kafka_writes_it() -> None:
    """The exact line, since Apache Kafka's tools and nodes read it."""
    assert encode_quorum_state(LED, [BrokerId(1), BrokerId(3)]) == (
        b'{"clusterId":"","leaderId":3,"leaderEpoch":5,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1},{"voterId":3}],"data_version":0}'
    )


@pytest.mark.parametrize("state", [LED, VOTED, ElectionState()])
def test_both_versions_are_read_back(state: ElectionState) -> None:
    """What is written is what is read, whether there is a leader, a vote or neither."""
    assert decode_quorum_state(encode_quorum_state(state, [BrokerId(1)])) == state
    assert decode_quorum_state(encode_quorum_state_v1(state)) == state


def test_version_1_keeps_the_directory_voted_for() -> None:
    """A vote of kraft.version 1 names the directory; a zero uuid means that it names none."""
    state = ElectionState(LeaderEpoch(6), None, BrokerId(1), Uuid(bytes(range(16))))
    assert decode_quorum_state(encode_quorum_state_v1(state)) == state
    assert json.loads(encode_quorum_state_v1(state))["votedDirectoryId"] == "AAECAwQFBgcICQoLDA0ODw"


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
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"short","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":7,"data_version":1}',
    ],
)
def test_a_damaged_file_is_refused(content: bytes) -> None:
    """Every damage ends in the one error type that the start-up turns into a line."""
    with pytest.raises(InvalidQuorumState):
        decode_quorum_state(content)
