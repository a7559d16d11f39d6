"""The result of the start-up scan: the state of the node's directories, and an open LogDir for each (shell state, no I/O).

`LogDirectories` decides which directories are online. The handles here only do the I/O, and having one does not mean that
its directory is online.
"""

from dataclasses import dataclass

from common.environment.interface import LogDir
from common.ids import DirectoryId
from common.log_dirs.log_directories import LogDirectories


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDirectories:
    """The directories of one node, from its start to its end."""

    cluster_id: str
    known: LogDirectories
    """The state of every configured directory. The only source for whether one is online."""
    log_dirs: dict[DirectoryId, LogDir]
    """The handle of every directory that was opened, including the metadata directory. Invariant: never shrinks. A handle
    whose directory went offline refuses all operations."""
    metadata_directory_id: DirectoryId

    @property
    def metadata(self) -> LogDir:
        return self.log_dirs[self.metadata_directory_id]
