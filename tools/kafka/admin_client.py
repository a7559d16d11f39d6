"""The tools' connection to brokers: blocking, one at a time, no retries, clear errors (shell).

A tool runs once and exits, so it needs no event loop and no connection pool. DescribeLogDirs must be sent to the broker in
question; any broker answers the other requests.
"""

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from common.configuration.endpoints import HostPort, parse_host_port
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode, LocalProtocolError, ProtocolError
from common.protocol.framing import encode_request_frame, parse_response
from common.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from common.protocol.messages.headers import RequestHeader
from common.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from common.protocol.registry import APIS
from common.protocol.schema import Struct, message_schema
from tools.errors import ToolError

CLIENT_ID = "diskraft-tool"
TIMEOUT_SECONDS = 60.0
RESPONSE_BYTES_MAX = 512 * 1024 * 1024


class NodeConnection:
    """A connection to one broker. All errors are ToolErrors."""

    def __init__(self, address: HostPort, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self.address = address
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((address.host, address.port), timeout=timeout)
        except OSError as error:
            raise ToolError(f"cannot connect to {address}: {error}; is a broker listening there?") from error
        try:
            self._versions = self._learn_versions()
        except ToolError:
            self.close()
            raise

    def __enter__(self) -> "NodeConnection":
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, request: Struct) -> Any:
        """Sends the request in the newest version that both sides support, and returns the response."""
        api = APIS[ApiKey(message_schema(type(request)).api_key or 0)]
        if api.key not in self._versions:
            raise ToolError(f"{self.address} does not support {api.key.name}")
        low, high = self._versions[api.key]
        version = min(api.versions.last, high)
        if version < max(api.versions.first, low):
            raise ToolError(f"{self.address} supports {api.key.name} only in versions {low} to {high}")
        return self._exchange(request, version)

    def _learn_versions(self) -> dict[int, tuple[int, int]]:
        answer: ApiVersionsResponse = self._exchange(
            ApiVersionsRequest(client_software_name="diskraft", client_software_version="1"), 3
        )
        check(answer.error_code, None, f"{self.address} refuses to name its versions")
        return {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}

    def _exchange(self, request: Struct, version: int) -> Any:
        api = APIS[ApiKey(message_schema(type(request)).api_key or 0)]
        self._correlation_id += 1
        header = RequestHeader(
            request_api_key=api.key,
            request_api_version=version,
            correlation_id=self._correlation_id,
            client_id=CLIENT_ID,
        )
        try:
            parts = encode_request_frame(header, request, version)
            frame = b"".join(part for part in parts if isinstance(part, bytes | bytearray | memoryview))
        except LocalProtocolError as error:
            raise ToolError(f"cannot encode the request: {error}") from error
        try:
            self._socket.sendall(frame)
            size = int.from_bytes(self._read_exactly(4), "big")
            if size > RESPONSE_BYTES_MAX:
                raise ToolError(f"{self.address} does not speak Kafka's protocol (a response of {size} bytes)")
            answered, response = parse_response(api.response, self._read_exactly(size), version)
        except OSError as error:
            raise ToolError(f"{self.address} did not answer: {error}") from error
        except ProtocolError as error:
            raise ToolError(f"{self.address} does not speak Kafka's protocol: {error}") from error
        if answered.correlation_id != self._correlation_id:
            raise ToolError(f"{self.address} does not speak Kafka's protocol: it answered a request that was not sent")
        return response

    def _read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise ToolError(f"{self.address} closed the connection")
            data += chunk
        return bytes(data)


class AdminClient:
    """Sends requests to the first bootstrap server that answers. Use it in a with statement, which closes it."""

    def __init__(self, bootstrap: str, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self._timeout = timeout
        self._addresses = _parse_bootstrap(bootstrap)
        self._connection: NodeConnection | None = None

    def __enter__(self) -> "AdminClient":
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        if self._connection is not None:
            self._connection.close()

    def send(self, request: Struct) -> Any:
        """Returns the response of any broker. Raises ToolError."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection.send(request)

    def send_to(self, address: HostPort, request: Struct) -> Any:
        """Returns the response of this broker. Raises ToolError."""
        with NodeConnection(address, timeout=self._timeout) as connection:
            return connection.send(request)

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Returns the metadata of all topics, or of those named. Never creates a topic."""
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        response: MetadataResponse = self.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        return response

    def brokers(self) -> dict[int, HostPort]:
        """Returns the unfenced brokers by id."""
        return {broker.node_id: HostPort(broker.host, broker.port) for broker in self.metadata([]).brokers}

    def _connect(self) -> NodeConnection:
        reasons: list[str] = []
        for address in self._addresses:
            try:
                return NodeConnection(address, timeout=self._timeout)
            except ToolError as error:
                reasons.append(str(error))
        raise ToolError("; ".join(reasons))


def check(error_code: int, message: str | None, what: str) -> None:
    """Raises ToolError unless the code is NONE."""
    if error_code != ErrorCode.NONE:
        raise ToolError(f"{what}: {message or error_name(error_code)}")


def error_name(code: int) -> str:
    """Returns Kafka's name of the code, or its number if it is unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _parse_bootstrap(text: str) -> list[HostPort]:
    try:
        addresses = [parse_host_port(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise ToolError(f"--bootstrap-server {text}: {error}; it takes host:port, several separated by commas") from error
    if not addresses:
        raise ToolError("--bootstrap-server is empty; it takes host:port, several separated by commas")
    return addresses
