"""A table of every answer to AlterReplicaLogDirs (KIP-113). The order of the checks is Apache Kafka's."""

from dataclasses import replace

import pytest

from broker.core.alter_log_dir import ANY, Alteration, AlterationDecision, AlterationWanted, decide_alteration
from common.ids import DirectoryId, Uuid
from common.protocol.errors import ErrorCode

A, B, C = (DirectoryId(Uuid(letter * 16)) for letter in (b"A", b"B", b"C"))
# A request to move a replica from directory A to B.
MOVE = AlterationWanted(
    destination="/b",
    directory_id=B,
    is_configured=True,
    is_online=True,
    exists=True,
    is_placed_here=True,
    is_changing_place=False,
    current=A,
    target=None,
    is_name_too_long=False,
    has_room=True,
)
CORDONED = replace(MOVE, is_cordoned=True)
STAY = replace(MOVE, destination="/a", directory_id=A)
CANCEL = replace(MOVE, destination=ANY, directory_id=None, is_configured=False, is_online=False)
NOT_HERE = replace(MOVE, is_placed_here=False, current=None)
UNKNOWN_PATH = replace(MOVE, directory_id=None, is_configured=False, is_online=False)
OFFLINE_PATH = replace(MOVE, is_online=False)


@pytest.mark.parametrize(
    ("wanted", "error", "alteration"),
    [
        (MOVE, ErrorCode.NONE, Alteration.MOVE),
        (replace(MOVE, target=C), ErrorCode.NONE, Alteration.MOVE),
        (replace(MOVE, target=B), ErrorCode.NONE, Alteration.NOTHING),
        (replace(MOVE, target=B, has_room=False), ErrorCode.NONE, Alteration.NOTHING),
        (replace(MOVE, has_room=False), ErrorCode.KAFKA_STORAGE_ERROR, Alteration.NOTHING),
        (STAY, ErrorCode.NONE, Alteration.NOTHING),
        (replace(STAY, target=B), ErrorCode.NONE, Alteration.CANCEL),
        (CANCEL, ErrorCode.NONE, Alteration.NOTHING),
        (replace(CANCEL, target=B), ErrorCode.NONE, Alteration.CANCEL),
        (replace(MOVE, is_changing_place=True), ErrorCode.REPLICA_NOT_AVAILABLE, Alteration.NOTHING),
        (replace(MOVE, current=None), ErrorCode.KAFKA_STORAGE_ERROR, Alteration.NOTHING),
        (replace(CANCEL, current=None), ErrorCode.KAFKA_STORAGE_ERROR, Alteration.NOTHING),
        (NOT_HERE, ErrorCode.REPLICA_NOT_AVAILABLE, Alteration.PREFER),
        (
            replace(NOT_HERE, destination=ANY, directory_id=None, is_configured=False, is_online=False),
            ErrorCode.REPLICA_NOT_AVAILABLE,
            Alteration.FORGET_PREFERENCE,
        ),
        (replace(NOT_HERE, exists=False), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Alteration.PREFER),
        (
            replace(CANCEL, exists=False, is_placed_here=False, current=None),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            Alteration.FORGET_PREFERENCE,
        ),
        (UNKNOWN_PATH, ErrorCode.LOG_DIR_NOT_FOUND, Alteration.NOTHING),
        (replace(UNKNOWN_PATH, exists=False, is_placed_here=False), ErrorCode.LOG_DIR_NOT_FOUND, Alteration.NOTHING),
        (OFFLINE_PATH, ErrorCode.KAFKA_STORAGE_ERROR, Alteration.NOTHING),
        (replace(OFFLINE_PATH, is_placed_here=False), ErrorCode.KAFKA_STORAGE_ERROR, Alteration.NOTHING),
        (
            replace(UNKNOWN_PATH, is_name_too_long=True),
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            Alteration.NOTHING,
        ),
        (replace(CANCEL, is_name_too_long=True, target=B), ErrorCode.NONE, Alteration.CANCEL),
    ],
)
def test_every_answer(wanted: AlterationWanted, error: ErrorCode, alteration: Alteration) -> None:
    assert decide_alteration(wanted) == AlterationDecision(error, alteration)


def test_no_replica_moves_into_a_cordoned_directory() -> None:
    """Kafka's error is INVALID_REPLICA_ASSIGNMENT. A move can still be cancelled."""
    assert decide_alteration(CORDONED) == AlterationDecision(ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    cancel = replace(CANCEL, is_cordoned=True, target=B)
    assert decide_alteration(cancel) == AlterationDecision(ErrorCode.NONE, Alteration.CANCEL)
