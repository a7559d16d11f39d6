"""Changes the dynamic configuration of topics, brokers and groups (core; KIP-226, KIP-339, KIP-848).

Counterpart of Kafka's ConfigurationControlManager, ConfigAdminManager and ControllerConfigurationValidator, with Kafka's
error codes and messages.

1. The records of one request are atomic, but the resources are judged separately: an invalid change gets its own error, the
   others are written.
2. The resource's whole configuration after the change must be valid, not only the keys of the request. Exempt is a key
   of Kafka that has no effect here and keeps its value: a controller of Apache Kafka has stored it, and it must not block
   other changes.
3. For a broker, a key that takes effect only after a restart is refused, and so is a key of Kafka that has no effect here.
   An unknown key is stored, as in Kafka, where it may belong to a plug-in.
4. A group need not exist. Its values are validated against the bounds in this controller's server.properties.

In Kafka, the broker that receives the request validates changes of broker configuration, and the controller accepts them
unchecked. Here the controller validates everything, so a request sent directly to the controller is validated too. It does
not know the directories of a broker, so such a request can only take some off cordoned.log.dirs (KIP-1066), as in Kafka.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

from common.configuration.group import GROUP_ID_BYTES_MAX, GROUP_SETTINGS, validate_group_overrides
from common.configuration.group import WITHOUT_EFFECT as GROUP_KEYS_WITHOUT_EFFECT
from common.configuration.kafka_keys import KAFKA_KEYS
from common.configuration.resource_types import why_not_configurable
from common.configuration.server import CORDONED_LOG_DIRS, DYNAMIC_KEYS, KNOWN_WITHOUT_EFFECT, SERVER_SETTINGS, ServerConfig
from common.configuration.settings import ANY_TEXT, ConfigError, ConfigType, Setting, parse_setting
from common.configuration.topic import TOPIC_SETTINGS, TopicConfig, validate_policies
from common.configuration.topic import WITHOUT_EFFECT as TOPIC_KEYS_WITHOUT_EFFECT
from common.metadata.metadata_version import CORDONED_DIRECTORIES_LEVEL, is_cordoning_supported, level_name
from common.metadata.state import MetadataState
from common.metadata.topic_names import InvalidTopicName, validate_topic_name
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages import alter_configs as legacy
from common.protocol.messages import incremental_alter_configs as incremental
from common.protocol.messages.incremental_alter_configs import ConfigOperation
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import ConfigRecord, ConfigResourceType
from controller.core.long_decisions import RESOURCE_COST, Sliced, SliceMeter
from controller.core.record_limit import RECORDS_PER_REQUEST_MAX, too_many_records
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.topic_overrides import validate_overrides
from controller.core.turn import Turn

_SETTINGS: Final[Mapping[int, Mapping[str, Setting]]] = MappingProxyType(
    {
        ConfigResourceType.TOPIC: TOPIC_SETTINGS,
        ConfigResourceType.BROKER: SERVER_SETTINGS,
        ConfigResourceType.GROUP: GROUP_SETTINGS,
    }
)
_NOT_DYNAMIC: Final = (frozenset(SERVER_SETTINGS) | KAFKA_KEYS | KNOWN_WITHOUT_EFFECT) - DYNAMIC_KEYS
# Kafka's keys whose changes are refused here, but which a controller of Apache Kafka may have accepted (rule 2).
_NOT_SERVED: Final[Mapping[int, Collection[str]]] = MappingProxyType(
    {
        ConfigResourceType.TOPIC: TOPIC_KEYS_WITHOUT_EFFECT,
        ConfigResourceType.BROKER: _NOT_DYNAMIC,
        ConfigResourceType.GROUP: GROUP_KEYS_WITHOUT_EFFECT,
    }
)
# What a list is before the first element is added to it or taken away.
_DEFAULT_POLICY: Final = ",".join(TopicConfig().cleanup_policy)
_BROKER_POLICY: Final = "log.cleanup.policy"
_LIST_DEFAULTS: Final = MappingProxyType({"cleanup.policy": _DEFAULT_POLICY, _BROKER_POLICY: _DEFAULT_POLICY})


class _Config(Protocol):
    name: str
    value: str | None


class _Resource(Protocol):
    resource_type: int
    resource_name: str

    @property
    def configs(self) -> Sequence[_Config]: ...


Resource = TypeVar("Resource", bound=_Resource)
Result = TypeVar("Result")
Response = TypeVar("Response")
# Returns the configuration of a resource after the change, given the configuration before. Raises ApiError.
Change = Callable[[Resource, Mapping[str, str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The outcome for one resource of the request."""

    resource_type: int
    resource_name: str
    error: ApiError | None
    records: Sequence[ConfigRecord]


def handle_incremental_alter_configs(
    turn: Turn, request: incremental.IncrementalAlterConfigsRequest, *, is_forwarded: bool = False
) -> Sliced[ControllerResult[incremental.IncrementalAlterConfigsResponse]]:
    """Carries out the operations of the request, in slices. Returns one result per resource; writes nothing for
    `validate_only`. `is_forwarded` is whether a broker has checked what only brokers know."""
    verdicts = yield from _judge(turn, request.resources, _operations_applied, is_forwarded=is_forwarded)
    results = _results(verdicts, incremental.AlterConfigsResourceResponse)
    response = incremental.IncrementalAlterConfigsResponse(responses=results)
    return _result(verdicts, response, validate_only=request.validate_only)


