"""meta.properties, the file that marks a log directory as formatted, and the check that the files of one node agree (core).

Counterpart of Kafka's MetaProperties and MetaPropertiesEnsemble. Version 0 dates from the ZooKeeper era and has `broker.id`.
This project writes version 1. `directory.id` may be missing in both versions and is then added at start. An *unreadable*
directory is a broken disk and starts offline. An *unformatted* directory next to formatted ones is probably a missing mount,
and must never silently get an id of its own.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import javaproperties

from common.ids import DirectoryId, Uuid, uuid_from_text, uuid_text
from common.metadata.directory_ids import is_reserved
from common.storage.names import META_PROPERTIES_FILE

VERSION_ZOOKEEPER = 0
VERSION_KRAFT = 1
_NODE_ID_MAX = 2**31 - 1


class MalformedMetaProperties(Exception):
    """The content is not a valid meta.properties; the text says why. The directory counts as unreadable."""


class MetaPropertiesConflict(Exception):
    """The directories contradict each other or the configuration. The text is one line and says how to fix the conflict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The content of a meta.properties. A version 0 file may lack any of the ids, a version 1 file only the directory id."""

    cluster_id: str | None = None
    node_id: int | None = None
    directory_id: DirectoryId | None = None
    version: int = VERSION_KRAFT

    def with_directory_id(self, directory_id: DirectoryId) -> "MetaProperties":
        """Returns a copy with this directory id."""
        return replace(self, directory_id=directory_id)

    def entries(self) -> dict[str, str]:
        """Returns the keys and values as in the file, sorted by key."""
        entries = {"version": str(self.version)}
        if self.cluster_id is not None:
            entries["cluster.id"] = self.cluster_id
        if self.node_id is not None:
            entries["broker.id" if self.version == VERSION_ZOOKEEPER else "node.id"] = str(self.node_id)
        if self.directory_id is not None:
            entries["directory.id"] = uuid_text(self.directory_id)
        return dict(sorted(entries.items()))

    def __str__(self) -> str:
        """Formats the properties as Kafka's tools do: {cluster.id=..., node.id=1, version=1}."""
        return "{" + ", ".join(f"{key}={value}" for key, value in self.entries().items()) + "}"


def format_meta_properties(properties: MetaProperties) -> bytes:
    """Returns the content of the file."""
    return javaproperties.dumps(properties.entries(), timestamp=False, sort_keys=True).encode("latin-1")


def parse_meta_properties(content: bytes) -> MetaProperties:
    """Parses the content of the file and ignores unknown keys. Raises MalformedMetaProperties."""
    try:
        entries: dict[str, str] = javaproperties.loads(content.decode("latin-1"))
    except ValueError as error:
        raise MalformedMetaProperties(f"no properties file: {error}") from error
    version = _number(entries, "version", default=VERSION_ZOOKEEPER)
    if version not in (VERSION_ZOOKEEPER, VERSION_KRAFT):
        raise MalformedMetaProperties(f"Unknown meta.properties version number {version}.")
    node_key = "node.id" if version == VERSION_KRAFT else "broker.id"
    node_id = _number(entries, node_key, default=None)
    cluster_id = entries.get("cluster.id")
    if cluster_id is not None and not cluster_id.isprintable():
        # Escape sequences in the file can produce line breaks and lone surrogates. No request can carry a lone surrogate.
        raise MalformedMetaProperties(f"cluster.id is {cluster_id!r}, which is not printable")
    if version == VERSION_KRAFT:
        for key, value in (("cluster.id", cluster_id), ("node.id", node_id)):
            if value is None:
                raise MalformedMetaProperties(f"{key} is missing")
    directory_id = None
    if (text := entries.get("directory.id")) is not None:
        try:
            directory_id = DirectoryId(uuid_from_text(text))
        except ValueError as error:
            raise MalformedMetaProperties(f"directory.id: {error}") from error
    assert version is not None
    return MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id, version=version)


