"""Many plain connections to one broker, for tests and benchmarks of its memory: idle ones, slow readers, members of groups.

Real clients would take far more memory and time in the test's own process than the broker takes. So the requests go over
blocking sockets, and a member of a group is a connection that sends what the group protocol asks for.
"""

import itertools
import resource
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from common.parts import FileRegion
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.api_versions import ApiVersionsRequest
from common.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from common.protocol.messages.find_coordinator import FindCoordinatorRequest
from common.protocol.messages.headers import RequestHeader
from common.protocol.messages.heartbeat import HeartbeatRequest
from common.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from common.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from common.protocol.registry import APIS
from common.protocol.schema import Struct, message_schema
from tests.request_frames import encode_request_frame
from tests.response_frames import parse_response

SECONDS_MAX = 60.0
_VERSIONS: dict[type[Struct], int] = {
    ApiVersionsRequest: 0,
    FetchRequest: 12,
    FindCoordinatorRequest: 3,
    JoinGroupRequest: 3,
    SyncGroupRequest: 2,
    HeartbeatRequest: 2,
}
_RECEIVE_BUFFER_BYTES = 8 * 1024


class PlainConnection:
    """One connection that sends requests and, if it wants to, reads the responses."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=SECONDS_MAX)
        self._asked: list[tuple[type[Struct], int]] = []

    def post(self, message: Struct) -> None:
        """Sends a request without waiting for the response."""
        version = _VERSIONS[type(message)]
        api_key = message_schema(type(message)).api_key
        assert api_key is not None
        header = RequestHeader(request_api_key=api_key, request_api_version=version, correlation_id=1, client_id="crowd")
        parts = encode_request_frame(header, message, version)
        self._socket.sendall(b"".join(bytes(part) for part in parts if not isinstance(part, FileRegion)))
        self._asked.append((APIS[ApiKey(api_key)].response, version))

    def take(self) -> Any:
        """Returns the next response."""
        response, version = self._asked.pop(0)
        size = int.from_bytes(self._read(4), "big")
        return parse_response(response, self._read(size), version)[1]

    def ask(self, message: Struct) -> Any:
        """Sends a request and returns its response."""
        self.post(message)
        return self.take()

    def is_closed_by_the_broker(self) -> bool:
        """Whether the broker has reset or closed the connection. Reads nothing that is still in the kernel."""
        state = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return state != _TCP_ESTABLISHED

    def shrink_receive_buffer(self) -> None:
        """Makes the kernel take as little as possible for a client that does not read."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            received = self._socket.recv(size - len(data))
            assert received, "the broker closed the connection"
            data += received
        return bytes(data)


_TCP_ESTABLISHED = 1


@contextmanager
def opened(address: str, count: int) -> Iterator[list[PlainConnection]]:
    """Opens connections that have each sent a request, as every client does. Raises the limit of open files for that."""
    _allow_files(count + 500)
    connections: list[PlainConnection] = []
    try:
        for _ in range(count):
            connections.append(PlainConnection(address))
            connections[-1].ask(ApiVersionsRequest(client_software_name="crowd", client_software_version="1"))
        yield connections
    finally:
        for connection in connections:
            connection.close()


def stop_reading(connections: Iterable[PlainConnection], topic: str, *, fetches: int, size: int) -> None:
    """Has each connection ask for `size` bytes from the start of partition 0, several times, and never reads a response."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=size,
        topics=[FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size)])],
    )
    for connection in connections:
        connection.shrink_receive_buffer()
        for _ in range(fetches):
            connection.post(request)


class Group:
    """A group whose members have each a connection of their own."""

    def __init__(self, group_id: str, connections: Sequence[PlainConnection]) -> None:
        self.group_id = group_id
        self._connections = connections
        self._member_ids: list[str] = []
        self._generation = -1

    def begin_to_join(self) -> None:
        """Sends the JoinGroup of every member."""
        for connection in self._connections:
            connection.post(
                JoinGroupRequest(
                    group_id=self.group_id,
                    session_timeout_ms=45_000,
                    rebalance_timeout_ms=60_000,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0" * 40)],
                )
            )

    def complete(self) -> None:
        """Takes the answers, and has the leader assign something to each member."""
        joined = [connection.take() for connection in self._connections]
        assert {answer.error_code for answer in joined} == {ErrorCode.NONE}, joined
        assert len({answer.generation_id for answer in joined}) == 1, "the members did not join together"
        self._generation = joined[0].generation_id
        self._member_ids = [answer.member_id for answer in joined]
        assignments = [SyncGroupRequestAssignment(member_id=each, assignment=b"\0" * 40) for each in self._member_ids]
        for answer, connection in zip(joined, self._connections, strict=True):
            connection.post(
                SyncGroupRequest(
                    group_id=self.group_id,
                    generation_id=self._generation,
                    member_id=answer.member_id,
                    assignments=assignments if answer.leader == answer.member_id else [],
                )
            )
        assert {connection.take().error_code for connection in self._connections} == {ErrorCode.NONE}

    def heartbeat(self) -> None:
        """Sends a heartbeat of every member. Fails unless each is still one."""
        for member_id, connection in zip(self._member_ids, self._connections, strict=True):
            answer = connection.ask(
                HeartbeatRequest(group_id=self.group_id, generation_id=self._generation, member_id=member_id)
            )
            assert answer.error_code == ErrorCode.NONE, f"{self.group_id}: {ErrorCode(answer.error_code).name}"


def join_groups(connections: Sequence[PlainConnection], *, members: int) -> list[Group]:
    """Makes a group of every `members` connections. Returns once all of them have their assignments."""
    slices = [connections[start : start + members] for start in range(0, len(connections), members)]
    groups = [Group(f"crowd-{number}", chosen) for number, chosen in zip(itertools.count(1), slices, strict=False)]
    _find_coordinators(connections[0], [group.group_id for group in groups])
    for group in groups:
        group.begin_to_join()
    for group in groups:
        group.complete()
    return groups


def _find_coordinators(connection: PlainConnection, group_ids: Sequence[str]) -> None:
    """Waits until each group has a coordinator that answers. The first request creates the topic of the groups' offsets."""
    deadline = time.monotonic() + SECONDS_MAX
    while (answer := connection.ask(FindCoordinatorRequest(key=group_ids[0]))).error_code != ErrorCode.NONE:
        assert time.monotonic() < deadline, ErrorCode(answer.error_code).name
        time.sleep(0.1)
    for group_id in group_ids:
        stranger = HeartbeatRequest(group_id=group_id, generation_id=1, member_id="stranger")
        # Any other error means that the coordinator has not loaded its partition yet.
        while (answer := connection.ask(stranger)).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            assert time.monotonic() < deadline, ErrorCode(answer.error_code).name
            time.sleep(0.1)


def _allow_files(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(count, hard), hard))
