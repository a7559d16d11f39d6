"""Decides which directories are suspected of hanging (core).

A hung disk is certain only after the deadline of its operations. Until then, answers that wait for it hold up all later
answers on their connections, those from healthy disks included. So a directory in which nothing finishes for
diskraft.log.dir.suspect.ms is suspected: clients get an answer at once, but the replicas stay where they are. A part of a
large append counts as finished.

The suspicion ends when the directory has not been that silent for diskraft.log.dir.suspect.ms, or when it goes offline. If
it ended with the first operation that finishes, a disk that hangs again and again would hold up one answer after the other,
and a client might never get one: its connection ends if the disk hangs while a response leaves.

For some time after that the directory is *unsteady*: it may hang again soon. So it gets no new replicas, and followers are
not removed from the ISR for a lag, because they could not fetch from it.

A controller card or an enclosure that stalls takes several disks with it, and a client may need them one after the other:
the reads of a fetch take turns, and so do the requests of a client. So while one directory is silent, those for which
nothing waits are *tried*: something is read from their disks. Those that hang as well are then suspected soon after the
first one, and not each after a wait of its own. A directory is tried as well if clients have waited long for a sync in it
(flush.messages): a sync may take a busy disk long and makes it not silent, but a read that does not end does.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass

from common.ids import DirectoryId

_LOOKS_PER_WAIT = 10
# Clients have waited long for a sync after this part of diskraft.log.dir.suspect.ms. To try a directory costs a read of its
# disk, which may be busy.
_TRIED_AFTER = 2
# A look that comes later than this many intervals after the one before says that the process was stopped. Its disks had no
# chance to finish anything.
_LATE_LOOK = 5
# A directory is unsteady until it has not been silent for this many times diskraft.log.dir.suspect.ms. A disk that hangs
# nearly all the time is suspected again before that: it is trusted, something waits for it, and it is suspected.
_STEADY_AFTER = 4


@dataclass(frozen=True, slots=True)
class Changes:
    """The directories that a look began or ceased to suspect."""

    suspected: list[DirectoryId]
    trusted: list[DirectoryId]


class DirectorySuspicion:
    """See the module docstring. Call `look` every `look_interval_ns`."""

    def __init__(self, suspect_after_ns: int) -> None:
        self._suspect_after_ns = suspect_after_ns
        self.look_interval_ns = suspect_after_ns // _LOOKS_PER_WAIT
        self._try_after_ns = suspect_after_ns // _TRIED_AFTER
        # The suspected directories. Changes in `look`.
        self.suspected: dict[DirectoryId, None] = {}
        # Those that have been silent lately, the suspected ones included, and when each was last seen silent.
        self.unsteady: dict[DirectoryId, int] = {}
        # Those for which nothing waited at the last look, although another directory was silent or clients have waited long
        # for a sync.
        self.to_try: list[DirectoryId] = []
        self._looked_ns: int | None = None

    def look(
        self, now_ns: int, silence_ns: Mapping[DirectoryId, int], awaited_sync_ns: Mapping[DirectoryId, int]
    ) -> Changes:
        """Takes for each online directory how long it has been silent (`LogDir.silence_ns`), and how long clients have
        waited for a sync (`LogDir.awaited_sync_age_ns`)."""
        before_ns, self._looked_ns = self._looked_ns, now_ns
        is_late = before_ns is not None and now_ns - before_ns > _LATE_LOOK * self.look_interval_ns
        suspected: list[DirectoryId] = []
        for directory_id, silent_ns in silence_ns.items():
            if silent_ns < self._suspect_after_ns or (is_late and directory_id not in self.suspected):
                continue
            if directory_id not in self.suspected:
                suspected.append(directory_id)
            self.suspected[directory_id] = None
            self.unsteady[directory_id] = now_ns
        is_any_silent = not is_late and max(silence_ns.values(), default=0) >= self.look_interval_ns
        self.to_try = [
            each
            for each, silent_ns in silence_ns.items()
            if not silent_ns and (is_any_silent or (awaited_sync_ns[each] >= self._try_after_ns and not is_late))
        ]
        return Changes(suspected, self._trust(now_ns, silence_ns))

    def _trust(self, now_ns: int, online: Container[DirectoryId]) -> list[DirectoryId]:
        """Ceases to suspect directories, and returns them."""
        trusted: list[DirectoryId] = []
        for directory_id, silent_at_ns in [*self.unsteady.items()]:
            steady_ns = now_ns - silent_at_ns
            is_offline = directory_id not in online
            if directory_id in self.suspected and (is_offline or steady_ns >= self._suspect_after_ns):
                del self.suspected[directory_id]
                trusted.append(directory_id)
            if is_offline or steady_ns >= _STEADY_AFTER * self._suspect_after_ns:
                del self.unsteady[directory_id]
        return trusted

    @property
    def silent(self) -> list[DirectoryId]:
        """The suspected directories that were silent at the last look."""
        return [each for each, silent_at_ns in self.unsteady.items() if silent_at_ns == self._looked_ns]
