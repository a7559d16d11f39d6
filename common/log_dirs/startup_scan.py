"""Opens every configured directory when a node starts, and refuses to start if anything is doubtful (shell).

Counterpart of Kafka's KafkaRaftServer.initializeLogDirs and of the startup of its LogManager. A directory that cannot be
read or written starts offline. A directory that is unformatted, locked, a copy of another one, or another node's is fatal:
the node ends with one line that says how to fix it. A read-only disk still returns its meta.properties, so every directory
must pass a write probe before it counts as online.
"""

import asyncio
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from common.environment.disk_errors import Verdict, classify
from common.environment.interface import SYNC_TIMEOUT_NS, Environment, LogDir, LogDirError, LogDirLocked, SpaceStat
from common.ids import METADATA_TOPIC_NAME, BrokerEpoch, DirectoryId
from common.log_dirs.directories import NodeDirectories
from common.log_dirs.log_directories import LogDirectories, LogDirectory
from common.log_dirs.probe import probe_unless_full
from common.storage.clean_shutdown import load_clean_shutdown
from common.storage.meta_properties import (
    VERSION_KRAFT,
    MalformedMetaProperties,
    MetaProperties,
    MetaPropertiesConflict,
    MetaPropertiesEnsemble,
    generate_directory_id,
    verify_for_start,
)
from common.storage.meta_properties_file import load_meta_properties, store_meta_properties
from common.storage.names import META_PROPERTIES_FILE


class StartupError(Exception):
    """The node cannot start. The text is one line that names the directory and the fix."""


@dataclass(slots=True)
class _Scan:
    """The findings so far. Every mapping is by path."""

    # The directories that were attached. `_give_up` takes a directory offline and removes it from here.
    open: dict[str, LogDir] = field(default_factory=dict)
    # The contents of each meta.properties. Invariant: every path in `formatted` is also in `open`.
    formatted: dict[str, MetaProperties] = field(default_factory=dict)
    unformatted: list[str] = field(default_factory=list)
    # The directories that start offline, each with the cause. Only `_give_up` adds to it. Invariant: no path is also in
    # `open`.
    unreadable: dict[str, str] = field(default_factory=dict)
    # The broker epoch in each clean-shutdown marker, None if there is no marker.
    epochs: dict[str, BrokerEpoch | None] = field(default_factory=dict)
    space: dict[str, SpaceStat] = field(default_factory=dict)
    # Why the node cannot start with a directory.
    refused: dict[str, StartupError] = field(default_factory=dict)

    def put_in_order(self, paths: Sequence[str]) -> None:
        """Orders what the directories have yielded, each in its own time, like the configuration. Raises the first
        StartupError."""
        self.open = {path: self.open[path] for path in paths if path in self.open}
        self.formatted = {path: self.formatted[path] for path in paths if path in self.formatted}
        self.unreadable = {path: self.unreadable[path] for path in paths if path in self.unreadable}
        self.unformatted.sort(key=paths.index)
        for path in paths:
            if path in self.refused:
                raise self.refused[path]


async def scan_directories(
    env: Environment,
    *,
    node_id: int,
    log_dirs: tuple[str, ...],
    metadata_log_dir: str,
    operation_timeout_ns: int,
    sync_timeout_ns: int = SYNC_TIMEOUT_NS,
) -> NodeDirectories:
    """Opens, locks, probes and verifies `log_dirs` and the metadata directory, all at the same time, so that several hung
    disks delay the start no more than one. Raises StartupError, after it has released the locks taken so far."""
    scan = _Scan()
    is_complete = False
    try:
        paths = log_dirs if metadata_log_dir in log_dirs else (*log_dirs, metadata_log_dir)
        async with asyncio.TaskGroup() as group:
            for path in paths:
                group.create_task(_open_one(env, scan, path, operation_timeout_ns, sync_timeout_ns))
        scan.put_in_order(paths)
        directories = await _verified(env, scan, node_id=node_id, log_dirs=log_dirs, metadata_log_dir=metadata_log_dir)
        is_complete = True
        return directories
    finally:
        if not is_complete:
            for log_dir in scan.open.values():
                log_dir.release_lock_now()


async def _verified(
    env: Environment, scan: _Scan, *, node_id: int, log_dirs: tuple[str, ...], metadata_log_dir: str
) -> NodeDirectories:
    ensemble = MetaPropertiesEnsemble(
        formatted=scan.formatted,
        unformatted=tuple(scan.unformatted),
        unreadable=scan.unreadable,
        metadata_log_dir=metadata_log_dir,
    )
    try:
        verify_for_start(ensemble, node_id=node_id)
    except MetaPropertiesConflict as conflict:
        raise StartupError(str(conflict)) from conflict
    await _refuse_misplaced_metadata(env, scan, metadata_log_dir)
    ids = await _ensure_directory_ids(env, scan)
    if metadata_log_dir not in scan.open or not any(path in scan.open for path in log_dirs):
        raise StartupError(_no_directory_left(scan, metadata_log_dir))
    cluster_id = ensemble.cluster_id
    assert cluster_id is not None, "verify_for_start demands it"
    # The metadata directory comes last, unless it is one of log.dirs.
    paths = tuple(dict.fromkeys((*log_dirs, metadata_log_dir)))
    return NodeDirectories(
        cluster_id=cluster_id,
        known=LogDirectories(
            [
                LogDirectory(
                    path=path,
                    directory_id=ids.get(path),
                    cause=None if path in scan.open else scan.unreadable[path],
                    space=scan.space.get(path),
                )
                for path in paths
            ],
            data_dirs=log_dirs,
            metadata_dir=metadata_log_dir,
            previous_broker_epoch=_agreed_epoch(scan, log_dirs),
        ),
        log_dirs={ids[path]: scan.open[path] for path in paths if path in scan.open},
        metadata_directory_id=ids[metadata_log_dir],
    )


