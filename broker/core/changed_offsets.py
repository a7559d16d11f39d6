"""Which entries of a directory's checkpoint files may be out of date (core).

A replica notes itself here when an offset changes that a checkpoint file holds, so that storing the files looks at no
replica that stayed the same. A note is only a hint: the offset itself is read when the file is stored. A note too many costs
a look, a note too few leaves an old offset in the file.
"""

from dataclasses import dataclass, field

from common.storage.text_checkpoint import TopicPartition


@dataclass(frozen=True, slots=True)
class ChangedOffsets:
    """The replicas of a directory that changed since each file was last brought up to date."""

    recovery_points: set[TopicPartition] = field(default_factory=set)
    log_starts: set[TopicPartition] = field(default_factory=set)
    high_watermarks: set[TopicPartition] = field(default_factory=set)
    first_dirty_offsets: set[TopicPartition] = field(default_factory=set)
