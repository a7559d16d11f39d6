"""kafka-configs: shows and changes the configuration of topics, brokers and groups, with Kafka's flags and output (shell).

Counterpart of Kafka's ConfigCommand, for these entity types. Only the broker itself answers requests about its own
configuration, so the tool sends these to that broker. All other requests can go to any broker. With --bootstrap-controller,
the brokers are the controllers (KIP-919). The active controller also takes a change of a broker's configuration, which is
the way out if that broker refuses every connection. Only the broker itself can describe its configuration.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from admin.client import AdminClient
from admin.configs import ConfigChange, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from admin.errors import AdminError
from common.metadata.topic_names import InvalidTopicName, validate_topic_name
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_cluster import EndpointType
from common.protocol.messages.incremental_alter_configs import ConfigOperation
from tools.arguments import ToolParser, add_bootstrap
from tools.errors import ToolError, run_tool
from tools.kafka.admin_run import run_admin
from tools.node.configuration_file import parse_properties

ENTITY_TYPES = {"topics": ResourceType.TOPIC, "brokers": ResourceType.BROKER, "groups": ResourceType.GROUP}
# The name of the entity that holds the default of all entities of its type.
DEFAULT_NAME = ""


@dataclass(frozen=True, slots=True)
class Entity:
    """The topic, the group, the broker or the default of all brokers that is described or altered."""

    type: str
    name: str

    @property
    def resource(self) -> ConfigResource:
        return ConfigResource(ENTITY_TYPES[self.type], self.name)

    @property
    def dynamic_source(self) -> ConfigSource:
        """The source of the values that are set on this entity itself."""
        if self.type == "topics":
            return ConfigSource.DYNAMIC_TOPIC_CONFIG
        if self.type == "groups":
            return ConfigSource.DYNAMIC_GROUP_CONFIG
        return ConfigSource.DYNAMIC_BROKER_CONFIG if self.name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-configs", "Show and change the configuration of topics, brokers and groups.")
    add_bootstrap(parser, or_controllers=True)
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--describe", action="store_true", help="show what is set on the entity itself")
    actions.add_argument("--alter", action="store_true", help="change what is set on the entity itself")
    parser.add_argument(
        "--all", action="store_true", help="with --describe: show every key, with where its value comes from"
    )
    parser.add_argument(
        "--entity-type", metavar="topics|brokers|groups", help="what --entity-name or --entity-default names"
    )
    parser.add_argument("--entity-name", metavar="NAME", help="a topic, a broker's id, or a group's id")
    parser.add_argument("--entity-default", action="store_true", help="the default of all brokers")
    parser.add_argument("--topic", metavar="NAME", help="the same as --entity-type topics --entity-name NAME")
    parser.add_argument("--broker", metavar="ID", help="the same as --entity-type brokers --entity-name ID")
    parser.add_argument("--group", metavar="ID", help="the same as --entity-type groups --entity-name ID")
    parser.add_argument("--broker-defaults", action="store_true", help="the same as --entity-type brokers --entity-default")
    parser.add_argument("--add-config", metavar="K=V,K=[V,V],…", help="keys to set; square brackets hold a list together")
    parser.add_argument("--add-config-file", metavar="FILE", type=Path, help="a properties file with keys to set")
    parser.add_argument("--delete-config", metavar="K,K", help="keys to delete")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    entity_type, name = _entity(arguments)

    async def work(admin: AdminClient) -> None:
        try:
            if not arguments.alter:
                await _describe(admin, entity_type, name, is_all=arguments.all)
            elif name is None:
                is_or_default = " or --entity-default" if entity_type == "brokers" else ""
                raise ToolError(f"--entity-name{is_or_default} must be specified with --alter of {entity_type}")
            else:
                await _alter(admin, Entity(entity_type, name), _added(arguments), _deleted(arguments))
        except AdminError as error:
            raise ToolError(f"Error while executing config command: {error}") from error

    run_admin(
        arguments.bootstrap_server,
        work,
        command_config=arguments.command_config,
        bootstrap_controllers=arguments.bootstrap_controller,
    )
    return 0


def _entity(arguments: argparse.Namespace) -> tuple[str, str | None]:
    """Returns the entity type, and the name if one is given. Raises ToolError."""
    given = [
        (entity_type, name)
        for entity_type, name, is_given in (
            (arguments.entity_type, arguments.entity_name, arguments.entity_type is not None),
            ("topics", arguments.topic, arguments.topic is not None),
            ("brokers", arguments.broker, arguments.broker is not None),
            ("groups", arguments.group, arguments.group is not None),
            ("brokers", DEFAULT_NAME, arguments.broker_defaults),
        )
        if is_given
    ]
    if len(given) != 1:
        raise ToolError("Exactly one of --entity-type, --topic, --broker, --group and --broker-defaults must be specified")
    ((entity_type, name),) = given
    if entity_type not in ENTITY_TYPES:
        raise ToolError(f"Invalid entity type {entity_type}, the entity type must be one of {', '.join(ENTITY_TYPES)}")
    if arguments.entity_default:
        if name is not None:
            raise ToolError("--entity-name and --entity-default cannot be specified together")
        if entity_type != "brokers":
            raise ToolError(f"--entity-default must not be specified with {entity_type}")
        name = DEFAULT_NAME
    elif name == DEFAULT_NAME and not arguments.broker_defaults:
        default = "; --entity-default stands for all" if entity_type == "brokers" else ""
        raise ToolError(f"an empty name stands for no entity{default}")
    return entity_type, name


# --- alter ------------------------------------------------------------------------------------------------------


def _added(arguments: argparse.Namespace) -> Mapping[str, str]:
    if arguments.add_config is not None and arguments.add_config_file is not None:
        raise ToolError("Only one of --add-config or --add-config-file can be specified.")
    if arguments.add_config_file is not None:
        try:
            return parse_properties(arguments.add_config_file.read_bytes(), str(arguments.add_config_file))
        except OSError as error:
            raise ToolError(f"cannot read {arguments.add_config_file}: {error.strerror}") from error
    added: dict[str, str] = {}
    for part in _split_outside_brackets(arguments.add_config or ""):
        key, separator, value = part.partition("=")
        if not separator:
            raise ToolError('Invalid entity config: all configs to be added must be in the format "key=val".')
        added[key.strip()] = value.strip().removeprefix("[").removesuffix("]").strip()
    return added


def _split_outside_brackets(text: str) -> Iterator[str]:
    """Raises ToolError."""
    start, depth = 0, 0
    for position, character in enumerate(text):
        depth = max(depth + {"[": 1, "]": -1}.get(character, 0), 0)
        if character == "," and depth == 0:
            yield text[start:position]
            start = position + 1
    if depth > 0:
        raise ToolError(f"Invalid entity config: a square bracket is not closed in {text[start:]}")
    if start < len(text):
        yield text[start:]


def _deleted(arguments: argparse.Namespace) -> list[str]:
    return [key.strip() for key in (arguments.delete_config or "").split(",") if key.strip()]


async def _alter(admin: AdminClient, entity: Entity, added: Mapping[str, str], deleted: list[str]) -> None:
    if not added and not deleted:
        raise ToolError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter."
        )
    _check_name(entity)
    missing_node = await _missing_node(admin, entity)
    if missing_node is None:
        absent = set(deleted) - {config.name for config in await _configs(admin, entity, is_all=False)} if deleted else set()
        if absent:
            raise ToolError(f"Invalid config(s): {','.join(sorted(absent))}")
    elif admin.endpoint_type is EndpointType.BROKER:
        raise ToolError(missing_node)
    changes = [
        *(ConfigChange(key, ConfigOperation.SET, value) for key, value in added.items()),
        *(ConfigChange(key, ConfigOperation.DELETE) for key in deleted if key not in added),
    ]
    await admin.incremental_alter_configs({entity.resource: changes}).all()
    if entity.name:
        print(f"Completed updating config for {entity.type.removesuffix('s')} {entity.name}.")
    else:
        print(f"Completed updating default config for {entity.type} in the cluster.")


# --- describe ---------------------------------------------------------------------------------------------------


async def _describe(admin: AdminClient, entity_type: str, name: str | None, *, is_all: bool) -> None:
    _check_name(Entity(entity_type, name or DEFAULT_NAME))
    if name is None:
        existing = await _existing(admin, entity_type)
        names = [*existing, DEFAULT_NAME] if entity_type == "brokers" else existing
    elif name and not is_all and not await _may_exist(admin, Entity(entity_type, name)):
        print(f"The {entity_type.removesuffix('s')} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    else:
        missing_node = await _missing_node(admin, Entity(entity_type, name))
        if missing_node is not None:
            raise ToolError(missing_node)
        names = [name]
    for each in names:
        entity = Entity(entity_type, each)
        if each:
            print(f"{'All' if is_all else 'Dynamic'} configs for {entity_type.removesuffix('s')} {each} are:")
        else:
            print(f"Default configs for {entity_type} in the cluster are:")
        for config in await _configs(admin, entity, is_all=is_all):
            print(f"  {_line(config)}")


async def _existing(admin: AdminClient, entity_type: str) -> list[str]:
    if entity_type == "brokers":
        return [str(broker_id) for broker_id in (await admin.describe_cluster()).broker_ids]
    if entity_type == "groups":
        return sorted({*(await _configured_groups(admin) or ()), *(each.group_id for each in await admin.groups.list())})
    return [topic.name for topic in await admin.list_topics()]


async def _may_exist(admin: AdminClient, entity: Entity) -> bool:
    if entity.name in await _existing(admin, entity.type):
        return True
    if entity.type == "brokers":
        # Controllers name only each other.
        return admin.endpoint_type is EndpointType.CONTROLLER
    return entity.type == "groups" and await _configured_groups(admin) is None


async def _configured_groups(admin: AdminClient) -> list[str] | None:
    """Returns the groups for which something is set; None if the broker does not list them, as before Kafka 4.1."""
    try:
        return [each.name for each in await admin.list_config_resources([ResourceType.GROUP])]
    except AdminError as error:
        if error.code not in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            raise
        return None


def _line(config: ConfigEntry) -> str:
    synonyms = ", ".join(f"{each.source.name}:{each.name}={_text(each.value)}" for each in config.synonyms)
    return f"{config.name}={_text(config.value)} sensitive={str(config.is_sensitive).lower()} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


# --- both -------------------------------------------------------------------------------------------------------


async def _configs(admin: AdminClient, entity: Entity, *, is_all: bool) -> list[ConfigEntry]:
    """Returns the entries that are set on the entity itself or, with `is_all`, all entries, in alphabetical order."""
    entries = await admin.describe_configs([entity.resource], include_synonyms=True)[entity.resource]
    return [entry for _, entry in sorted(entries.items()) if is_all or entry.source is entity.dynamic_source]


def _check_name(entity: Entity) -> None:
    """Raises ToolError for a name that no topic or no broker can have."""
    if not entity.name:
        return
    if entity.type == "topics":
        try:
            validate_topic_name(entity.name)
        except InvalidTopicName as error:
            raise ToolError(str(error)) from None
    elif entity.type == "brokers" and not (entity.name.isascii() and entity.name.isdecimal() and len(entity.name) <= 10):
        raise ToolError(f"The entity name for brokers must be a valid integer broker id, found: {entity.name}")


async def _missing_node(admin: AdminClient, entity: Entity) -> str | None:
    """Returns why the node cannot be asked for its configuration; None if it can, and for all other entities: a group need
    not exist."""
    if entity.type != "brokers" or not entity.name:
        return None
    existing = (await admin.describe_cluster()).broker_ids
    if int(entity.name) in existing:
        return None
    there_are = f"there are {', '.join(map(str, existing))}"
    if admin.endpoint_type is EndpointType.BROKER:
        return f"broker {entity.name} is not in the cluster; {there_are}"
    return f"{entity.name} is no controller; {there_are}. Only brokers can be asked about brokers: use --bootstrap-server"


if __name__ == "__main__":
    entry()
