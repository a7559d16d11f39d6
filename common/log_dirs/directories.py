"""The result of the start-up scan: the state of the node's directories, and an open LogDir for each (shell state, no I/O).

`LogDirectories` decides which directories are online. A LogDir only does the I/O, and its directory may be offline.
"""

from dataclasses import dataclass

from common.environment.interface import LogDir
from common.ids import DirectoryId
from common.log_dirs.log_directories import LogDirectories


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDirectories:
    """The directories of one node. Created by the start-up scan and used until the node stops."""

    cluster_id: str
    known: LogDirectories
    """The state of every configured directory. Only this object knows whether a directory is online."""
    log_dirs: dict[DirectoryId, LogDir]
    """The LogDir of every directory that was opened, including the metadata directory. Invariant: never shrinks. The LogDir
    of a directory that went offline stays here and refuses all operations."""
    metadata_directory_id: DirectoryId

    @property
    def metadata(self) -> LogDir:
        return self.log_dirs[self.metadata_directory_id]
