"""A stand-in for a broker that only sends responses. A client's rate against it is the baseline for a real broker's rate.

    python -m tests.benchmarks.sink

It uses raw sockets on one event loop and serves only ApiVersions, Metadata, Produce and Fetch. Records are neither checked
nor stored: Produce is answered with the next offset, and Fetch keeps returning the first large batch under new offsets.
Prints its port on one line and serves until its standard input closes.
"""

import asyncio
import hashlib
import os
import socket
import sys

import uvloop

from common.ids import Uuid
from common.net.api_versions import advertised_versions, api_versions_response, unsupported_version_response
from common.parts import Buffer
from common.protocol.api_keys import ApiKey
from common.protocol.codec import decode_prefix
from common.protocol.framing import UnsupportedRequest, encode_response_frame, parse_request
from common.protocol.messages.fetch import FetchableTopicResponse, FetchPartition, FetchRequest, FetchResponse, PartitionData
from common.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from common.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from common.protocol.registry import APIS
from common.protocol.schema import Struct
from common.records.batch import read_header

NODE_ID = 1
CLUSTER_ID = "sink"
SERVED = advertised_versions([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS])
RECEIVE_BYTES = 4 << 20
# Fetch repeats the first produced batch of at least this size, about the size of the batches that a busy client sends.
TEMPLATE_BYTES_MIN = 500_000


class Partition:
    """The next offset of a partition."""

    def __init__(self) -> None:
        self.end_offset = 0


class Sink:
    """The state that all connections share."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.names: dict[Uuid, str] = {}
        self.template = b""
        self.template_records = 0

    def partition(self, topic: str, index: int) -> Partition:
        return self.partitions.setdefault((topic, index), Partition())

    def answer(self, request: Struct) -> Struct | None:
        """Returns the response, or None if the request gets none."""
        if isinstance(request, ProduceRequest):
            return self._produce(request)
        if isinstance(request, MetadataRequest):
            return self._metadata(request)
        return api_versions_response(SERVED)

    def _produce(self, request: ProduceRequest) -> ProduceResponse | None:
        response = ProduceResponse()
        for topic in request.topic_data:
            answers = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            response.responses.append(answers)
            for data in topic.partition_data:
                records = data.records
                assert isinstance(records, memoryview)
                header = read_header(records, 0)
                if not self.template and len(records) >= TEMPLATE_BYTES_MIN:
                    self.template, self.template_records = bytes(records[: header.size]), header.record_count
                partition = self.partition(topic.name or self.names[topic.topic_id], data.index)
                answers.partition_responses.append(
                    PartitionProduceResponse(index=data.index, base_offset=partition.end_offset, log_start_offset=0)
                )
                partition.end_offset += header.record_count
        return response if request.acks else None

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        response = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE_ID, host="127.0.0.1", port=self.port)],
            cluster_id=CLUSTER_ID,
            controller_id=NODE_ID,
        )
        for asked in request.topics or ():
            name = asked.name or ""
            topic_id = Uuid(hashlib.md5(name.encode()).digest())
            self.names[topic_id] = name
            partition = MetadataResponsePartition(
                partition_index=0, leader_id=NODE_ID, leader_epoch=0, replica_nodes=[NODE_ID], isr_nodes=[NODE_ID]
            )
            response.topics.append(MetadataResponseTopic(name=name, topic_id=topic_id, partitions=[partition]))
        return response

    def fetch(self, request: FetchRequest) -> FetchResponse:
        """Returns whole batches up to the requested sizes, and no records if the consumer has reached the end."""
        response = FetchResponse()
        for topic in request.topics:
            name = topic.topic or self.names.get(topic.topic_id, "")
            answers = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
            response.responses.append(answers)
            answers.partitions = [self._read(name, wanted) for wanted in topic.partitions]
        return response

    def _read(self, topic: str, wanted: FetchPartition) -> PartitionData:
        end_offset = self.partition(topic, wanted.partition).end_offset
        data = PartitionData(
            partition_index=wanted.partition,
            high_watermark=end_offset,
            last_stable_offset=end_offset,
            log_start_offset=0,
            aborted_transactions=None,
            records=b"",
        )
        if not self.template or wanted.fetch_offset >= end_offset:
            return data
        first = wanted.fetch_offset // self.template_records
        count = max(1, wanted.partition_max_bytes // len(self.template))
        rest = memoryview(self.template)[8:]
        # The base offset is the first field and outside the checksum.
        data.records = [
            part
            for number in range(first, first + count)
            for part in ((number * self.template_records).to_bytes(8, "big"), rest)
        ]
        return data


class Served:
    """One client's connection. Answers each request as soon as its frame is complete, directly from the receive buffer."""

    def __init__(self, sink: Sink, connection: socket.socket) -> None:
        self._sink = sink
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(RECEIVE_BYTES)
        self._view = memoryview(self._buffer)
        self._end = 0
        self._unsent = bytearray()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(connection, self._readable)

    def _readable(self) -> None:
        try:
            received = self._connection.recv_into(self._view[self._end :])
        except BlockingIOError:
            return
        except ConnectionError:
            received = 0
        if not received:
            self._close()
            return
        self._end += received
        start = 0
        while self._end - start >= 4:
            size = int.from_bytes(self._view[start : start + 4], "big")
            assert 4 + size <= RECEIVE_BYTES, f"a request of {size} bytes"
            if self._end - start < 4 + size:
                break
            self._answer(self._view[start + 4 : start + 4 + size])
            start += 4 + size
        if start:
            # Move the incomplete frame to the front. It is copied first, because source and target may overlap. The copy
            # costs little, because large incomplete frames are rare here.
            rest = bytes(self._view[start : self._end])
            self._view[: len(rest)] = rest
            self._end = len(rest)

    def _answer(self, frame: memoryview) -> None:
        try:
            header, body = parse_request(frame)
        except UnsupportedRequest as error:
            # ApiVersions is the only API that clients try in a version that was not offered.
            self._send(error.correlation_id, unsupported_version_response(SERVED), 0)
            return
        request, _ = decode_prefix(APIS[ApiKey(header.request_api_key)].request, body, header.request_api_version)
        if not isinstance(request, FetchRequest):
            response = self._sink.answer(request)
            if response is not None:
                self._send(header.correlation_id, response, header.request_api_version)
            return
        answer = self._sink.fetch(request)
        if any(data.records for topic in answer.responses for data in topic.partitions):
            self._send(header.correlation_id, answer, header.request_api_version)
        else:
            self._loop.call_later(
                request.max_wait_ms / 1000, self._send, header.correlation_id, answer, header.request_api_version
            )

    def _send(self, correlation_id: int, response: Struct, version: int) -> None:
        parts = [part for part in encode_response_frame(correlation_id, response, version) if isinstance(part, Buffer)]
        if self._unsent:
            self._unsent += b"".join(parts)
            return
        try:
            sent = self._connection.sendmsg(parts)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._close()
            return
        if sent < sum(map(len, parts)):
            self._unsent += b"".join(parts)[sent:]
            self._loop.add_writer(self._connection, self._writable)

    def _writable(self) -> None:
        try:
            sent = self._connection.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._close()
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._connection)

    def _close(self) -> None:
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection)
            self._loop.remove_writer(self._connection)
            self._connection.close()


async def serve() -> None:
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    sink = Sink(listener.getsockname()[1])
    ended = asyncio.Event()
    loop.add_reader(listener, lambda: Served(sink, listener.accept()[0]))
    loop.add_reader(sys.stdin.fileno(), lambda: ended.set() if not os.read(sys.stdin.fileno(), 100) else None)
    print(sink.port, flush=True)
    await ended.wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
