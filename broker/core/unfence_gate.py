"""What a new incarnation waits for before it asks to be unfenced (core, KIP-858 and DESIGN.md section 6).

At the first image at or past its registration the broker fixes the set of its replicas whose metadata names another
directory than the one their log is in, and asks to unfence when each of these agrees in *applied* metadata, is gone, is
LOST, or cannot be placed. Easy to get wrong: the set is fixed once; assignments that come up later never count, and a
running broker never fences itself for them.
"""

from collections.abc import Callable, Iterable, Mapping

from common.ids import DirectoryId, TopicIdPartition
from common.metadata.directory_ids import LOST


class UnfenceGate:
    """Open once every replica of the fixed set is settled. Below metadata.version 17 it is opened with an empty set."""

    def __init__(self) -> None:
        self._waiting: dict[TopicIdPartition, None] | None = None

    @property
    def is_fixed(self) -> bool:
        return self._waiting is not None

    @property
    def is_open(self) -> bool:
        return self._waiting is not None and not self._waiting

    @property
    def waiting(self) -> tuple[TopicIdPartition, ...]:
        """What is still waited for, for the operator."""
        return tuple(self._waiting or ())

    def fix(self, differing: Iterable[TopicIdPartition]) -> None:
        """Fixes the set. May be called once."""
        assert self._waiting is None, "the set is fixed once per incarnation"
        self._waiting = dict.fromkeys(differing)

    def update(
        self,
        *,
        assigned: Callable[[TopicIdPartition], DirectoryId | None],
        hosted: Mapping[TopicIdPartition, DirectoryId],
        unplaceable: Callable[[TopicIdPartition], bool],
    ) -> None:
        """Drops what is settled: `assigned` reads the newest applied metadata (None: no longer a replica of ours)."""
        if self._waiting is None:
            return
        for replica in list(self._waiting):
            directory_id = assigned(replica)
            if directory_id is None or directory_id == LOST or directory_id == hosted.get(replica) or unplaceable(replica):
                del self._waiting[replica]
