"""Brokers without disks that speak to a controller over real sockets: registration, heartbeats, assignments, metadata.

A benchmark gives a controller a cluster of any size with them. What has to be timed while the benchmark itself is busy runs
in processes of its own: `HeartbeatWitness` sends one broker's heartbeats, `MetadataObservers` fetch the metadata log as
brokers do. The times of all processes are comparable, because Linux has one monotonic clock.
"""

import contextlib
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final, TypeVar

from common.ids import METADATA_TOPIC_ID, DirectoryId, IncarnationId, TopicId, Uuid
from common.parts import Buffer
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.framing import LENGTH_SIZE
from common.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from common.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from common.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from common.protocol.messages.headers import RequestHeader
from common.protocol.registry import APIS
from common.protocol.schema import Struct
from common.records.batch import read_header
from tests.request_frames import encode_request_frame
from tests.response_frames import parse_response

# The versions that both our controller and Apache Kafka 4.1 serve.
VERSIONS: Final[Mapping[ApiKey, int]] = {
    ApiKey.API_VERSIONS: 4,
    ApiKey.BROKER_REGISTRATION: 4,
    ApiKey.BROKER_HEARTBEAT: 1,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: 0,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.FETCH: 17,
}
# What Kafka's broker puts into one AssignReplicasToDirs request at most.
ASSIGNMENTS_PER_REQUEST_MAX = 2_250
ANSWER_SECONDS_MAX = 120.0
WITNESS_INTERVAL_SECONDS = 0.02
RETRY_SECONDS = 0.05
FETCH_WAIT_MS = 500
FETCH_BYTES = 8 * 1024 * 1024
OBSERVERS_FIRST_ID = 1_000

Response = TypeVar("Response", bound=Struct)
Address = tuple[str, int]


class ControllerConnection:
    """One blocking connection to a controller. Every failure of the network is an OSError."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        # The bytes of the last request and of its answer, with their length prefixes.
        self.request_bytes = 0
        self.response_bytes = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, request: Struct, response_class: type[Response]) -> Response:
        api_key = next(key for key, api in APIS.items() if api.request is type(request))
        version = VERSIONS[ApiKey(api_key)]
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id="bench",
        )
        (frame,) = encode_request_frame(header, request, version)
        assert isinstance(frame, bytes | bytearray)
        self._socket.sendall(frame)
        size = int.from_bytes(self._receive(LENGTH_SIZE), "big")
        self.request_bytes, self.response_bytes = len(frame), LENGTH_SIZE + size
        _header, response = parse_response(response_class, self._receive(size), version)
        return response

    def _receive(self, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        position = 0
        while position < size:
            count = self._socket.recv_into(buffer[position:])
            if count == 0:
                raise ConnectionResetError("the controller closed the connection")
            position += count
        return buffer


def directory_id(broker_id: int, number: int) -> DirectoryId:
    return DirectoryId(Uuid(b"\x40" + (broker_id * 1_000 + number).to_bytes(15, "big")))


@dataclass(slots=True)
class ScriptedBroker:
    """A broker that does what the benchmark says. Its directories are numbered from 0."""

    address: Address
    cluster_id: str
    broker_id: int
    directories: int
    epoch: int = -1
    connection: ControllerConnection = field(init=False)

    def join(self) -> None:
        """Registers and gets unfenced."""
        self.connection = ControllerConnection(self.address)
        versions = self.connection.send(
            ApiVersionsRequest(client_software_name="bench", client_software_version="1"), ApiVersionsResponse
        )
        registration = BrokerRegistrationRequest(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            incarnation_id=IncarnationId(Uuid(self.broker_id.to_bytes(16, "big"))),
            listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=self.broker_id)],
            features=[
                Feature(name=each.name, min_supported_version=each.min_version, max_supported_version=each.max_version)
                for each in versions.supported_features
            ],
            log_dirs=[directory_id(self.broker_id, number) for number in range(self.directories)],
        )
        while True:
            registered = self.connection.send(registration, BrokerRegistrationResponse)
            if registered.error_code != ErrorCode.NOT_CONTROLLER:
                break
            # The controller listens before it is active.
            time.sleep(RETRY_SECONDS)
        assert registered.error_code == ErrorCode.NONE, f"the registration failed with {registered.error_code}"
        self.epoch = registered.broker_epoch
        while self.heartbeat().is_fenced:
            time.sleep(RETRY_SECONDS)

    def reconnect(self) -> None:
        """Connects to the controller after its restart. The registration is still valid."""
        self.connection.close()
        self.connection = ControllerConnection(self.address)

    def heartbeat(self, lost: Sequence[DirectoryId] = ()) -> BrokerHeartbeatResponse:
        return _heartbeat(self.connection, self.broker_id, self.epoch, lost)

    def assign(self, partitions: Sequence[tuple[TopicId, int]], directory: DirectoryId) -> None:
        """Reports that the replicas are in this directory, in as many requests as Kafka's broker would send."""
        for start in range(0, len(partitions), ASSIGNMENTS_PER_REQUEST_MAX):
            topics: dict[TopicId, RequestTopicData] = {}
            for topic_id, index in partitions[start : start + ASSIGNMENTS_PER_REQUEST_MAX]:
                topic = topics.setdefault(topic_id, RequestTopicData(topic_id=topic_id))
                topic.partitions.append(RequestPartitionData(partition_index=index))
            response = self.connection.send(
                AssignReplicasToDirsRequest(
                    broker_id=self.broker_id,
                    broker_epoch=self.epoch,
                    directories=[RequestDirectoryData(id=directory, topics=list(topics.values()))],
                ),
                AssignReplicasToDirsResponse,
            )
            errors = {
                each.error_code
                for directory_data in response.directories
                for topic_data in directory_data.topics
                for each in topic_data.partitions
            }
            assert response.error_code == ErrorCode.NONE, f"an assignment failed with {response.error_code}"
            assert errors == {ErrorCode.NONE}, f"assignments failed with {errors}"


