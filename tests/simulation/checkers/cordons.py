"""I29: a broker creates no log in a cordoned directory, and begins no move to one (KIP-1066).

Shell of the tests. A creation or a move is new if the last look did not find it. It is judged if the broker's configuration
is the same object as at the last look, because the cordons were the same then when the broker decided. A log may be created
where the metadata has it, where a failed creation has left something, or anywhere if all online directories are cordoned:
the controller may have placed the replica here just before it learnt of the last cordon.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.daemon import BrokerDaemon
from common.configuration.server import ServerConfig
from common.ids import DirectoryId, TopicIdPartition, uuid_text
from tests.simulation.violations import InvariantViolated


@dataclass(frozen=True, slots=True)
class _Look:
    """What a look finds in one broker."""

    server: ServerConfig
    creating: Mapping[TopicIdPartition, DirectoryId]
    unfinished: frozenset[TopicIdPartition]
    moving: Mapping[TopicIdPartition, DirectoryId]


class CordonChecker:
    """See the module docstring."""

    def __init__(self) -> None:
        self._looks: dict[BrokerDaemon, _Look] = {}

    def look(self, brokers: Mapping[int, BrokerDaemon]) -> None:
        """Looks at the creations and moves that are new. Raises InvariantViolated."""
        before, self._looks = self._looks, {}
        for broker_id, broker in brokers.items():
            if not broker.replicas._is_loaded:
                continue
            found = self._looks[broker] = _look_at(broker)
            earlier = before.get(broker)
            if earlier is not None and earlier.server is found.server:
                _judge_moves(broker_id, broker, earlier, found)
                for key, directory_id in found.creating.items():
                    _judge_creation(broker_id, broker, earlier, key, directory_id)

    def created(self, broker_id: int, broker: BrokerDaemon, key: TopicIdPartition, directory_id: DirectoryId) -> None:
        """Looks at a log that was just created: most creations end before the next look. Raises InvariantViolated."""
        earlier = self._looks.get(broker)
        if earlier is not None and earlier.server is broker.replicas._configuration.server:
            _judge_creation(broker_id, broker, earlier, key, directory_id)


def _look_at(broker: BrokerDaemon) -> _Look:
    replicas = broker.replicas
    return _Look(
        server=replicas._configuration.server,
        creating=dict(replicas._creation._creating),
        unfinished=frozenset(replicas._creation._unfinished),
        moving={key: move.target for key, move in replicas._known.movement._moves.items()},
    )


def _judge_moves(broker_id: int, broker: BrokerDaemon, before: _Look, now: _Look) -> None:
    for key, directory_id in now.moving.items():
        if before.moving.get(key) != directory_id and _is_cordoned(broker, directory_id):
            raise InvariantViolated(
                "I29", f"broker {broker_id} moves {_text(key)} to {uuid_text(directory_id)}, which is cordoned"
            )


def _judge_creation(
    broker_id: int, broker: BrokerDaemon, before: _Look, key: TopicIdPartition, directory_id: DirectoryId
) -> None:
    is_old = before.creating.get(key) == directory_id or key in before.unfinished
    if is_old or not _is_cordoned(broker, directory_id):
        return
    part = broker.state.partition(*key)
    places = () if part is None else zip(part.replicas, part.directories, strict=True)
    is_assigned = (broker_id, directory_id) in places
    if not is_assigned and not all(_is_cordoned(broker, each) for each in broker._directories.known.online):
        raise InvariantViolated(
            "I29", f"broker {broker_id} creates {_text(key)} in {uuid_text(directory_id)}, which is cordoned"
        )


def _is_cordoned(broker: BrokerDaemon, directory_id: DirectoryId) -> bool:
    path = broker._directories.known.online.get(directory_id)
    return path is not None and broker.replicas.is_cordoned(path)


def _text(key: TopicIdPartition) -> str:
    return f"partition {key.partition} of {uuid_text(key.topic_id)}"
