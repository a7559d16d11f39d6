"""A broker whose internal topics want more brokers than there are says so to the client that looks for a coordinator.

Asked over a socket, because clients take COORDINATOR_NOT_AVAILABLE for a moment's trouble and go on without a word.
"""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.protocol.api_keys import ApiKey
from common.protocol.codec import joined
from common.protocol.errors import ErrorCode
from common.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from common.protocol.messages.headers import RequestHeader
from tests.integration.cluster import until
from tests.request_frames import encode_request_frame
from tests.response_frames import parse_response
from tools.lab.local_cluster import LocalCluster

VERSION = 6
GROUP, TRANSACTION = 0, 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of one broker that is to have three replicas."""
    three = {f"{topic}.replication.factor": "3" for topic in ("offsets.topic", "transaction.state.log")}
    made = LocalCluster.create(tmp_path / "cluster", brokers=1, disks=1, loop=False, overrides=three)
    try:
        made.start()
        yield made
    finally:
        made.kill()
    made.delete()


def find_coordinator(bootstrap: str, key_type: int) -> Coordinator:
    host, _, port = bootstrap.partition(":")
    header = RequestHeader(
        request_api_key=ApiKey.FIND_COORDINATOR, request_api_version=VERSION, correlation_id=1, client_id="lost"
    )
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["key"])
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as answers:
        connection.sendall(joined(encode_request_frame(header, request, VERSION)))
        (size,) = struct.unpack(">i", answers.read(4))
        _, response = parse_response(FindCoordinatorResponse, answers.read(size), VERSION)
    [found] = response.coordinators
    assert isinstance(found, Coordinator)
    return found


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("key_type", "topic"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")])
def test_a_client_hears_why_there_is_no_coordinator(cluster: LocalCluster, key_type: int, topic: str) -> None:
    answers: list[Coordinator] = []

    def is_told() -> bool:
        answers.append(find_coordinator(cluster.bootstrap, key_type))
        return (answers[-1].error_message or "").startswith(f"{topic} cannot be created: ")

    until(is_told, "the client hears why")
    assert {each.error_code for each in answers} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert "replication factor" in (answers[-1].error_message or "").lower(), answers[-1]