def _heartbeat(
    connection: ControllerConnection, broker_id: int, epoch: int, lost: Sequence[DirectoryId] = ()
) -> BrokerHeartbeatResponse:
    request = BrokerHeartbeatRequest(
        broker_id=broker_id, broker_epoch=epoch, current_metadata_offset=epoch, offline_log_dirs=list(lost)
    )
    return connection.send(request, BrokerHeartbeatResponse)


# --- processes of their own -------------------------------------------------------------------------------------


class _Watcher:
    """A process that watches until the benchmark asks what it saw since the last question. Use it in a with statement."""

    def __init__(self, target: Callable[..., None], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._questions, theirs = context.Pipe()
        self._process = context.Process(target=target, args=(theirs, *arguments), daemon=True)

    def __enter__(self) -> Any:
        self._process.start()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._process.kill()
        self._process.join()

    def ask(self) -> Any:
        self._questions.send(None)
        return self._questions.recv()


class HeartbeatWitness(_Watcher):
    """Sends the heartbeats of a broker that has nothing to report, one every WITNESS_INTERVAL_SECONDS. `ask` returns how
    many milliseconds the longest of them took since the last question, counted from when it was due."""

    def __init__(self, broker: ScriptedBroker) -> None:
        super().__init__(_keep_heartbeats, broker.address, broker.broker_id, broker.epoch)


def _keep_heartbeats(questions: Connection, address: Address, broker_id: int, epoch: int) -> None:
    connection: ControllerConnection | None = None
    longest = 0.0
    due = time.monotonic()
    while True:
        while questions.poll(max(0.0, due - time.monotonic())):
            questions.recv()
            questions.send(longest)
            longest = 0.0
        try:
            connection = connection or ControllerConnection(address)
            _heartbeat(connection, broker_id, epoch)
        except OSError:
            # The controller is being restarted. That wait is measured as the time of the restart.
            connection = None
            due = time.monotonic() + RETRY_SECONDS
            continue
        now = time.monotonic()
        longest = max(longest, (now - due) * 1000)
        due = max(due + WITNESS_INTERVAL_SECONDS, now)


class MetadataObservers(_Watcher):
    """Several observers of the metadata log. `ask` returns the monotonic time at which the last of them received the last
    batch of RECORD_BYTES_MIN or more, and 0.0 if there was none since the last question."""

    # A batch of NoOp records is smaller, one with a change of many partitions is larger.
    RECORD_BYTES_MIN = 1_000

    def __init__(self, address: Address, cluster_id: str, number: int) -> None:
        super().__init__(_observe, address, cluster_id, number)


def _observe(questions: Connection, address: Address, cluster_id: str, number: int) -> None:
    arrivals = [0.0] * number
    for index in range(number):
        threading.Thread(target=_follow, args=(address, cluster_id, index, arrivals), daemon=True).start()
    while True:
        questions.recv()
        questions.send(max(arrivals))
        arrivals[:] = [0.0] * number


def _follow(address: Address, cluster_id: str, index: int, arrivals: list[float]) -> None:
    position = _LogPosition()
    while True:
        with contextlib.suppress(OSError):
            connection = ControllerConnection(address)
            while True:
                request = position.request(cluster_id, OBSERVERS_FIRST_ID + index)
                response = connection.send(request, FetchResponse)
                if position.advance(response) >= MetadataObservers.RECORD_BYTES_MIN:
                    arrivals[index] = time.monotonic()
        time.sleep(RETRY_SECONDS)


@dataclass(slots=True)
class _LogPosition:
    """Where an observer is in the metadata log."""

    leader_epoch: int = 0
    offset: int = 0
    last_epoch: int = 0

    def request(self, cluster_id: str, replica_id: int) -> FetchRequest:
        partition = FetchPartition(
            current_leader_epoch=self.leader_epoch,
            fetch_offset=self.offset,
            last_fetched_epoch=self.last_epoch,
            log_start_offset=0,
            partition_max_bytes=FETCH_BYTES,
        )
        return FetchRequest(
            cluster_id=cluster_id,
            replica_state=ReplicaState(replica_id=replica_id),
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )

    def advance(self, response: FetchResponse) -> int:
        """Moves behind the records of the response. Returns the number of their bytes."""
        for topic in response.responses:
            for partition in topic.partitions:
                return self._advance(partition)
        time.sleep(RETRY_SECONDS)
        return 0

    def _advance(self, partition: PartitionData) -> int:
        if partition.error_code != ErrorCode.NONE:
            # A controller that was restarted has another leader epoch, and reports it.
            self.leader_epoch = max(self.leader_epoch, partition.current_leader.leader_epoch)
            time.sleep(RETRY_SECONDS)
            return 0
        records = partition.records or b""
        assert isinstance(records, Buffer)
        position = 0
        while position < len(records):
            header = read_header(records, position)
            self.offset, self.last_epoch = header.next_offset, header.partition_leader_epoch
            position += header.size
        return len(records)
