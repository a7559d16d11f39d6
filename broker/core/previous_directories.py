"""Which directories may hold logs that the controller does not know of (core).

A replica that is UNASSIGNED in the metadata may have a log nevertheless, if the broker ended before its report was recorded.
The log is in a directory of that incarnation. The next incarnation reports what it finds, and what is missing, before it is
unfenced. But if it ends before that, the directories of its predecessor still matter: its own registration says only what it
found. So the directories of an incarnation count until one of its successors is unfenced.
"""

from common.ids import BrokerId, DirectoryId, IncarnationId
from common.metadata.state import MetadataState
from common.records.metadata_records import (
    BrokerRegistrationChangeRecord,
    FencingChange,
    KnownRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
)


class PreviousDirectories:
    """Follows the registrations of one broker in the metadata, until it finds that of the incarnation `incarnation_id`."""

    def __init__(self, broker_id: BrokerId, incarnation_id: IncarnationId) -> None:
        self._broker_id = broker_id
        self._incarnation_id = incarnation_id
        # The directories that count besides those of the registration in the image; None if unknown.
        self._earlier: tuple[DirectoryId, ...] | None = None
        self.is_registered = False
        """Whether the registration of `incarnation_id` has been found."""
        self.directories: tuple[DirectoryId, ...] | None = None
        """The directories of the last incarnation that was unfenced before `incarnation_id`, and of all in between,
        including those they had lost; None if unknown."""

    def note_record(self, record: KnownRecord, image: MetadataState) -> None:
        """Notes a record that `image` will replay next."""
        if isinstance(record, RegisterBrokerRecord):
            if record.broker_id == self._broker_id:
                self._note_registration(record, image)
        elif isinstance(record, BrokerRegistrationChangeRecord):
            if record.broker_id == self._broker_id and record.fenced == FencingChange.UNFENCE:
                self._earlier = ()
        elif isinstance(record, UnfenceBrokerRecord) and record.id == self._broker_id:
            self._earlier = ()

    def note_snapshot(self, image: MetadataState) -> None:
        """Notes that `image` was loaded from a snapshot. It shows only the last registration."""
        registration = image.brokers.get(self._broker_id)
        # A fenced incarnation may have been unfenced before, but the snapshot does not say so.
        self._earlier = None if registration is None or registration.fenced else ()
        if registration is not None and registration.incarnation_id == self._incarnation_id:
            # What was before it is hidden, so leave `directories` alone.
            self.is_registered = True

    def _note_registration(self, record: RegisterBrokerRecord, image: MetadataState) -> None:
        before = image.brokers.get(self._broker_id)
        if before is not None and not before.fenced:
            self._earlier = ()
        if before is None or not before.directories:
            # A broker that was unregistered, or registered no directories below metadata.version 17, may have had any.
            self._earlier = None
        elif before.incarnation_id != record.incarnation_id and self._earlier is not None:
            self._earlier = tuple(dict.fromkeys((*before.directories, *before.lost_directories, *self._earlier)))
        if record.incarnation_id == self._incarnation_id and not self.is_registered:
            self.is_registered = True
            self.directories = self._earlier
