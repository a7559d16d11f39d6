"""Garbage on the client port costs its own connection and one log line; other clients are served normally.

Each case runs beside a client that connected before the garbage was sent and is used again afterwards.
conftest checks that the daemons survive.
"""

import errno
import json
import random
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from common.configuration.endpoints import HostPort
from common.protocol.api_keys import ApiKey
from common.protocol.messages.metadata import MetadataResponse
from tests.interop.waiting import until_equal
from tests.response_frames import parse_response
from tools.lab.local_cluster import LocalCluster

SECONDS_MAX = 60.0
# One byte more than socket.request.max.bytes.
TOO_LONG = 104857600 + 1


def frame(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big", signed=True) + content


def header(api_key: int, version: int) -> bytes:
    """A request header of version 1 without a client id."""
    return api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(4) + b"\xff\xff"


FATAL = {
    "negative length": (-1).to_bytes(4, "big", signed=True),
    "length of zero": bytes(4),
    "length over the limit": TOO_LONG.to_bytes(4, "big") + bytes(100),
    "greatest length": b"\x7f\xff\xff\xff" + bytes(100),
    "frame shorter than a header": frame(b"\x00\x03"),
    "unknown api": frame(header(999, 0)),
    "negative api": frame(b"\xff\xff" + header(3, 1)[2:]),
    "api of controllers": frame(header(ApiKey.BROKER_HEARTBEAT, 0) + bytes(50)),
    # DescribeDelegationToken: a real request, which is not served.
    "delegation tokens": frame(header(41, 1) + bytes(4)),
    "unknown version": frame(header(ApiKey.METADATA, 99)),
    "negative version": frame(header(ApiKey.METADATA, -1)),
    "body that ends early": frame(header(ApiKey.METADATA, 1) + b"\x00\x00\x00\x05\x00"),
    "array of two billion": frame(header(ApiKey.METADATA, 1) + b"\x7f\xff\xff\xff"),
    "string of negative length": frame(header(ApiKey.METADATA, 1) + b"\x00\x00\x00\x01\xff\xfe"),
    "text that is not UTF-8": frame(header(ApiKey.METADATA, 1) + b"\x00\x00\x00\x01\x00\x02\xff\xfe"),
    "HTTP": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8.0\r\n\r\n",
    "TLS": bytes.fromhex("16030100c2010000be0303") + bytes(180),
}


@pytest.fixture
def address(cluster: LocalCluster) -> HostPort:
    return HostPort("127.0.0.1", cluster.broker(1).files.port)


@pytest.fixture
def log(cluster: LocalCluster) -> Path:
    return Path(cluster.broker(1).files.log)


@contextmanager
def witness(address: HostPort) -> Iterator[None]:
    """Checks that an existing connection and a new one are both served afterwards."""
    with connected(address) as before:
        ask(before)
        yield
        ask(before)
        with connected(address) as after:
            ask(after)


def connected(address: HostPort) -> socket.socket:
    return socket.create_connection((address.host, address.port), timeout=SECONDS_MAX)


def ask(connection: socket.socket) -> None:
    """Requests the metadata of no topics, and checks that a valid response arrives."""
    connection.sendall(frame(header(ApiKey.METADATA, 1) + bytes(4)))
    answer = receive_answer(connection)
    assert parse_response(MetadataResponse, answer, 1)[1].brokers


def receive_answer(connection: socket.socket) -> bytes:
    """Returns the next response. MSG_WAITALL would not wait for all of it, because a timeout makes the socket
    non-blocking."""
    with connection.makefile("rb") as stream:
        size = int.from_bytes(stream.read(4), "big")
        answer = stream.read(size)
    assert len(answer) == size
    return answer


def exchange(address: HostPort, data: bytes, *, then_end: bool = False) -> tuple[bytes, str]:
    """Sends the bytes. Returns what was received until the broker closed, and our address as the broker logs it."""
    with connected(address) as connection:
        name = "{}:{}".format(*connection.getsockname())
        connection.sendall(data)
        received = bytearray()
        try:
            if then_end:
                connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                received += chunk
        except OSError as error:
            # The broker closed the connection before it had read all our bytes, which resets the connection.
            if error.errno not in (errno.ECONNRESET, errno.ENOTCONN):
                raise
        return bytes(received), name


def line_about(log: Path, peer: str) -> dict[str, Any]:
    """Waits until the broker has logged something about the peer, which may be after it has closed the connection. Returns
    the only event."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        lines = [line for line in log.read_text().split("\n")[:-1] if line.startswith("{")]
        found[:] = [event for event in map(json.loads, lines) if event.get("peer") == peer]
        return bool(found)

    until_equal(look, True)
    (event,) = found
    return event


def resident_bytes(pid: int | None) -> int:
    """Returns the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("data", FATAL.values(), ids=FATAL)
def test_garbage_closes_its_own_connection(address: HostPort, log: Path, data: bytes) -> None:
    """The connection is closed without a response, one log line gives the reason, and other clients notice nothing."""
    with witness(address):
        received, peer = exchange(address, data)
        assert received == b""
    event = line_about(log, peer)
    assert (event["event"], event["level"]) == ("request_malformed", "warning")
    assert event["reason"]


def test_a_truncated_frame_leaves_one_line(address: HostPort, log: Path) -> None:
    """A peer that disconnects in the middle of a frame leaves one log line."""
    with witness(address):
        received, peer = exchange(address, frame(header(ApiKey.METADATA, 1) + bytes(100))[:-10], then_end=True)
        assert received == b""
    assert line_about(log, peer)["event"]


def test_unknown_version_of_api_versions_is_answered(address: HostPort) -> None:
    """A client from the future gets a version 0 response with UNSUPPORTED_VERSION and the supported versions (KIP-511)."""
    with connected(address) as connection:
        connection.sendall(frame(header(ApiKey.API_VERSIONS, 99) + b"\x00\x00\x00"))
        answer = receive_answer(connection)
    assert answer[:6] == bytes(4) + b"\x00\x23"


def test_random_bytes_disturb_nobody_else(address: HostPort) -> None:
    """Fifty peers send noise, some of it after a plausible length. The broker closes each connection or waits for
    more bytes, and other clients notice nothing."""
    rng = random.Random(858)
    with witness(address):
        for _ in range(50):
            noise = rng.randbytes(rng.randrange(1, 2000))
            exchange(address, noise if rng.random() < 0.5 else frame(noise), then_end=True)


def test_half_a_frame_holds_up_nobody(cluster: LocalCluster, address: HostPort) -> None:
    """Twenty peers announce a frame of 100 MB and send a little of it. They cost hardly any memory, and the broker does not
    wait for them."""
    promise = (100 * 1024 * 1024).to_bytes(4, "big") + header(ApiKey.PRODUCE, 9) + bytes(1000)
    before = resident_bytes(cluster.broker(1).pid)
    peers = [connected(address) for _ in range(20)]
    try:
        with witness(address):
            for peer in peers:
                peer.sendall(promise)
        assert resident_bytes(cluster.broker(1).pid) - before < 64 * 1024 * 1024
    finally:
        for peer in peers:
            peer.close()
