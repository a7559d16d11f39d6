"""Settings of Kafka's Java clients, translated for librdkafka, which the console and performance tools use (core).

Most keys are the same in both. Keys that only tune the Java client, or name its classes, are left out, so that properties
files of Kafka's tools work here. Every other key that librdkafka does not know is refused by it. Where the defaults differ,
that of the Java client holds.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from tools.errors import ToolError

Properties = dict[str, str]

# The defaults of the Java client.
DELIVERY_TIMEOUT_MS: Final = "120000"
TRANSACTION_TIMEOUT_MS: Final = "60000"
_RENAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "send.buffer.bytes": "socket.send.buffer.bytes",
        "receive.buffer.bytes": "socket.receive.buffer.bytes",
        "fetch.max.wait.ms": "fetch.wait.max.ms",
        "max.request.size": "message.max.bytes",
    }
)
_IGNORED: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "config.providers",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "socket.connection.setup.timeout.max.ms",
        "value.deserializer",
        "value.serializer",
    }
)
_ASSIGNORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "org.apache.kafka.clients.consumer.RangeAssignor": "range",
        "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
        "org.apache.kafka.clients.consumer.StickyAssignor": "cooperative-sticky",
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
    }
)
# librdkafka would take more.
_ACKS: Final = ("all", "-1", "0", "1")
# -1 lets the operating system choose, in Java.
_SYSTEM_BUFFER: Final = "-1"


def key_values(arguments: Iterable[str], option: str) -> Properties:
    """Reads the `key=value` arguments of an option. A value may be empty. Raises ToolError."""
    properties: Properties = {}
    for argument in arguments:
        key, separator, value = argument.partition("=")
        if not separator or not key:
            raise ToolError(f"{option} {argument} is not KEY=VALUE")
        properties[key] = value
    return properties


def merged(properties: Mapping[str, str], options: Mapping[str, tuple[object, object]]) -> Properties:
    """Adds the values of options, each with its default, to the properties. An option that is given (is not None) replaces
    the property; the default of one that is not does not."""
    found = dict(properties)
    for key, (given, default) in options.items():
        if given is not None:
            found[key] = str(given)
        elif key not in found:
            found[key] = str(default)
    return found


def producer_settings(properties: Mapping[str, str]) -> Properties:
    """Translates the settings of a producer. Raises ToolError."""
    settings = _translated(properties, {"buffer.memory": _kbytes})
    # The partition of a key is that of the Java client.
    settings.setdefault("partitioner", "murmur2_random")
    settings.setdefault("delivery.timeout.ms", DELIVERY_TIMEOUT_MS)
    if "transactional.id" in settings:
        _fit_into_transaction(settings)
    acks = settings.get("acks", "-1").strip().lower()
    if acks not in _ACKS:
        raise ToolError(f"acks={acks} is not valid; it takes {', '.join(_ACKS)}")
    is_safe = acks in ("-1", "all") and settings.get("retries", "1") != "0"
    settings.setdefault("enable.idempotence", str(is_safe).lower())
    return settings


def _fit_into_transaction(settings: Properties) -> None:
    """Lets no record wait for longer than a transaction may take: librdkafka refuses that, the Java client does not look."""
    delivery, transaction = settings["delivery.timeout.ms"], settings.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
    if delivery.isdecimal() and transaction.isdecimal() and int(delivery) > int(transaction):
        settings["delivery.timeout.ms"] = transaction


def consumer_settings(properties: Mapping[str, str]) -> Properties:
    """Translates the settings of a consumer. Raises ToolError."""
    settings = _translated(properties, {"partition.assignment.strategy": _assignors})
    timeout = settings.pop("request.timeout.ms", None)
    if timeout is not None:
        settings.setdefault("socket.timeout.ms", timeout)
    settings.setdefault("isolation.level", "read_uncommitted")
    settings.setdefault("allow.auto.create.topics", "true")
    return settings


def _translated(properties: Mapping[str, str], special: Mapping[str, Callable[[str, str], tuple[str, str]]]) -> Properties:
    settings: Properties = {}
    for key, value in properties.items():
        if key in special:
            new_key, new_value = special[key](key, value)
            settings[new_key] = new_value
        elif key not in _IGNORED and not (key in ("send.buffer.bytes", "receive.buffer.bytes") and value == _SYSTEM_BUFFER):
            settings[_RENAMED.get(key, key)] = value
    return settings


def _kbytes(key: str, value: str) -> tuple[str, str]:
    if not (value.isascii() and value.isdecimal() and len(value) <= 19):
        raise ToolError(f"{key}={value} is not a number of bytes")
    return "queue.buffering.max.kbytes", str(max(1, int(value) // 1024))


def _assignors(key: str, value: str) -> tuple[str, str]:
    return key, ",".join(_ASSIGNORS.get(name.strip(), name.strip()) for name in value.split(","))
