"""The state of a node's log directories: online or offline, full, their ids, their free space (core).

Counterpart of the online and offline sets of Kafka's LogManager, and of the decisions in its handleLogDirFailure. This is
the only place that knows whether a directory is online. Related objects (each directory's LogDir and its lanes, the failures
that the broker's lifecycle has yet to report) keep no copy of this state. Only `step` changes it:

    start-up scan ──> online ──────────── I/O error that fails the directory ──────────> offline
         │                                                                                  ▲ │
         └──────────── could not be read or written at start ───────────────────────────────┘ │
                       online, with a new id <──────── the disk was replaced ─────────────────┘

1. The first error that fails a directory wins. Later errors of the same directory change nothing.
2. If the process runs out of files or memory, or the error is our own bug, no directory goes offline for it.
3. If a probe finds no space, the directory stays online: the disk is full, not dead, and its data can still be read. If an
   append or another write finds no space, the directory does go offline, with `is_full` set.
4. Losing the last data directory or the metadata directory halts the node.
5. An id that went offline stays offline for the whole incarnation. A replacement disk has its own id.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from common.environment.disk_errors import Verdict, classify
from common.environment.interface import LogDirError, SpaceStat
from common.ids import BrokerEpoch, DirectoryId


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """The present state of one configured directory."""

    path: str
    # The id in meta.properties. Kept when the directory goes offline, because the id of a failed directory is reported to
    # the controller. Invariant: None only for a directory that could not be read at start and has not been replaced since.
    directory_id: DirectoryId | None
    # Why the directory is offline; None while it is online.
    cause: str | None = None
    # Whether the directory went offline because an append or another write found no space.
    is_full: bool = False
    # The space found by the last statvfs; None before the first one.
    space: SpaceStat | None = None

    @property
    def is_online(self) -> bool:
        return self.cause is None


# --- events --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpaceSeen:
    """The probe of a directory measured its free space."""

    directory_id: DirectoryId
    space: SpaceStat


@dataclass(frozen=True, slots=True)
class DirectoryGained:
    """The disk of an offline data directory was replaced by one that is formatted and probed."""

    log_dir: str
    directory_id: DirectoryId


Event = LogDirError | SpaceSeen | DirectoryGained


# --- effects -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WentOffline:
    """The directory failed, and its id stays offline for this incarnation. `cause` is the text of the error."""

    log_dir: str
    directory_id: DirectoryId | None
    cause: str
    is_full: bool
    # Whether the directory is one of log.dirs. A separate metadata directory is not.
    is_data_dir: bool


@dataclass(frozen=True, slots=True)
class CameOnline:
    """The directory is ready: its logs may be loaded, and it may be registered and get new replicas."""

    log_dir: str
    directory_id: DirectoryId


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem that deserves a warning in the log, but no directory failed."""

    log_dir: str
    directory_id: DirectoryId | None
    cause: str


@dataclass(frozen=True, slots=True)
class HaltNode:
    reason: str


Effect = WentOffline | CameOnline | Trouble | HaltNode


class LogDirectories:
    """See the module's docstring. `found` is the start-up scan's result for each path of `data_dirs` and for `metadata_dir`,
    which may be one of `data_dirs`."""

    def __init__(
        self,
        found: Sequence[LogDirectory],
        *,
        data_dirs: Sequence[str],
        metadata_dir: str,
        previous_broker_epoch: BrokerEpoch | None = None,
    ) -> None:
        # Every configured directory, by path. Invariant: the paths never change, and no two directories have the same id.
        self._by_path = {each.path: each for each in found}
        self._data_dirs = tuple(data_dirs)
        self._metadata_dir = metadata_dir
        # The ids of the directories that went offline since the start, in the order of the failures. Only grows. Invariant:
        # no id in this list is online.
        self._lost: list[DirectoryId] = []
        # The broker epoch on which the clean-shutdown markers of all data directories agree. None if a data directory has no
        # marker or is offline, or if the epochs differ: the last shutdown then counts as unclean.
        self.previous_broker_epoch = previous_broker_epoch
        assert self._by_path.keys() == {*data_dirs, metadata_dir}
        # Cache of the online data directories, because every decision about a replica needs them. Invariant: agrees with
        # `_by_path`; rebuilt by `_change`.
        self._online = self._find_online()

    @property
    def data_dirs(self) -> tuple[LogDirectory, ...]:
        """The directories of log.dirs, online or not, in configured order."""
        return tuple(self._by_path[path] for path in self._data_dirs)

    @property
    def configured(self) -> tuple[LogDirectory, ...]:
        """The directories of log.dirs and the metadata directory, online or not."""
        return tuple(self._by_path.values())

    @property
    def online(self) -> Mapping[DirectoryId, str]:
        """The paths of the online data directories by id, in configured order."""
        return self._online

    @property
    def offline(self) -> tuple[LogDirectory, ...]:
        """The offline data directories, in configured order."""
        return tuple(each for each in self.data_dirs if not each.is_online)

    @property
    def any_offline(self) -> bool:
        return len(self._online) < len(self._data_dirs)

    def is_online(self, directory_id: DirectoryId) -> bool:
        """Returns whether this is the id of an online data directory."""
        return directory_id in self._online

    def at(self, path: str) -> LogDirectory:
        """Returns the directory configured at this path, which may be the metadata directory. Raises KeyError otherwise."""
        return self._by_path[path]

    def space(self, directory_id: DirectoryId) -> SpaceStat | None:
        """Returns the last measured space of the directory with this id, None before the first measurement."""
        return self._with_id(directory_id).space

    def step(self, event: Event) -> list[Effect]:
        """Processes one event and returns its effects, in order."""
        match event:
            case SpaceSeen(directory_id, space):
                for directory in self.configured:
                    # The directory may have gone offline or been replaced during the probe.
                    if directory.directory_id == directory_id and directory.is_online:
                        self._change(replace(directory, space=space))
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
