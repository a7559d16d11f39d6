"""What the start-up scan hands to a node: what its directories are, and the open LogDir of each (shell state, no I/O)."""

from dataclasses import dataclass

from common.environment.interface import LogDir
from common.ids import DirectoryId
from common.log_dirs.log_directories import LogDirectories


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDirectories:
    """The directories of one node in one life."""

    cluster_id: str
    known: LogDirectories
    """What they are; who needs to know whether one is online asks here."""
    log_dirs: dict[DirectoryId, LogDir]
    """The handle of every directory that was opened, the metadata directory included. Invariant: never shrinks; a handle
    whose directory went offline refuses everything."""
    metadata_directory_id: DirectoryId

    @property
    def metadata(self) -> LogDir:
        return self.log_dirs[self.metadata_directory_id]
