"""Which directories of earlier incarnations count: those since the last one that was unfenced."""

import pytest

from broker.core.previous_directories import PreviousDirectories
from common.ids import BrokerId, DirectoryId, IncarnationId, Offset
from common.metadata.snapshot import generate_snapshot_records
from common.metadata.state import MetadataState
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    FencingChange,
    KnownRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from tests.unit.common.metadata.builders import directory, level, register, uuid

INCARNATION = 9
D1, D2, D3 = directory(1), directory(2), directory(3)
SNAPSHOT = "snapshot"
UNFENCE = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=100, fenced=FencingChange.UNFENCE)
FENCE = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=100, fenced=FencingChange.FENCE)
UNFENCE_OTHER = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=100, fenced=FencingChange.UNFENCE)


def started(incarnation: int, *directories: DirectoryId, lost: tuple[DirectoryId, ...] = ()) -> RegisterBrokerRecord:
    return register(1, directories=directories, lost=lost, incarnation=incarnation, fenced=True)


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        # Nothing is known about a first registration, and about what was before an unregistration.
        ([], None),
        ([started(1, D1), UNFENCE, UnregisterBrokerRecord(broker_id=1, broker_epoch=100)], None),
        ([started(1, D1)], None),
        # The last incarnation that was unfenced has told of everything before it.
        ([started(1, D1, D2), UNFENCE], (D1, D2)),
        ([started(1, D1, D2, D3), UNFENCE, started(2, D1, D2), UNFENCE], (D1, D2)),
        ([started(1, D1, D2), UnfenceBrokerRecord(id=1, epoch=100)], (D1, D2)),
        ([started(1, D1, lost=(D2,)), UNFENCE], (D1, D2)),
        ([started(1, D1, D2), UNFENCE, FENCE], (D1, D2)),
        # Those after it have not, whatever directories they had.
        ([started(1, D1, D2), UNFENCE, started(2, D2)], (D2, D1)),
        ([started(1, D1, D2), UNFENCE, started(2, D2), started(3, D3), started(4, D2)], (D2, D3, D1)),
        ([started(1, D1, D2), UNFENCE, started(2, D2), register(2, directories=[D3]), UNFENCE_OTHER], (D2, D1)),
        ([started(1, D1, D2), UNFENCE, started(2, D2), started(2, D2)], (D2, D1)),
        # An incarnation without registered directories may have had any.
        ([started(1), UNFENCE], None),
        ([started(1), UNFENCE, started(2, D2)], None),
        ([started(1), UNFENCE, started(1, D2)], None),
        ([started(1), UNFENCE, started(2, D2), UNFENCE], (D2,)),
        # A snapshot shows the last registration, and if it is fenced, not what was before.
        ([started(1, D1, D2), UNFENCE, SNAPSHOT], (D1, D2)),
        ([started(1, D1, D2), UNFENCE, started(2, D2), SNAPSHOT], None),
        ([started(1, D1, D2), UNFENCE, SNAPSHOT, started(2, D2)], (D2, D1)),
        ([started(1, D1, D2), UNFENCE, started(2, D2), SNAPSHOT, started(3, D2)], None),
        ([started(1, D1, D2), UNFENCE, started(2, D2), SNAPSHOT, UNFENCE], (D2,)),
        ([SNAPSHOT], None),
    ],
)
def test_the_directories_since_the_last_unfenced_incarnation_count(
    history: list[KnownRecord | str], expected: tuple[DirectoryId, ...] | None
) -> None:
    """A broker whose disk has died starts twice. The second start finds only the registration of the first, without the
    disk. It must remember the disk nevertheless, if the first start was never unfenced: a log may be there of
    which the controller has not been told."""
    image = MetadataState()
    image.replay(level(21), offset=Offset(0))
    previous = PreviousDirectories(BrokerId(1), IncarnationId(uuid(1_000_000 + INCARNATION)))
    for each in (*history, started(INCARNATION, D2)):
        assert not previous.is_registered
        if isinstance(each, str):
            loaded = MetadataState()
            for entry in generate_snapshot_records(image):
                loaded.replay(entry.record, offset=Offset(0))
            image = loaded
            previous.note_snapshot(image)
        else:
            previous.note_record(each, image)
            image.replay(each, offset=Offset(0))
    assert previous.is_registered
    assert previous.directories == expected
