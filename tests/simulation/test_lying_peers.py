"""Peers return well-formed but wrong responses. A daemon must keep running or halt with a reason, never fail because of a
bug.

Now and then one field of a response gets another value while it is encoded. The answering daemon owns the message and may
keep parts of it, so the field is restored as soon as the bytes are made.
"""

import contextlib
import random
from collections import Counter
from typing import Any

import pytest

from common.net import served_connection
from common.parts import Part
from common.protocol.errors import EncodeError, ErrorCode
from common.protocol.framing import encode_response_frame
from common.protocol.messages.api_versions import ApiVersionsResponse
from common.protocol.messages.produce import ProduceResponse
from common.protocol.numbering import Numbering
from common.protocol.schema import FieldSchema, Struct
from tests.fuzz.messages import Vocabulary, other_value
from tests.simulation.cluster import NotAcknowledged, SimulatedClient, SimulatedCluster, run

VOCABULARY = Vocabulary(numbers=(0, 0, 1, 2, 3, -1, -2, 5, 100, 1000, 2**31, 2**62), strings=("t", "", "x" * 300))
ERROR_CODES = (*map(int, ErrorCode), 999)
ATTEMPTS = 60
# Maps the number of an attempt to the broker that crashes at that point. A restarted broker registers and may fetch a
# snapshot, so those responses are changed as well.
CRASHES = {10: 1, 30: 2}
STARTS_AFTER = 6


class Liar:
    """Stands in for `encode_response_frame`. Changes responses only while `is_lying` is set."""

    def __init__(self, rng: random.Random, rate: float) -> None:
        self._rng = rng
        self._rate = rate
        self.is_lying = False
        self.lies: Counter[str] = Counter()

    def encode(self, correlation_id: int, message: Struct, version: int, *, numbering: Numbering) -> list[Part]:
        # Some responses stay correct: without ApiVersions a client can send nothing at all, and the test's own client needs
        # its produce responses.
        is_exempt = isinstance(message, ApiVersionsResponse | ProduceResponse)
        if not self.is_lying or is_exempt or self._rng.random() >= self._rate:
            return encode_response_frame(correlation_id, message, version, numbering=numbering)
        owner, field = self._rng.choice(_fields(message, version))
        truth = getattr(owner, field.name)
        try:
            setattr(owner, field.name, self._lie(owner, field, version))
            frame = encode_response_frame(correlation_id, message, version, numbering=numbering)
        except EncodeError:
            # The new value contradicts another field, so the response stays as it was.
            setattr(owner, field.name, truth)
            return encode_response_frame(correlation_id, message, version, numbering=numbering)
        setattr(owner, field.name, truth)
        self.lies[type(message).__name__] += 1
        return frame

    def _lie(self, owner: Struct, field: FieldSchema, version: int) -> Any:
        if field.name == "error_code":
            return self._rng.choice(ERROR_CODES)
        return other_value(owner, field, version, self._rng, VOCABULARY)


def _fields(message: Struct, version: int) -> list[tuple[Struct, FieldSchema]]:
    """Returns every field on the wire, with the struct that it belongs to."""
    found: list[tuple[Struct, FieldSchema]] = []
    for field in message.wire_schema.fields:
        if version not in field.versions:
            continue
        found.append((message, field))
        value = getattr(message, field.name)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Struct):
                found += _fields(inner, version)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_daemon_fails_when_its_peers_lie(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One response in ten is wrong while a client writes and brokers restart."""
    liar = Liar(random.Random(seed), 0.1)
    monkeypatch.setattr(served_connection, "encode_response_frame", liar.encode)

    async def scenario(cluster: SimulatedCluster, client: SimulatedClient) -> None:
        await client.create_topic("t", partitions=6)
        liar.is_lying = True
        for number in range(ATTEMPTS):
            victim = CRASHES.get(number)
            if victim is not None and not cluster.env(victim).is_dead:
                cluster.crash(victim)
            risen = CRASHES.get(number - STARTS_AFTER)
            if risen is not None and cluster.env(risen).is_dead:
                cluster.start_node(risen)
            with contextlib.suppress(NotAcknowledged):
                await client.produce_once("t", number % 6, b"%d" % number)
            await cluster.world.sleep(0.2)
        liar.is_lying = False
        client.acknowledged.clear()

    world = run(scenario, seed=seed)
    for event in ("daemon_failed", "callback_failed", "thread_failed"):
        assert world.events_named(event) == []
    assert liar.lies