def _number(entries: Mapping[str, str], key: str, *, default: int | None) -> int | None:
    text = entries.get(key)
    if text is None:
        return default
    text = text.strip()
    if not (text.isascii() and text.isdigit()):
        raise MalformedMetaProperties(f"{key} is {text!r}, which is not a number")
    # int() raises ValueError for thousands of digits, so check the length first.
    if len(text) > 10 or int(text) > _NODE_ID_MAX:
        raise MalformedMetaProperties(f"{key} is {text[:40]}, the greatest number that it takes is {_NODE_ID_MAX}")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaPropertiesEnsemble:
    """All configured directories of one node by path, in configuration order. Each is either formatted, unformatted or
    unreadable."""

    formatted: Mapping[str, MetaProperties]
    unformatted: tuple[str, ...] = ()
    unreadable: Mapping[str, str]
    """Maps each unreadable path to the reason, in one line."""
    metadata_log_dir: str

    @property
    def cluster_id(self) -> str | None:
        """The cluster id of the first formatted directory that has one."""
        return next((found.cluster_id for found in self.formatted.values() if found.cluster_id is not None), None)


def verify_agreement(ensemble: MetaPropertiesEnsemble, *, node_id: int, cluster_id: str | None = None) -> None:
    """Checks the formatted directories against each other, `node_id`, and `cluster_id` if given.

    Both formatting and starting need this check. Raises MetaPropertiesConflict.
    """
    expected_cluster_id = cluster_id
    owners: dict[DirectoryId, str] = {}
    for path, found in ensemble.formatted.items():
        file = f"{path}/{META_PROPERTIES_FILE}"
        if found.cluster_id is not None:
            if expected_cluster_id is None:
                expected_cluster_id = found.cluster_id
            if found.cluster_id != expected_cluster_id:
                raise MetaPropertiesConflict(
                    f"Invalid cluster.id in: {file}. Expected {expected_cluster_id}, but read {found.cluster_id}. "
                    f"Remove {path} from log.dirs, or empty it and format it for this cluster."
                )
        if found.node_id is not None and found.node_id != node_id:
            raise MetaPropertiesConflict(
                f"Stored node id {found.node_id} doesn't match the configured node.id {node_id} in {file}. Correct node.id, "
                f"or remove {path} from log.dirs, or empty it and format it for this node."
            )
        if found.directory_id is not None:
            _verify_directory_id(path, found.directory_id, owners)


def _verify_directory_id(path: str, directory_id: DirectoryId, owners: dict[DirectoryId, str]) -> None:
    text = uuid_text(directory_id)
    if is_reserved(directory_id):
        raise MetaPropertiesConflict(
            f"Invalid reserved directory ID {text} found in {path}. Remove the line directory.id from "
            f"{path}/{META_PROPERTIES_FILE} to get a new one."
        )
    if directory_id in owners:
        raise MetaPropertiesConflict(
            f"Duplicate directory ID {text} found. It was the ID of {owners[directory_id]}, but also of {path}. "
            "One of them is a copy: remove it from log.dirs, or empty and format it."
        )
    owners[directory_id] = path


def verify_for_start(ensemble: MetaPropertiesEnsemble, *, node_id: int) -> None:
    """Checks whether a daemon may start with these directories. Raises MetaPropertiesConflict.

    Unreadable directories pass and start offline, except for the metadata log directory.
    """
    if ensemble.metadata_log_dir in ensemble.unreadable:
        reason = ensemble.unreadable[ensemble.metadata_log_dir]
        raise MetaPropertiesConflict(
            f"Encountered I/O error in metadata log directory {ensemble.metadata_log_dir}. Cannot continue. Repair it or "
            f"name another metadata.log.dir ({reason})."
        )
    for path in ensemble.unformatted:
        raise MetaPropertiesConflict(
            f"No `{META_PROPERTIES_FILE}` found in {path} (have you run `kafka-storage format`, and is the disk mounted?)"
        )
    if not ensemble.formatted:
        paths = ", ".join(ensemble.unreadable)
        raise MetaPropertiesConflict(
            f"No readable {META_PROPERTIES_FILE} files found in {paths}. Repair one of the disks, or format a new one."
        )
    for path, found in ensemble.formatted.items():
        for key, value in (("cluster.id", found.cluster_id), ("node.id", found.node_id)):
            if value is None:
                raise MetaPropertiesConflict(
                    f"{key} was not specified in {path}/{META_PROPERTIES_FILE}. "
                    "Add it, or empty the directory and format it."
                )
    verify_agreement(ensemble, node_id=node_id)


def generate_directory_id(draw: Callable[[], Uuid], taken: Collection[DirectoryId]) -> DirectoryId:
    """Draws a directory id that is not reserved, not in `taken`, and does not start with '-' when printed.

    Command-line tools treat an argument that starts with '-' as a flag.
    """
    while True:
        candidate = DirectoryId(draw())
        if not is_reserved(candidate) and candidate not in taken and not uuid_text(candidate).startswith("-"):
            return candidate
