"""The metadata log of the model, and the controller's operations on it.

A log is a tree: a node is a log with this batch at its end, so logs with a common beginning share their states. The states
are the production MetadataState, built by the production replay. Nothing changes the state of a node after its creation.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from common.configuration.resolver import ConfigResolver
from common.configuration.server_loading import load_server_config
from common.ids import BrokerId, DirectoryId, Offset, TopicId, TopicIdPartition, Uuid
from common.metadata.delta import MetadataDelta
from common.metadata.directory_ids import UNASSIGNED
from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE, METADATA_VERSION_FEATURE
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError
from common.protocol.numbering import Numbering
from common.records.metadata_frame import ApiMessageAndVersion, encode_record
from common.records.metadata_records import FeatureLevelRecord, PartitionRecord, TopicRecord
from common.slices import at_once
from controller.core.broker_sessions import BrokerSessions
from controller.core.long_decisions import Sliced
from controller.core.result import ControllerResult
from controller.core.settings import ControllerSettings
from controller.core.turn import Turn
from controller.core.unfencing import AwaitedReplicas

CLUSTER_ID = "model"
TOPIC_ID = TopicId(Uuid(b"the-only-topic.."))
LEVEL = 21
SESSION_NS = 1_000
# Long before the beginning: a broker with this last contact has been silent for too long.
LONG_AGO_NS = -1_000_000

Operation = Callable[[Turn, Any], ControllerResult[Any] | Sliced[ControllerResult[Any]]]


class Log:
    """A metadata log that ends with `delta`, the changes of its last batch."""

    def __init__(self, number: int, parent: "Log | None", state: MetadataState, delta: MetadataDelta) -> None:
        self.number = number
        self.parent = parent
        self.state = state
        self.delta = delta

    @property
    def end_offset(self) -> Offset:
        return Offset(self.state.last_offset + 1)

    def partition(self, key: TopicIdPartition) -> PartitionRegistration:
        found = self.state.partition(*key)
        assert found is not None
        return found


class Logs:
    """All logs that the search has come across. Equal logs are the same object."""

    def __init__(self) -> None:
        self.root = Log(0, None, MetadataState(), MetadataDelta())
        self._count = 1
        self._children: dict[tuple[int, tuple[bytes, ...]], Log] = {}

    def append(self, log: Log, records: Sequence[ApiMessageAndVersion]) -> Log:
        if not records:
            return log
        name = (log.number, tuple(encode_record(each.record, each.version, Numbering.KIP858) for each in records))
        child = self._children.get(name)
        if child is None:
            state, delta = copied(log.state), MetadataDelta()
            for number, each in enumerate(records):
                state.replay(each.record, offset=Offset(log.end_offset + number), delta=delta)
            child = self._children[name] = Log(self._count, log, state, delta)
            self._count += 1
        return child


def copied(state: MetadataState) -> MetadataState:
    return at_once(state.copy_in_slices())


def first_records(partitions: int, replicas: Sequence[int]) -> list[ApiMessageAndVersion]:
    """Returns the records that create the topic. The placement of its replicas is what the production operation writes for
    brokers with several directories."""
    topic = ApiMessageAndVersion(TopicRecord(name="t", topic_id=TOPIC_ID), 0)
    created: list[ApiMessageAndVersion] = [topic]
    for index in range(partitions):
        record = PartitionRecord(
            partition_id=index,
            topic_id=TOPIC_ID,
            replicas=list(replicas),
            isr=list(replicas),
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[UNASSIGNED] * len(replicas),
        )
        created.append(ApiMessageAndVersion(record, 1))
    return created


def features() -> list[ApiMessageAndVersion]:
    levels = {METADATA_VERSION_FEATURE: LEVEL, DIRECTORY_NUMBERING_FEATURE: 1}
    return [ApiMessageAndVersion(FeatureLevelRecord(name=name, feature_level=level), 0) for name, level in levels.items()]


def _settings() -> ControllerSettings:
    properties = {
        "process.roles": "controller",
        "node.id": "100",
        "controller.quorum.voters": "100@controller:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://:9093",
    }
    return ControllerSettings(
        cluster_id=CLUSTER_ID,
        session_timeout_ns=SESSION_NS,
        resolver=ConfigResolver(load_server_config(properties), properties),
    )


_SETTINGS = _settings()

# What a search knows of the sessions: for each broker whether its session is valid, and what is settled.
SessionsKey = tuple[tuple[int, bool, tuple[tuple[DirectoryId | None, int], ...]], ...]


@dataclass(frozen=True, slots=True)
class Controller:
    """The log and the sessions of the active controller."""

    log: Log
    sessions: SessionsKey

    @property
    def key(self) -> tuple[int, SessionsKey]:
        return self.log.number, self.sessions


def operate(logs: Logs, controller: Controller, operation: Operation, request: Any) -> tuple[Controller, Any]:
    """Returns the controller after the operation, and its response or its ApiError."""
    sessions = thawed(controller.sessions)
    turn = Turn(
        state=controller.log.state,
        sessions=sessions,
        # Found anew, as after each operation a new controller became active. This can only keep a broker fenced longer.
        awaited=AwaitedReplicas(controller.log.state),
        settings=_SETTINGS,
        now_ns=0,
        next_write_offset=controller.log.end_offset,
        rng=random.Random(0),
        new_uuid=lambda: Uuid(bytes(16)),
    )
    try:
        decided = operation(turn, request)
        result = decided if isinstance(decided, ControllerResult) else at_once(decided)
    except ApiError as error:
        return Controller(controller.log, frozen(sessions)), error
    return Controller(logs.append(controller.log, result.records), frozen(sessions)), result.response


def thawed(key: SessionsKey) -> BrokerSessions:
    sessions = BrokerSessions(SESSION_NS)
    for broker_id, is_valid, settled in key:
        sessions.begin([BrokerId(broker_id)], 0 if is_valid else LONG_AGO_NS)
        sessions._sessions[BrokerId(broker_id)].settled = dict(settled)
    return sessions


def frozen(sessions: BrokerSessions) -> SessionsKey:
    return tuple(
        (
            int(broker_id),
            session.last_contact_ns >= 0,
            tuple(sorted(session.settled.items(), key=lambda each: each[0] or b"")),
        )
        for broker_id, session in sorted(sessions._sessions.items())
    )


def expired(key: SessionsKey, broker_id: int) -> SessionsKey:
    """Returns the sessions after this broker has been silent for too long."""
    return tuple((each, is_valid and each != broker_id, settled) for each, is_valid, settled in key)
