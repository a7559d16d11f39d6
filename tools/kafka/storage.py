"""kafka-storage: random-uuid, format and info for a node's log directories, with Kafka's output (shell).

Counterpart of Kafka's StorageTool and Formatter. Formatting writes bootstrap.checkpoint and meta.properties into each
directory that lacks them. A directory that cannot be read is reported and skipped, so that one dead disk does not prevent
formatting the others. A directory that is already formatted keeps its id.
"""

import argparse
import asyncio
import contextlib
import errno
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from common.configuration.endpoints import HostPort
from common.configuration.server import ServerConfig
from common.environment.interface import Environment, LogDir, LogDirError, LogDirLocked
from common.environment.real import RealEnvironment
from common.ids import DirectoryId, uuid_text
from common.metadata.metadata_version import (
    CONTROLLER_FEATURES,
    DEFAULT_LEVEL,
    DEFAULT_TRANSACTION_VERSION,
    FURTHER_FEATURES_LEVEL,
    GROUP_VERSION_FEATURE,
    LATEST_LEVEL,
    LEVEL_NAMES,
    METADATA_VERSION_FEATURE,
    MINIMUM_BOOTSTRAP_LEVEL,
    TRANSACTION_VERSION_FEATURE,
    UnknownMetadataVersion,
    level_name,
    parse_level,
    transaction_version_of,
)
from common.protocol.numbering import Numbering
from common.raft.bootstrap import bootstrap_records, make_bootstrap_checkpoint
from common.raft.core.offsets import BOOTSTRAP_CHECKPOINT
from common.storage.meta_properties import (
    VERSION_ZOOKEEPER,
    MalformedMetaProperties,
    MetaProperties,
    MetaPropertiesConflict,
    MetaPropertiesEnsemble,
    generate_directory_id,
    verify_agreement,
)
from common.storage.meta_properties_file import load_meta_properties, store_meta_properties
from common.storage.names import META_PROPERTIES_FILE
from tools.arguments import ToolParser
from tools.errors import ToolError, run_tool
from tools.kafka.feature_levels import feature_dependencies, version_mapping
from tools.kafka.initial_controllers import InitialController, parse_initial_controllers
from tools.kafka.stored_numbering import stored_numbering
from tools.node.configuration_file import read_config

CLUSTER_ID_CHARACTERS = 22

OPERATION_TIMEOUT_NS = 30 * 10**9


@dataclass(slots=True)
class _Found:
    """The configured directories grouped by their state, in path order."""

    open: dict[str, LogDir] = field(default_factory=dict)
    formatted: dict[str, MetaProperties] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    # Only `info` fills `missing` and `no_directory`. `format` creates a missing directory, and counts a path that is not a
    # directory as unreadable.
    missing: list[str] = field(default_factory=list)
    no_directory: list[str] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    async def close(self) -> None:
        """Closes all directories. Everything written is already durable, so errors are ignored."""
        for log_dir in self.open.values():
            with contextlib.suppress(LogDirError):
                await log_dir.close()


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(_with_id_joined(sys.argv[1:] if argv is None else argv))
    actions: Mapping[str, Callable[[argparse.Namespace], int]] = {
        "random-uuid": _random_uuid,
        "format": lambda given: asyncio.run(_format(given)),
        "info": lambda given: asyncio.run(_info(given)),
        "version-mapping": version_mapping,
        "feature-dependencies": feature_dependencies,
    }
    return run_tool(lambda: actions[arguments.action](arguments))


def entry() -> None:
    sys.exit(main())


def _with_id_joined(argv: list[str]) -> list[str]:
    """Writes `-t ID` as `--cluster-id=ID` if the id begins with "-", which argparse would take for an option. The id of a
    cluster that comes from ZooKeeper may; ours and those of Kafka's random-uuid do not."""
    for position, (option, value) in enumerate(pairwise(argv)):
        if option in ("-t", "--cluster-id") and value.startswith("-") and len(value) == CLUSTER_ID_CHARACTERS:
            return [*argv[:position], f"--cluster-id={value}", *argv[position + 2 :]]
    return argv


