"""kafka-features: shows and changes the finalized levels of features, with Kafka's output (shell).

Counterpart of Kafka's FeatureCommand. Several updates of one command take effect together or not at all. Every feature of
a refused command is printed with the reason, as by Kafka's tool.
"""

import argparse
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from admin.client import AdminClient
from admin.errors import AdminError
from admin.features import FeatureMetadata, FeatureUpdate
from common.metadata.metadata_version import (
    KRAFT_VERSION_FEATURE,
    LATEST_LEVEL,
    LEVEL_NAMES,
    METADATA_VERSION_FEATURE,
    MINIMUM_BOOTSTRAP_LEVEL,
    TRANSACTION_VERSION_FEATURE,
    UnknownMetadataVersion,
    parse_level,
    transaction_version_of,
)
from common.protocol.messages.update_features import UpgradeType
from tools.arguments import ToolParser, add_either_bootstrap
from tools.errors import ToolError, run_tool
from tools.kafka.admin_run import run_admin
from tools.kafka.feature_levels import feature_dependencies, parse_name_and_level, version_mapping

Updates = Mapping[str, FeatureUpdate]
Result = TypeVar("Result")


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    parser = command_line()
    arguments = parser.parse_args(argv)
    action, is_remote = _ACTIONS[arguments.command]
    if is_remote and arguments.bootstrap_server is None and arguments.bootstrap_controller is None:
        parser.error("one of the arguments --bootstrap-server --bootstrap-controller is required")
    return run_tool(lambda: action(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-features", "Show and change the feature levels of a cluster.")
    # The commands that work without a cluster need neither.
    add_either_bootstrap(parser, is_required=False)
    parser.add_argument("--command-config", metavar="FILE", help="properties file with settings of the admin client")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    describe = commands.add_parser("describe", help="show the supported and the finalized levels")
    describe.add_argument("--node-id", type=int, help="ask this node")
    for name, what in (("upgrade", "raise"), ("downgrade", "lower")):
        change = commands.add_parser(name, help=f"{what} the levels of features")
        change.add_argument(
            "--metadata", metavar="VERSION", help="deprecated: as --release-version, for metadata.version only"
        )
        change.add_argument("--release-version", metavar="VERSION", help="set every feature to its level in this release")
        change.add_argument("--feature", action="append", metavar="NAME=LEVEL", help="may be repeated")
    disable = commands.add_parser("disable", help="lower features to level 0")
    disable.add_argument("--feature", action="append", metavar="NAME", help="may be repeated")
    for command in (commands.choices["upgrade"], commands.choices["downgrade"], disable):
        command.add_argument("--dry-run", action="store_true", help="only check whether it is possible")
    for command in (commands.choices["downgrade"], disable):
        command.add_argument("--unsafe", action="store_true", help="even if metadata is deleted that the lower level lacks")
    mapping = commands.add_parser("version-mapping", help="show the feature levels of a release")
    mapping.add_argument(
        "--release-version", metavar="VERSION", help="default: the version that clusters are formatted with"
    )
    dependencies = commands.add_parser("feature-dependencies", help="show which features a feature level requires")
    dependencies.add_argument("--feature", action="append", required=True, metavar="NAME=LEVEL", help="may be repeated")
    return parser


def _run(arguments: argparse.Namespace, work: Callable[[AdminClient], Coroutine[Any, Any, Result]]) -> Result:
    return run_admin(
        arguments.bootstrap_server,
        work,
        command_config=arguments.command_config,
        bootstrap_controllers=arguments.bootstrap_controller,
    )


# --- describe --------------------------------------------------------------------------------------------------------


def _describe(arguments: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> FeatureMetadata:
        return await admin.describe_features(broker_id=arguments.node_id)

    found = _run(arguments, work)
    epoch = "-" if found.finalized_epoch is None else found.finalized_epoch
    for name, (low, high) in sorted(found.supported.items()):
        columns = (
            ("Feature", name),
            ("SupportedMinVersion", _level_text(name, low)),
            ("SupportedMaxVersion", _level_text(name, high)),
            ("FinalizedVersionLevel", _level_text(name, found.finalized.get(name, 0))),
            ("Epoch", epoch),
        )
        print("\t".join(f"{title}: {value}" for title, value in columns))
    return 0


def _level_text(feature: str, level: int) -> str:
    if feature != METADATA_VERSION_FEATURE:
        return str(level)
    return LEVEL_NAMES.get(level, f"UNKNOWN {level}")


# --- changes ---------------------------------------------------------------------------------------------------------


def _upgrade(arguments: argparse.Namespace) -> int:
    return _update(arguments, _wanted(arguments, UpgradeType.UPGRADE))


def _downgrade(arguments: argparse.Namespace) -> int:
    return _update(arguments, _wanted(arguments, _downgrade_type(arguments)))


def _disable(arguments: argparse.Namespace) -> int:
    updates: dict[str, FeatureUpdate] = {}
    for name in arguments.feature or ():
        _add(updates, name, FeatureUpdate(0, _downgrade_type(arguments)))
    return _update(arguments, updates)


def _downgrade_type(arguments: argparse.Namespace) -> UpgradeType:
    return UpgradeType.UNSAFE_DOWNGRADE if arguments.unsafe else UpgradeType.SAFE_DOWNGRADE


def _wanted(arguments: argparse.Namespace, kind: UpgradeType) -> Updates:
    release = arguments.release_version
    if release is not None and (arguments.metadata is not None or arguments.feature is not None):
        raise ToolError("Can not specify `release-version` with other feature flags.")
    updates: dict[str, FeatureUpdate] = {}
    if release is not None:
        level = _metadata_version(release)
        updates[METADATA_VERSION_FEATURE] = FeatureUpdate(level, kind)
        # Every release leaves kraft.version at 0 here.
        for name, version in ((KRAFT_VERSION_FEATURE, 0), (TRANSACTION_VERSION_FEATURE, transaction_version_of(level))):
            # As Kafka's tool, never ask to upgrade a feature to 0.
            if version > 0 or kind is not UpgradeType.UPGRADE:
                updates[name] = FeatureUpdate(version, kind)
        return updates
    if arguments.metadata is not None:
        print(" `metadata` flag is deprecated and may be removed in a future release.")
        updates[METADATA_VERSION_FEATURE] = FeatureUpdate(_metadata_version(arguments.metadata), kind)
    for text in arguments.feature or ():
        name, level = parse_name_and_level(text)
        _add(updates, name, FeatureUpdate(level, kind))
    return updates


def _add(updates: dict[str, FeatureUpdate], name: str, update: FeatureUpdate) -> None:
    if name in updates:
        raise ToolError(f"Feature {name} was specified more than once.")
    updates[name] = update


def _metadata_version(text: str) -> int:
    try:
        return parse_level(text)
    except UnknownMetadataVersion:
        names = ", ".join(LEVEL_NAMES[level] for level in range(MINIMUM_BOOTSTRAP_LEVEL, LATEST_LEVEL + 1))
        raise ToolError(f"Unknown metadata.version {text}. Supported metadata.version are {names}") from None


def _update(arguments: argparse.Namespace, updates: Updates) -> int:
    command, is_dry_run = arguments.command, arguments.dry_run
    if not updates:
        raise ToolError(f"You must specify at least one feature to {command}")

    async def work(admin: AdminClient) -> dict[str, AdminError | None]:
        results = admin.update_features(updates, validate_only=is_dry_run)
        errors: dict[str, AdminError | None] = {}
        for name in sorted(results):
            try:
                await results[name]
            except AdminError as error:
                errors[name] = error
            else:
                errors[name] = None
        return errors

    errors = _run(arguments, work)
    for name, error in errors.items():
        level = "" if command == "disable" else f" to {updates[name].max_version_level}"
        if error is not None:
            print(f"{'Can not' if is_dry_run else 'Could not'} {command} {name}{level}. {error}")
        else:
            print(f"{name} {'can be' if is_dry_run else 'was'} {command}d{level}.")
    failures = sum(error is not None for error in errors.values())
    if failures:
        raise ToolError(f"{failures} out of {len(updates)} operation(s) failed.")
    return 0


# Each command, and whether it connects to the cluster.
_ACTIONS: Mapping[str, tuple[Callable[[argparse.Namespace], int], bool]] = {
    "describe": (_describe, True),
    "upgrade": (_upgrade, True),
    "downgrade": (_downgrade, True),
    "disable": (_disable, True),
    "version-mapping": (version_mapping, False),
    "feature-dependencies": (feature_dependencies, False),
}


if __name__ == "__main__":
    entry()
