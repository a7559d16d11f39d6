"""Carries out what the broker's lifecycle decides: registers, sends heartbeats, halts (shell over core/lifecycle).

Events are handled at once, in order. Each request runs in its own task and its answer comes back as an event, so a directory
failure never waits for a slow answer. The registration names the directories that are online when it is *built*, not those
that were online at startup.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from broker.controller_link.controller_channel import ControllerChannel, ControllerUnavailable
from broker.core.lifecycle import (
    REGISTRATION_ADVICE,
    BrokerLifecycle,
    DirectoryFailed,
    Effect,
    Event,
    FailuresAcknowledged,
    Halt,
    HeartbeatAnswered,
    LastWordsHeard,
    Registered,
    RegistrationRefused,
    RequestFailed,
    SendHeartbeat,
    SendRegistration,
    ShutDownNow,
    StateChanged,
    Tick,
)
from common.environment.interface import Environment
from common.ids import BrokerEpoch, BrokerId, DirectoryId, Uuid
from common.protocol.errors import ErrorCode, error_name
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from common.protocol.messages.broker_registration import BrokerRegistrationRequest


class LifecycleLoop:
    """Drives a BrokerLifecycle. `build_registration` makes the request for the current state; `applied_offset` returns the
    last applied metadata offset; `on_unfenced` is called with the send time of each heartbeat that was answered "unfenced";
    `halt` ends the broker at once."""

    def __init__(
        self,
        env: Environment,
        lifecycle: BrokerLifecycle,
        *,
        broker_id: BrokerId,
        channel: ControllerChannel,
        task_group: asyncio.TaskGroup,
        request_timeout_ns: int,
        build_registration: Callable[[], BrokerRegistrationRequest],
        applied_offset: Callable[[], int],
        cordoned: Callable[[], list[DirectoryId] | None],
        on_effect: Callable[[Effect], None],
        on_unfenced: Callable[[int], None],
        halt: Callable[[str], None],
    ) -> None:
        self._env = env
        self._lifecycle = lifecycle
        self._broker_id = broker_id
        self._channel = channel
        self._task_group = task_group
        self._request_timeout_ns = request_timeout_ns
        self._build_registration = build_registration
        self._applied_offset = applied_offset
        self._cordoned = cordoned
        self._on_effect = on_effect
        self._on_unfenced = on_unfenced
        self._halt = halt
        self._cancel_timer: Callable[[], None] | None = None
        # The refusal that was logged last, so that retries do not repeat it. Cleared when a registration is accepted.
        self._logged_refusal: int | None = None
        # Likewise, the reasons why no controller answered. Empty when one has answered.
        self._troubles: set[str] = set()

    def post(self, event: Event) -> None:
        """Handles one event and carries out its effects, at once. Call it only from the event loop."""
        for effect in self._lifecycle.step(event, self._env.now_ns()):
            self._carry_out(effect)
        self._arm()

    def directory_failed(self, directory_id: DirectoryId) -> None:
        """Reports to the controller at once that a registered directory went offline, instead of at the next regular
        heartbeat."""
        self.post(DirectoryFailed(directory_id))

    def _arm(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None
        deadline_ns = self._lifecycle.next_deadline_ns()
        if deadline_ns is not None:
            self._cancel_timer = self._env.call_at(deadline_ns, self._on_deadline)

    def _on_deadline(self) -> None:
        self._cancel_timer = None
        self.post(Tick())

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SendRegistration():
                self._task_group.create_task(self._register())
            case SendHeartbeat():
                self._task_group.create_task(self._send_heartbeat(effect))
            case StateChanged(state):
                self._env.log.info("broker_state_changed", state=state.name)
                self._on_effect(effect)
            case FailuresAcknowledged(directory_ids):
                for directory_id in directory_ids:
                    self._env.log.info("log_dir_failure_acknowledged", directory_id=directory_id)
                self._on_effect(effect)
            case ShutDownNow(reason):
                if reason is not None:
                    self._env.log.warning("controlled_shutdown_failed", reason=reason)
                self._on_effect(effect)
            case LastWordsHeard():
                self._on_effect(effect)
            case Halt(reason):
                self._halt(reason)

    async def _register(self) -> None:
        is_again = self._lifecycle.broker_epoch >= 0
        request = self._build_registration()
        response = await self._ask(request)
        if response is None:
            return
        if response.error_code != ErrorCode.NONE:
            if response.error_code != self._logged_refusal:
                self._logged_refusal = response.error_code
                error = error_name(response.error_code)
                advice = {"advice": REGISTRATION_ADVICE[error]} if error in REGISTRATION_ADVICE else {}
                self._env.log.warning("registration_refused", error=error, **advice)
            self.post(RegistrationRefused(response.error_code))
            return
        self._logged_refusal = None
        event = "broker_registered_again" if is_again else "broker_registered"
        self._env.log.info(event, broker_epoch=response.broker_epoch, directories=len(request.log_dirs))
        self.post(Registered(BrokerEpoch(response.broker_epoch), tuple(DirectoryId(id_) for id_ in request.log_dirs)))

    async def _send_heartbeat(self, effect: SendHeartbeat) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self._broker_id,
            broker_epoch=effect.broker_epoch,
            current_metadata_offset=self._applied_offset(),
            want_fence=effect.want_fence,
            want_shut_down=effect.want_shut_down,
            offline_log_dirs=list(effect.offline_directories),
            cordoned_log_dirs=self._cordoned_ids(),
        )
        asked_ns = self._env.now_ns()
        response = await self._ask(request)
        if response is None:
            return
        if response.error_code == ErrorCode.NONE and not response.is_fenced:
            self._on_unfenced(asked_ns)
        if response.error_code != ErrorCode.NONE:
            self._env.log.warning("heartbeat_refused", error=error_name(response.error_code))
        self.post(
            HeartbeatAnswered(
                error_code=response.error_code,
                is_caught_up=response.is_caught_up,
                is_fenced=response.is_fenced,
                should_shut_down=response.should_shut_down,
                offline_directories=effect.offline_directories,
            )
        )

    def _cordoned_ids(self) -> list[Uuid] | None:
        cordoned = self._cordoned()
        return None if cordoned is None else list(cordoned)

    async def _ask(self, request: Any) -> Any:
        """Sends the request and returns the answer. If no answer comes, posts RequestFailed and returns None."""
        try:
            answer = await self._channel.send(request, deadline_ns=self._env.now_ns() + self._request_timeout_ns)
        except ControllerUnavailable as error:
            reason = str(error)
            if reason not in self._troubles:
                self._troubles.add(reason)
                self._env.log.warning("controller_unavailable", reason=reason)
            self.post(RequestFailed(reason))
            return None
        self._troubles.clear()
        return answer