def handle_alter_configs(
    turn: Turn, request: legacy.AlterConfigsRequest, *, is_forwarded: bool = False
) -> Sliced[ControllerResult[legacy.AlterConfigsResponse]]:
    """Replaces the resources' configurations, in slices. Returns one result per resource; writes nothing for
    `validate_only`. `is_forwarded` is whether a broker has checked what only brokers know."""
    verdicts = yield from _judge(turn, request.resources, _replaced, is_forwarded=is_forwarded)
    response = legacy.AlterConfigsResponse(responses=_results(verdicts, legacy.AlterConfigsResourceResponse))
    return _result(verdicts, response, validate_only=request.validate_only)


def _results(verdicts: Sequence[_Verdict], result_class: Callable[..., Result]) -> list[Result]:
    return [
        result_class(
            error_code=ErrorCode.NONE if each.error is None else each.error.code,
            error_message=None if each.error is None else each.error.message,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in verdicts
    ]


def _result(verdicts: Sequence[_Verdict], response: Response, *, validate_only: bool) -> ControllerResult[Response]:
    if validate_only:
        return ControllerResult([], response)
    records = [ApiMessageAndVersion(record, 0) for verdict in verdicts for record in verdict.records]
    events = [
        ControllerEvent(
            "config_altered",
            {
                "resource_type": ConfigResourceType(verdict.resource_type).name.lower(),
                "resource_name": verdict.resource_name,
                "keys": [record.name for record in verdict.records],
            },
        )
        for verdict in verdicts
        if verdict.records
    ]
    return ControllerResult(records, response, events=events)


# --- one resource -----------------------------------------------------------------------------------------------


def _judge(
    turn: Turn, resources: Sequence[Resource], change: Change[Resource], *, is_forwarded: bool
) -> Sliced[list[_Verdict]]:
    server = turn.settings.resolver.server_config(turn.state)
    occurrences = Counter((each.resource_type, each.resource_name) for each in resources)
    meter = SliceMeter()
    verdicts: list[_Verdict] = []
    room = RECORDS_PER_REQUEST_MAX
    for resource in resources:
        if meter.ends_slice(RESOURCE_COST + len(resource.configs)):
            yield
        type_, name = resource.resource_type, resource.resource_name
        try:
            if occurrences[type_, name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            records = _records(turn.state, server, resource, change, is_forwarded=is_forwarded)
            if len(records) > room:
                raise too_many_records()
        except ApiError as error:
            verdicts.append(_Verdict(type_, name, error, ()))
            continue
        room -= len(records)
        verdicts.append(_Verdict(type_, name, None, records))
    return verdicts


def _records(
    state: MetadataState, server: ServerConfig, resource: Resource, change: Change[Resource], *, is_forwarded: bool
) -> list[ConfigRecord]:
    """Returns the records of the change; none for a key that keeps its value. Raises ApiError."""
    type_, name = resource.resource_type, resource.resource_name
    _validate_request(resource)
    before = state.config(type_, name)
    after = change(resource, before)
    judged = {key: value for key, value in after.items() if key not in _NOT_SERVED[type_] or before.get(key) != value}
    _validate_configuration(state, server, resource, judged)
    if type_ == ConfigResourceType.BROKER and after.get(CORDONED_LOG_DIRS) != before.get(CORDONED_LOG_DIRS):
        _validate_cordons(state, name, before, after, is_forwarded=is_forwarded)
    _validate_existence(state, type_, name)
    return [
        ConfigRecord(resource_type=type_, resource_name=name, name=key, value=after.get(key))
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]


def _validate_cordons(
    state: MetadataState, name: str, before: Mapping[str, str], after: Mapping[str, str], *, is_forwarded: bool
) -> None:
    """Checks a change of cordoned.log.dirs (KIP-1066), which may go away at any level. Only the broker knows its directories
    and has checked them if it forwards the change. Raises ApiError."""
    if CORDONED_LOG_DIRS not in after:
        return
    if not name:
        message = f"Cannot update these configs at default cluster level: Set({CORDONED_LOG_DIRS})"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if not is_cordoning_supported(state.metadata_version):
        needed = level_name(CORDONED_DIRECTORIES_LEVEL)
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{CORDONED_LOG_DIRS} needs metadata.version {needed} or higher.")
    unchecked = _paths(after) - _paths(before)
    if unchecked and not is_forwarded:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"A controller does not know whether {min(unchecked)} is in log.dirs of broker {name}; "
            f"send what is new in {CORDONED_LOG_DIRS} to the broker.",
        )


def _paths(configs: Mapping[str, str]) -> set[str]:
    return {each.strip() for each in configs.get(CORDONED_LOG_DIRS, "").split(",")} - {""}


def _validate_request(resource: _Resource) -> None:
    names = Counter(config.name for config in resource.configs)
    if any(count > 1 for count in names.values()):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if resource.resource_type not in tuple(ConfigResourceType):
        raise ApiError(ErrorCode.INVALID_REQUEST, why_not_configurable(resource.resource_type))


def _validate_existence(state: MetadataState, resource_type: int, name: str) -> None:
    if resource_type == ConfigResourceType.TOPIC:
        if name not in state.topic_ids:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource_type == ConfigResourceType.BROKER and name and not _is_node(state, int(name)):
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {name} found.")


def _is_node(state: MetadataState, node_id: int) -> bool:
    return node_id in state.brokers or node_id in state.controllers


# --- what changes -----------------------------------------------------------------------------------------------


def _replaced(resource: legacy.AlterConfigsResource, _before: Mapping[str, str]) -> dict[str, str]:
    _refuse_without_value([config.name for config in resource.configs if config.value is None])
    return {config.name: config.value for config in resource.configs if config.value is not None}


def _operations_applied(resource: incremental.AlterConfigsResource, before: Mapping[str, str]) -> dict[str, str]:
    _refuse_without_value(
        [
            config.name
            for config in resource.configs
            if config.value is None and config.config_operation != ConfigOperation.DELETE
        ]
    )
    after = dict(before)
    for config in resource.configs:
        match config.config_operation:
            case ConfigOperation.SET:
                after[config.name] = config.value or ""
            case ConfigOperation.DELETE:
                after.pop(config.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                operation = ConfigOperation(config.config_operation)
                after[config.name] = _list_changed(resource.resource_type, config, operation, before)
            case unknown:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {unknown}")
    return after


def _refuse_without_value(keys: Sequence[str]) -> None:
    if keys:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(keys)}")


def _list_changed(
    resource_type: int, config: incremental.AlterableConfig, operation: ConfigOperation, before: Mapping[str, str]
) -> str:
    if not _is_list(resource_type, config.name):
        message = f"Can't {operation.name} to key {config.name} because its type is not LIST."
        if resource_type == ConfigResourceType.BROKER:
            message = f"Config value {operation.name.lower()} is not allowed for config key: {config.name}"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    elements = [each for each in before.get(config.name, _LIST_DEFAULTS.get(config.name, "")).split(",") if each]
    for element in _elements(config.value or ""):
        if operation is ConfigOperation.APPEND and element not in elements:
            elements.append(element)
        elif operation is ConfigOperation.SUBTRACT and element in elements:
            elements.remove(element)
    return ",".join(elements)


def _elements(value: str) -> list[str]:
    """Returns the elements of a value as Kafka does: an empty value is an empty element, and otherwise empty elements count
    unless they are the last ones."""
    return [] if value and not value.strip(",") else value.rstrip(",").split(",")


def _is_list(resource_type: int, key: str) -> bool:
    settings = _SETTINGS[resource_type]
    return key in settings and settings[key].type is ConfigType.LIST


# --- what is valid ----------------------------------------------------------------------------------------------


def _validate_configuration(
    state: MetadataState, server: ServerConfig, resource: _Resource, configs: Mapping[str, str]
) -> None:
    """Validates the resource's name, and its configuration after the change except for exempt keys. Raises ApiError."""
    name = resource.resource_name
    match ConfigResourceType(resource.resource_type):
        case ConfigResourceType.TOPIC:
            _validate_topic(state, name, configs)
        case ConfigResourceType.BROKER:
            _validate_broker(name, configs)
        case ConfigResourceType.GROUP:
            _validate_group(server, name, configs)


def _validate_topic(state: MetadataState, name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    try:
        validate_topic_name(name)
        validate_overrides(state, configs, state.config(ConfigResourceType.TOPIC, name))
    except InvalidTopicName as error:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _validate_broker(name: str, configs: Mapping[str, str]) -> None:
    # Refuse "01" as well: it would be stored as a resource different from broker 1.
    if name and not (name.isascii() and name.removeprefix("-").isdecimal() and len(name) <= 11 and str(int(name)) == name):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    if name.startswith("-"):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    not_dynamic = sorted(configs.keys() & _NOT_DYNAMIC)
    if not_dynamic:
        message = f"Cannot update these configs dynamically: Set({', '.join(not_dynamic)})"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    try:
        for key, value in configs.items():
            parse_setting(key, SERVER_SETTINGS.get(key, ANY_TEXT), value)
            # Validate the key like a value, because the key of an unknown setting can be any text that a client sends.
            parse_setting("the name of a config", ANY_TEXT, key)
            if key == _BROKER_POLICY:
                validate_policies(key, value)
    except ConfigError as error:
        # For a topic the error is INVALID_CONFIG. For a broker it is INVALID_REQUEST, as in Kafka (KAFKA-13609).
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _validate_group(server: ServerConfig, name: str, configs: Mapping[str, str]) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if len(name.encode()) > GROUP_ID_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"The group id has more than {GROUP_ID_BYTES_MAX} bytes.")
    try:
        validate_group_overrides(server, configs)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