async def _open_one(env: Environment, scan: _Scan, path: str, operation_timeout_ns: int, sync_timeout_ns: int) -> None:
    try:
        await _open_directory(env, scan, path, operation_timeout_ns, sync_timeout_ns)
    except StartupError as refused:
        # The others may still be taking their locks, which have to be released again.
        scan.refused[path] = refused


async def _open_directory(env: Environment, scan: _Scan, path: str, operation_timeout_ns: int, sync_timeout_ns: int) -> None:
    log_dir = env.log_dir(path, operation_timeout_ns=operation_timeout_ns, sync_timeout_ns=sync_timeout_ns)
    try:
        await log_dir.attach()
        scan.open[path] = log_dir
        await log_dir.lock()
        found = await load_meta_properties(log_dir)
        if found is None:
            scan.unformatted.append(path)
            return
        if not await probe_unless_full(log_dir):
            # A full directory stays online until an append does not fit, like a directory that fills up while the node runs.
            env.log.warning("log_dir_warning", log_dir=path, cause="the directory is full, free some space")
        scan.space[path] = await log_dir.statvfs()
        marker = await load_clean_shutdown(log_dir)
        scan.epochs[path] = marker.broker_epoch if marker is not None else None
        scan.formatted[path] = found
    except LogDirLocked as locked:
        raise StartupError(
            f"Log directory {path} is in use by another process (its .lock is held). Stop that process, or take the "
            "directory out of log.dirs."
        ) from locked
    except MalformedMetaProperties as malformed:
        cause = f"{path}/{META_PROPERTIES_FILE} is damaged: {malformed}"
        _give_up(env, scan, path, LogDirError(path, "meta.properties", 0, detail=str(malformed)), cause)
    except LogDirError as error:
        if error.operation == "attach" and _is_missing(error):
            raise StartupError(
                f"Log directory {path} does not exist. Mount its disk, or create it with `kafka-storage format`, or take it "
                "out of log.dirs."
            ) from error
        _give_up(env, scan, path, error, str(error))


def _is_missing(error: LogDirError) -> bool:
    return error.errno_code == errno.ENOENT


def _give_up(env: Environment, scan: _Scan, path: str, error: LogDirError, cause: str) -> None:
    if classify(error) is Verdict.PROCESS_TROUBLE:
        # The disk may be healthy, and giving the directory up would declare it dead.
        raise StartupError(
            f"{error}: the process is short of files, threads or memory. Raise its limits (ulimit -n, ulimit -u, or the "
            "container's limit of processes), then start again."
        )
    scan.unreadable[path] = cause
    scan.formatted.pop(path, None)
    log_dir = scan.open.pop(path, None)
    if log_dir is not None:
        log_dir.take_offline(error)
    env.log.error("log_dir_offline_at_start", log_dir=path, cause=cause)


async def _refuse_misplaced_metadata(env: Environment, scan: _Scan, metadata_log_dir: str) -> None:
    for path, log_dir in list(scan.open.items()):
        if path == metadata_log_dir:
            continue
        try:
            misplaced = await log_dir.stat(f"{METADATA_TOPIC_NAME}-0")
        except LogDirError as error:
            _give_up(env, scan, path, error, str(error))
            continue
        if misplaced is not None:
            raise StartupError(
                f"Found {METADATA_TOPIC_NAME}-0 in {path}, but the metadata directory is {metadata_log_dir}. Correct "
                "metadata.log.dir, or remove the folder if it is a leftover."
            )


async def _ensure_directory_ids(env: Environment, scan: _Scan) -> Mapping[str, DirectoryId]:
    """Returns the ids by path.

    Each directory formatted before KIP-858 first gets a new id, which is written to a version 1 meta.properties.
    """
    ids = {path: found.directory_id for path, found in scan.formatted.items() if found.directory_id is not None}
    for path, found in list(scan.formatted.items()):
        if path in ids:
            continue
        directory_id = generate_directory_id(env.uuid, ids.values())
        try:
            await store_meta_properties(scan.open[path], replace(found, directory_id=directory_id, version=VERSION_KRAFT))
        except LogDirError as error:
            _give_up(env, scan, path, error, str(error))
            continue
        ids[path] = directory_id
        env.log.info("directory_id_added", log_dir=path, directory_id=directory_id)
    return ids


def _agreed_epoch(scan: _Scan, log_dirs: tuple[str, ...]) -> BrokerEpoch | None:
    # If a data directory is offline or has no marker, or if the epochs differ, the whole broker counts as crashed (KIP-966).
    epochs = {scan.epochs.get(path) for path in log_dirs}
    return epochs.pop() if len(epochs) == 1 else None


def _no_directory_left(scan: _Scan, metadata_log_dir: str) -> str:
    causes = "; ".join(f"{path}: {cause}" for path, cause in scan.unreadable.items())
    what = "The metadata directory" if metadata_log_dir in scan.unreadable else "Every log directory"
    return f"{what} is unusable, this node cannot start. Repair or replace the disk ({causes})."
