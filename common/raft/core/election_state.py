"""The election state that a node must not forget, and the `quorum-state` file that holds it (core).

Counterpart of Kafka's ElectionState and FileQuorumStateStore. The file records a promise: "I voted for this candidate in
this epoch". It must therefore be durable *before* the node acts on it. We write version 0 (kraft.version 0) and read version
1 as well, without the directory id of the vote: the voters are static, and a vote is for a node.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.ids import BrokerId, LeaderEpoch

_NOBODY = -1
_INT32_MAX = 2**31 - 1
_NO_EPOCH_YET = LeaderEpoch(0)


class InvalidQuorumState(Exception):
    """The `quorum-state` file cannot be read; the text says why."""


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The epoch, its leader if known, and this node's vote in that epoch."""

    epoch: LeaderEpoch = _NO_EPOCH_YET
    leader_id: BrokerId | None = None
    voted_id: BrokerId | None = None


def encode_quorum_state(state: ElectionState, voters: Sequence[BrokerId]) -> bytes:
    """Encodes the state as one JSON line of data version 0, as Apache Kafka writes it under kraft.version 0."""
    content = {
        "clusterId": "",
        "leaderId": _NOBODY if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": _NOBODY if state.voted_id is None else state.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in voters],
        "data_version": 0,
    }
    return json.dumps(content, separators=(",", ":")).encode("utf-8")


def decode_quorum_state(content: bytes) -> ElectionState:
    """Decodes a quorum-state file of data version 0 or 1. Raises InvalidQuorumState."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        # Thousands of nested brackets raise RecursionError.
        raise InvalidQuorumState(f"not a JSON line: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidQuorumState("not a JSON object")
    version = _number(fields, "data_version")
    if version not in (0, 1):
        raise InvalidQuorumState(f"data_version is {version}, known are 0 and 1")
    epoch = _number(fields, "leaderEpoch")
    if epoch < 0:
        raise InvalidQuorumState(f"leaderEpoch is {epoch}")
    return ElectionState(
        epoch=LeaderEpoch(epoch),
        leader_id=_node(fields, "leaderId"),
        voted_id=_node(fields, "votedId"),
    )


def _number(fields: Mapping[str, Any], key: str) -> int:
    value = fields.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidQuorumState(f"{key} is {value!r}, it takes a number")
    if value > _INT32_MAX:
        raise InvalidQuorumState(f"{key} is greater than {_INT32_MAX}")
    return value


def _node(fields: Mapping[str, Any], key: str) -> BrokerId | None:
    value = _number(fields, key)
    return None if value < 0 else BrokerId(value)