def command_line() -> ToolParser:
    parser = ToolParser("kafka-storage", "Prepare and inspect the log directories of a node.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("random-uuid", help="print a new cluster id")
    info = actions.add_parser("info", help="show what the directories hold and what is wrong with them")
    format_ = actions.add_parser("format", help="format the directories that are not formatted yet")
    for sub_parser in (info, format_):
        sub_parser.add_argument("-c", "--config", required=True, metavar="FILE", help="the node's server.properties")
    format_.add_argument("-t", "--cluster-id", required=True, help="the cluster's id, from random-uuid")
    format_.add_argument("-g", "--ignore-formatted", action="store_true", help="leave formatted directories alone")
    format_.add_argument("-r", "--release-version", help="use the metadata.version of this release")
    format_.add_argument(
        "-f", "--feature", action="append", default=[], metavar="NAME=LEVEL", help="level of one feature; may be repeated"
    )
    format_.add_argument(
        "--directory-numbering",
        choices=[each.value for each in Numbering],
        default=Numbering.KIP858.value,
        help="the numbers of the reserved directory ids; nodes of Apache Kafka can join only with apache",
    )
    quorum = format_.add_mutually_exclusive_group()
    quorum.add_argument(
        "-s", "--standalone", action="store_true", help="this node is the cluster's only controller; no voters are listed"
    )
    quorum.add_argument(
        "-I",
        "--initial-controllers",
        metavar="ID@HOST:PORT:DIRECTORY_ID",
        help="as --standalone, with a given id of the metadata directory; takes one controller",
    )
    quorum.add_argument(
        "-N", "--no-initial-controllers", action="store_true", help="this node does not start a quorum; for brokers"
    )
    mapping = actions.add_parser("version-mapping", help="show the metadata.version of a release")
    mapping.add_argument("-r", "--release-version", help="default: the version that clusters are formatted with")
    dependencies = actions.add_parser("feature-dependencies", help="show which features a feature level requires")
    dependencies.add_argument(
        "-f", "--feature", action="append", required=True, metavar="NAME=LEVEL", help="may be repeated"
    )
    return parser


def _random_uuid(_: argparse.Namespace) -> int:
    async def draw() -> str:
        return uuid_text(RealEnvironment("kafka-storage").uuid())

    print(asyncio.run(draw()))
    return 0


# --- format ------------------------------------------------------------------------------------------------------------


async def _format(arguments: argparse.Namespace) -> int:
    config = _load(arguments.config)
    if not arguments.cluster_id.strip():
        # As after a mistake in --cluster-id "$(kafka-storage random-uuid)". Kafka's tool would store the empty id.
        raise ToolError("--cluster-id is empty; kafka-storage random-uuid makes one")
    metadata_directory_id = _check_quorum(config, arguments)
    numbering = Numbering(arguments.directory_numbering)
    level, transaction_version, group_version = _chosen_levels(arguments, numbering)
    await format_directories(
        RealEnvironment("kafka-storage"),
        config,
        cluster_id=arguments.cluster_id,
        level=level,
        transaction_version=transaction_version,
        group_version=group_version,
        numbering=numbering,
        ignore_formatted=arguments.ignore_formatted,
        metadata_directory_id=metadata_directory_id,
        say=print,
        explain=lambda line: print(line, file=sys.stderr),
    )
    return 0


def _load(path: str) -> ServerConfig:
    config = read_config(path)
    for doubt in config.doubts:
        print(f"{path}: {doubt}", file=sys.stderr)
    return config


def _check_quorum(config: ServerConfig, arguments: argparse.Namespace) -> DirectoryId | None:
    """Checks that the flags suit the node. Returns the id that its metadata directory is to have, None for any id."""
    initial = arguments.initial_controllers
    flag = "--standalone" if initial is None else "--initial-controllers"
    if (arguments.standalone or initial is not None) and not config.is_controller:
        raise ToolError(f"{flag} is for controllers; this node is only a broker (process.roles)")
    if initial is not None:
        return _sole_controller(config, initial).directory_id
    if config.is_standalone and not arguments.standalone:
        # Only the operator knows that no other controller serves this cluster id.
        raise ToolError(
            "controller.quorum.voters is not set on this controller; --standalone makes it the cluster's only controller"
        )
    return None


def _sole_controller(config: ServerConfig, text: str) -> InitialController:
    try:
        controllers = parse_initial_controllers(text)
    except ValueError as error:
        raise ToolError(f"--initial-controllers: {error}") from None
    if len(controllers) > 1:
        raise ToolError(f"--initial-controllers: a cluster has one controller, not {len(controllers)}")
    (controller,), (voter,) = controllers, config.controller_quorum_voters
    for name, given, configured in (
        ("node id", controller.node_id, config.node_id),
        ("address", controller.address, HostPort(voter.host, voter.port)),
    ):
        if given != configured:
            raise ToolError(f"--initial-controllers: the {name} {given} is not that of this node, which is {configured}")
    return controller


def _nothing(_line: str) -> None:
    """Prints nothing."""


async def format_directories(
    env: Environment,
    config: ServerConfig,
    *,
    cluster_id: str,
    level: int,
    ignore_formatted: bool,
    transaction_version: int = 0,
    group_version: int = 0,
    numbering: Numbering = Numbering.KIP858,
    metadata_directory_id: DirectoryId | None = None,
    say: Callable[[str], None] = _nothing,
    explain: Callable[[str], None] = _nothing,
) -> None:
    """Formats the unformatted directories, the metadata directory with the given id, if any. `say` is called with each line
    of output, as Kafka prints it; `explain` is called with the reason why a directory is skipped.

    Raises ToolError.
    """
    found = await _look(env, config, create=True, lock=True)
    try:
        _verify(config, found, cluster_id)
        if found.formatted and not ignore_formatted:
            path = next(iter(found.formatted))
            raise ToolError(
                f"Log directory {path} is already formatted. "
                "Use --ignore-formatted to ignore this directory and format the others."
            )
        for path, why in found.unreadable.items():
            say(f"I/O error trying to read log directory {path}. Ignoring...")
            explain(f"{path}: {why}")
        if not found.empty and not found.formatted:
            raise ToolError("No available log directories to format.")
        bootstrap = make_bootstrap_checkpoint(bootstrap_records(level, numbering, transaction_version, group_version))
        await _format_found(env, config, found, cluster_id, level, bootstrap, metadata_directory_id, say)
    finally:
        await found.close()


async def _format_found(
    env: Environment,
    config: ServerConfig,
    found: _Found,
    cluster_id: str,
    level: int,
    bootstrap: bytes,
    metadata_directory_id: DirectoryId | None,
    say: Callable[[str], None],
) -> None:
    ids = {known.directory_id for known in found.formatted.values() if known.directory_id is not None}
    # A directory formatted before KIP-858 has no id. Add one, as starting the server would.
    for path, known in found.formatted.items():
        if known.directory_id is None:
            added = generate_directory_id(env.uuid, ids)
            ids.add(added)
            await _write(store_meta_properties(found.open[path], known.with_directory_id(added)))
            say(f"Added directory.id {uuid_text(added)} to {path}.")
    if not found.empty:
        say("All of the log directories are already formatted.")
    for path in found.empty:
        is_metadata = path == config.metadata_log_dir
        given = metadata_directory_id if is_metadata else None
        directory_id = generate_directory_id(env.uuid, ids) if given is None else given
        if directory_id in ids:
            raise ToolError(f"the directory id {uuid_text(directory_id)} is already that of another log directory")
        ids.add(directory_id)
        kind = "metadata" if is_metadata else "data"
        say(f"Formatting {kind} directory {path} with metadata.version {level_name(level)}.")
        await _format_one(config, found.open[path], cluster_id, directory_id, bootstrap)


async def _format_one(
    config: ServerConfig, log_dir: LogDir, cluster_id: str, directory_id: DirectoryId, bootstrap: bytes
) -> None:
    properties = MetaProperties(cluster_id=cluster_id, node_id=config.node_id, directory_id=directory_id)
    # Write meta.properties last: a directory that has it is completely formatted.
    await _write(log_dir.replace_file(BOOTSTRAP_CHECKPOINT, bootstrap))
    await _write(store_meta_properties(log_dir, properties))


async def _write(operation: Awaitable[None]) -> None:
    try:
        await operation
    except LogDirError as error:
        raise ToolError(f"cannot format: {error}") from error


def _verify(config: ServerConfig, found: _Found, cluster_id: str | None) -> None:
    ensemble = MetaPropertiesEnsemble(
        formatted=found.formatted,
        unformatted=tuple(found.empty),
        unreadable=found.unreadable,
        metadata_log_dir=config.metadata_log_dir,
    )
    try:
        verify_agreement(ensemble, node_id=config.node_id, cluster_id=cluster_id)
    except MetaPropertiesConflict as conflict:
        raise ToolError(str(conflict)) from conflict


def _chosen_levels(arguments: argparse.Namespace, numbering: Numbering) -> tuple[int, int, int]:
    """Returns the levels of metadata.version, transaction.version and group.version."""
    features: dict[str, str] = {}
    for text in arguments.feature:
        name, separator, value = text.partition("=")
        if not separator or name not in (METADATA_VERSION_FEATURE, TRANSACTION_VERSION_FEATURE, GROUP_VERSION_FEATURE):
            raise ToolError(
                f"--feature {text} is not supported; it takes {METADATA_VERSION_FEATURE}=LEVEL, "
                f"{TRANSACTION_VERSION_FEATURE}=LEVEL and {GROUP_VERSION_FEATURE}=LEVEL"
            )
        features[name] = value
    if METADATA_VERSION_FEATURE in features and arguments.release_version is not None:
        raise ToolError("--release-version and --feature metadata.version are mutually exclusive; give only one")
    text = features.get(METADATA_VERSION_FEATURE, arguments.release_version)
    level = _chosen_metadata_version(text)
    group_version = _further_level(GROUP_VERSION_FEATURE, features.get(GROUP_VERSION_FEATURE, "0"), level)
    chosen = features.get(TRANSACTION_VERSION_FEATURE)
    if chosen is not None:
        return level, _further_level(TRANSACTION_VERSION_FEATURE, chosen, level), group_version
    if text is None and numbering is Numbering.KIP858:
        return level, DEFAULT_TRANSACTION_VERSION, group_version
    # A named release has the features of that release. With Apache's numbering, nodes of Apache Kafka 3.9 shall be able to
    # join, which know no transaction.version above 0.
    return level, transaction_version_of(level), group_version


def _further_level(name: str, text: str, level: int) -> int:
    known = [str(each) for each in range(CONTROLLER_FEATURES[name].maximum + 1)]
    if text not in known:
        raise ToolError(f"--feature {name}={text}: there is no such level; known are {', '.join(known)}")
    if int(text) > 0 and level < FURTHER_FEATURES_LEVEL:
        raise ToolError(
            f"--feature {name}={text} needs {METADATA_VERSION_FEATURE} "
            f"{level_name(FURTHER_FEATURES_LEVEL)} or newer, not {level_name(level)}"
        )
    return int(text)


def _chosen_metadata_version(text: str | None) -> int:
    level = DEFAULT_LEVEL if text is None else _level(text)
    if not MINIMUM_BOOTSTRAP_LEVEL <= level <= LATEST_LEVEL:
        low, high = LEVEL_NAMES[MINIMUM_BOOTSTRAP_LEVEL], LEVEL_NAMES[LATEST_LEVEL]
        raise ToolError(f"metadata.version {level_name(level)} cannot be formatted; it must be between {low} and {high}")
    return level


def _level(text: str) -> int:
    try:
        return parse_level(text)
    except UnknownMetadataVersion as error:
        raise ToolError(str(error)) from error


# --- info --------------------------------------------------------------------------------------------------------------


async def _info(arguments: argparse.Namespace) -> int:
    config = _load(arguments.config)
    found = await _look(RealEnvironment("kafka-storage"), config, create=False, lock=False)
    metadata_dir = found.open.get(config.metadata_log_dir)
    numbering = None if metadata_dir is None else await stored_numbering(metadata_dir)
    await found.close()
    problems = _problems(config, found)
    directories = sorted({*found.formatted, *found.empty, *found.unreadable})
    if directories:
        print("Found log directory:" if len(directories) == 1 else "Found log directories:")
        print("".join(f"  {path}\n" for path in directories))
    if found.formatted:
        print(f"Found metadata: {next(iter(found.formatted.values()))}\n")
    if numbering is not None:
        print(f"Found directory numbering: {numbering.value}\n")
    if not problems:
        return 0
    print("Found problem:" if len(problems) == 1 else "Found problems:")
    print("".join(f"  {problem}\n" for problem in problems))
    return 1


def _problems(config: ServerConfig, found: _Found) -> list[str]:
    return [
        *(f"{path} does not exist" for path in found.missing),
        *(f"{path} is not a directory" for path in found.no_directory),
        *(f"{path} is not formatted." for path in found.empty),
        *(f"Error loading {path}/{META_PROPERTIES_FILE}: {why}" for path, why in found.unreadable.items()),
        *_disagreements(config, found),
    ]


def _disagreements(config: ServerConfig, found: _Found) -> list[str]:
    """Returns a line for each contradiction among the readable meta.properties files, or between them and the configuration.

    If Kafka has a line for the contradiction, it is that line. Otherwise the line says why a node would not start.
    """
    lines: list[str] = []
    known = list(found.formatted.values())
    if any(each.version == VERSION_ZOOKEEPER for each in known[:1]):
        lines.append(
            "The kafka configuration file appears to be for a KRaft cluster, but the directories are formatted for "
            "legacy mode."
        )
    if any(each.cluster_id != known[0].cluster_id for each in known):
        lines.append("Mismatched cluster IDs between storage directories.")
    elif any(each.node_id != known[0].node_id for each in known):
        lines.append("Mismatched node IDs between storage directories.")
    if not lines:
        try:
            _verify(config, found, None)
        except ToolError as conflict:
            lines.append(str(conflict))
    return lines


# --- the directories ---------------------------------------------------------------------------------------------------


async def _look(env: Environment, config: ServerConfig, *, create: bool, lock: bool) -> _Found:
    """Opens every configured directory. Raises ToolError, after closing what it opened."""
    found = _Found()
    try:
        for path in sorted(config.all_log_dirs):
            await _look_at(env, found, path, create=create, lock=lock)
    except ToolError:
        await found.close()
        raise
    return found


async def _look_at(env: Environment, found: _Found, path: str, *, create: bool, lock: bool) -> None:
    log_dir = env.log_dir(path, operation_timeout_ns=OPERATION_TIMEOUT_NS)
    try:
        await log_dir.attach(create=create)
        found.open[path] = log_dir
        if lock:
            await log_dir.lock()
        properties = await load_meta_properties(log_dir)
    except LogDirLocked:
        raise ToolError(f"Log directory {path} is in use by a running node (its .lock is held). Stop that node.") from None
    except MalformedMetaProperties as malformed:
        found.unreadable[path] = str(malformed)
    except LogDirError as error:
        # Give this directory up: a disk that hangs must not delay closing the others.
        log_dir.take_offline(error)
        found.open.pop(path, None)
        if not create and error.operation == "attach" and error.errno_code == errno.ENOENT:
            found.missing.append(path)
        elif not create and error.operation == "attach" and error.errno_code == errno.ENOTDIR:
            found.no_directory.append(path)
        else:
            found.unreadable[path] = _why_unreadable(error)
    else:
        if properties is None:
            found.empty.append(path)
        else:
            found.formatted[path] = properties


def _why_unreadable(error: LogDirError) -> str:
    if error.errno_code in (errno.EEXIST, errno.ENOTDIR):
        return "it is not a directory; remove that file, or name another path in log.dirs"
    if error.errno_code in (errno.EACCES, errno.EPERM):
        return "permission denied; let the user who runs the node write to it"
    if error.errno_code == errno.EROFS:
        return "its file system is read-only; mount it for writing"
    return f"it can be neither opened nor created ({error})" if error.operation == "attach" else str(error)


if __name__ == "__main__":
    entry()
