"""The one owner of what a node's log directories are: online or offline, full, by which id, with how much space (core).

Counterpart of the online and offline sets of Kafka's LogManager and of the decisions in its handleLogDirFailure. Everything
else asks this object; what stands next to it (the LogDir of each id, the lanes of a directory, the failures that a lifecycle
still has to report) holds no opinion about online. `step` alone changes it:

    start-up scan ──> online ──────────── I/O error that fails the directory ──────────> offline
         │                                                                                  ▲ │
         └──────────── could not be read or written at start ───────────────────────────────┘ │
                       online, by another id <──────── a disk put in its place ───────────────┘

1. The first error that fails a directory wins; later errors of it change nothing.
2. The process may be short of files or memory, and the error may be our own bug. No directory pays for either.
3. A probe that finds no room says that the disk is full, not dead: what is on it can still be read. An append that finds
   none takes the directory offline, with full as the cause.
4. The last data directory, and the metadata directory, take the node with them.
5. An id that went offline stays offline for the whole incarnation. What replaces the disk brings an id of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from common.environment.disk_errors import Verdict, classify
from common.environment.interface import LogDirError, SpaceStat
from common.ids import BrokerEpoch, DirectoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """One configured directory as it is now."""

    path: str
    # Kept when the directory goes offline: the controller must learn which one failed.
    # Invariant: None only for a directory that could not be read at start and was not replaced since.
    directory_id: DirectoryId | None
    # Why the directory is offline; None while it is online.
    cause: str | None = None
    # Whether it went offline because an append found no room.
    is_full: bool = False
    # What the last look at the file system said; None before the first.
    space: SpaceStat | None = None

    @property
    def is_online(self) -> bool:
        return self.cause is None


# --- events --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpaceSeen:
    """The probe looked at the file system of a directory."""

    directory_id: DirectoryId
    space: SpaceStat


@dataclass(frozen=True, slots=True)
class DirectoryGained:
    """A formatted and probed disk is in place at the path of an offline data directory."""

    log_dir: str
    directory_id: DirectoryId


Event = LogDirError | SpaceSeen | DirectoryGained


# --- effects -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WentOffline:
    """The directory at this path is gone for this incarnation; `cause` is the error in words."""

    log_dir: str
    directory_id: DirectoryId | None
    cause: str
    is_full: bool
    # Whether it is one of log.dirs; a metadata directory of its own is not.
    is_data_dir: bool


@dataclass(frozen=True, slots=True)
class CameOnline:
    """The directory may be loaded, registered and placed on."""

    log_dir: str
    directory_id: DirectoryId


@dataclass(frozen=True, slots=True)
class Trouble:
    """Worth a loud line, but no directory failed."""

    log_dir: str
    directory_id: DirectoryId | None
    cause: str


@dataclass(frozen=True, slots=True)
class HaltNode:
    reason: str


Effect = WentOffline | CameOnline | Trouble | HaltNode


class LogDirectories:
    """See the module's docstring. `found` is what the start-up scan says of each path of `data_dirs` and of `metadata_dir`,
    which may be one of them."""

    def __init__(
        self,
        found: Sequence[LogDirectory],
        *,
        data_dirs: Sequence[str],
        metadata_dir: str,
        previous_broker_epoch: BrokerEpoch | None = None,
    ) -> None:
        # By path. Invariant: its keys never change, and no two entries have the same directory id.
        self._by_path = {each.path: each for each in found}
        self._data_dirs = tuple(data_dirs)
        self._metadata_dir = metadata_dir
        # Ids that went offline since the start, in that order. Invariant: none of them is online again.
        self._lost: list[DirectoryId] = []
        # The epoch that every directory's clean-shutdown marker names; None after anything but a complete clean end.
        self.previous_broker_epoch = previous_broker_epoch
        assert self._by_path.keys() == {*data_dirs, metadata_dir}
        # Derived from `_by_path`, because every decision about a replica asks for it. Changes with each step that does.
        self._online = self._find_online()

    @property
    def data_dirs(self) -> tuple[LogDirectory, ...]:
        """The directories of log.dirs in the order of the configuration, online or not."""
        return tuple(self._by_path[path] for path in self._data_dirs)

    @property
    def online(self) -> Mapping[DirectoryId, str]:
        """The paths of the data directories that are online, by id, in the order of the configuration."""
        return self._online

    @property
    def offline(self) -> tuple[LogDirectory, ...]:
        """The data directories that are not in use, in the order of the configuration."""
        return tuple(each for each in self.data_dirs if not each.is_online)

    @property
    def any_offline(self) -> bool:
        return len(self._online) < len(self._data_dirs)

    def is_online(self, directory_id: DirectoryId) -> bool:
        """Whether this is the id of an online data directory."""
        return directory_id in self._online

    def at(self, path: str) -> LogDirectory:
        """The directory configured at this path, the metadata directory included. Raises KeyError for any other path."""
        return self._by_path[path]

    def space(self, directory_id: DirectoryId) -> SpaceStat | None:
        """What the last look at the file system of an online data directory said; None before the first."""
        return self._with_id(directory_id).space

    def step(self, event: Event) -> list[Effect]:
        """Takes in one event; returns what follows from it, in order."""
        match event:
            case SpaceSeen(directory_id, space):
                # The directory may have gone offline, or been replaced, while the probe was under way.
                if self.is_online(directory_id):
                    self._change(replace(self._with_id(directory_id), space=space))
                return []
            case DirectoryGained(log_dir, directory_id):
                return self._gain(log_dir, directory_id)
            case _:
                return self._judge(event)

    def _judge(self, error: LogDirError) -> list[Effect]:
        directory = self._by_path[error.log_dir]
        verdict = classify(error)
        if verdict is Verdict.OUR_BUG:
            return [HaltNode(f"internal error: {error}")]
        if verdict is Verdict.PROCESS_TROUBLE:
            cause = f"{error}; the process is short of files or memory, the directory stays online"
            return [Trouble(error.log_dir, directory.directory_id, cause)]
        if verdict is Verdict.DIRECTORY_FULL and error.operation in ("probe", "statvfs"):
            return [Trouble(error.log_dir, directory.directory_id, f"{error}; the directory is full, free some space")]
        return self._lose(directory, error, is_full=verdict is Verdict.DIRECTORY_FULL)

    def _lose(self, directory: LogDirectory, error: LogDirError, *, is_full: bool) -> list[Effect]:
        if not directory.is_online:
            return []
        is_data_dir = directory.path in self._data_dirs
        self._change(replace(directory, cause=str(error), is_full=is_full))
        if directory.directory_id is not None:
            self._lost.append(directory.directory_id)
        effects: list[Effect] = [WentOffline(directory.path, directory.directory_id, str(error), is_full, is_data_dir)]
        if directory.path == self._metadata_dir:
            effects.append(HaltNode(f"the metadata directory {directory.path} failed: {error}"))
        elif not self._online:
            effects.append(HaltNode(f"the last log directory {directory.path} failed: {error}"))
        return effects

    def _gain(self, path: str, directory_id: DirectoryId) -> list[Effect]:
        directory = self._by_path[path]
        assert path in self._data_dirs, "replicas live in log.dirs only"
        assert not directory.is_online, "an online directory was taken out by nobody"
        assert directory_id not in self._lost, "an id that went offline stays offline for the whole incarnation"
        others = [each.directory_id for each in self._by_path.values() if each is not directory]
        assert directory_id not in others, "the id belongs to another directory of this node"
        self._change(LogDirectory(path=path, directory_id=directory_id))
        return [CameOnline(path, directory_id)]

    def _with_id(self, directory_id: DirectoryId) -> LogDirectory:
        return next(each for each in self._by_path.values() if each.directory_id == directory_id)

    def _change(self, directory: LogDirectory) -> None:
        self._by_path[directory.path] = directory
        self._online = self._find_online()

    def _find_online(self) -> dict[DirectoryId, str]:
        online: dict[DirectoryId, str] = {}
        for directory in self.data_dirs:
            if directory.is_online:
                assert directory.directory_id is not None, "a directory without an id is never online"
                online[directory.directory_id] = directory.path
        return online
