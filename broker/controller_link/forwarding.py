"""Forwards admin requests to the active controller in an Envelope, and answers once this broker sees the change (shell).

Counterpart of Kafka's ForwardingManager (KIP-590). The client's whole request is forwarded, including its header and the
principal, so the controller carries out exactly what the client asked, on the client's behalf. The broker must not report
success before its own image contains the change. Otherwise the client's next request to this broker might not find the new
topic. But it must not wait for what is gone again: another client may have deleted the topic before this image saw it.
"""

import ipaddress
from collections.abc import Callable
from typing import Any

from broker.controller_link.controller_channel import ControllerChannel, ControllerUnavailable
from broker.controller_link.metadata_follower import MetadataFollower
from common.environment.interface import Environment
from common.net.request_context import ConnectAgain, RequestContext
from common.protocol.codec import decode_in_slices, encode
from common.protocol.errors import ApiError, ErrorCode, RemoteProtocolError, error_name
from common.protocol.framing import response_body
from common.protocol.messages.default_principal_data import DefaultPrincipalData
from common.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from common.protocol.registry import APIS
from common.slices import ELEMENTS_PER_SLICE, result_in_slices
from common.time_units import NS_PER_MS

PRINCIPAL_VERSION = 0
# The minimum time for an attempt, and the deadline for requests with a timeout of 0: such a request does not wait until the
# change is visible here, but it must still reach a controller.
ATTEMPT_MS = 30_000


class Forwarding:
    """Forwards clients' requests to the active controller. `is_current_since` says whether this broker's image has
    everything that was committed at this time."""

    def __init__(
        self,
        env: Environment,
        *,
        channel: ControllerChannel,
        follower: MetadataFollower,
        is_current_since: Callable[[int], bool],
    ) -> None:
        self._env = env
        self._channel = channel
        self._follower = follower
        self._is_current_since = is_current_since

    async def forward(
        self, context: RequestContext, *, timeout_ms: int, is_visible: Callable[[Any], bool] = lambda _: True
    ) -> Any:
        """Forwards the request and returns the controller's answer. Before returning, waits until `is_visible(answer)` holds
        in this broker's own image or the image has everything that was committed when the answer came, but no longer than
        the request's timeout. Raises ApiError if no controller answers, and ConnectAgain if the active controller does not
        serve the version of the request."""
        now_ns = self._env.now_ns()
        answer = await self._send(context, now_ns + (timeout_ms if timeout_ms > 0 else ATTEMPT_MS) * NS_PER_MS)
        answered_ns = self._env.now_ns()
        response = await _opened(context, answer)
        await self._follower.wait_until(
            lambda: is_visible(response) or self._is_current_since(answered_ns), deadline_ns=now_ns + timeout_ms * NS_PER_MS
        )
        return response

    async def _send(self, context: RequestContext, deadline_ns: int) -> EnvelopeResponse:
        envelope = EnvelopeRequest(
            request_data=bytes(context.request_bytes),
            request_principal=serialized_principal(context),
            client_host_address=_address_bytes(context.peer_host),
        )
        # Make a single long attempt, because creating a topic is not idempotent. Give the attempt at least ATTEMPT_MS even
        # if the client's deadline is earlier: an attempt that times out closes the connection, so all requests on it fail.
        attempt_ns = max(deadline_ns - self._env.now_ns(), ATTEMPT_MS * NS_PER_MS)
        try:
            async with self._env.timeout_at(deadline_ns):
                answer: EnvelopeResponse = await self._channel.send(
                    envelope, deadline_ns=self._env.now_ns() + attempt_ns, attempt_timeout_ns=attempt_ns
                )
        except ControllerUnavailable as error:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"no controller answered: {error}") from error
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller answered within the request's timeout") from None
        return answer


async def _opened(context: RequestContext, answer: EnvelopeResponse) -> Any:
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        # Another controller has become active since the client asked for the versions. It may ask again, and the request was
        # not carried out. As an answer, UNSUPPORTED_VERSION would end the client's attempt.
        raise ConnectAgain(f"the controller does not serve version {context.api_version} of {context.api_key.name}")
    if answer.error_code != ErrorCode.NONE or answer.response_data is None:
        reason = f"the controller refused to take a forwarded request ({error_name(answer.error_code)})"
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)
    try:
        response = APIS[context.api_key].response
        body = response_body(response, memoryview(answer.response_data), context.api_version)
        decoding = decode_in_slices(response, body, context.api_version)
        return await result_in_slices(decoding, items=ELEMENTS_PER_SLICE)
    except RemoteProtocolError as error:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's answer cannot be read: {error}") from error


def serialized_principal(context: RequestContext) -> bytes:
    """Encodes the principal as Kafka's DefaultKafkaPrincipalBuilder does: a two-byte version, then DefaultPrincipalData."""
    data = DefaultPrincipalData(type=context.principal.kind, name=context.principal.name, token_authenticated=False)
    return PRINCIPAL_VERSION.to_bytes(2, "big") + encode(data, PRINCIPAL_VERSION)


def _address_bytes(host: str) -> bytes:
    try:
        # An IPv6 host comes in brackets, which `ip_address` does not accept.
        return ipaddress.ip_address(host.strip("[]")).packed
    except ValueError:
        return b"\x7f\x00\x00\x01"
