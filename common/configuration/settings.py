"""The vocabulary for declaring configuration keys, and the loader that fills a declared class (core).

A configuration is a frozen dataclass with one field per key; the field name is the key with '.' replaced by '_'. The field's
setting parses the text and describes what is allowed, so that an error can give the key, the value and the allowed values in
one line. A default is given as a value, not as text to be parsed. Counterpart of Kafka's ConfigDef.
"""

import contextlib
import dataclasses
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


# The longest string that the protocol can carry, in bytes.
_VALUE_BYTES_MAX = 2**15 - 1
# What may surround a value or the elements of a list, as in Kafka. Python's strip() takes away the blanks of other scripts
# too: a number with a no-break space would be valid here, while brokers of Apache Kafka cannot read it.
BLANKS = "".join(map(chr, range(ord(" ") + 1)))
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,40}(\.[0-9]{0,40})?|\.[0-9]{1,40})([eE][+-]?[0-9]{1,3})?")


def printable(text: str) -> str:
    """Returns the text on one line: unprintable characters, which a properties file can contain, are escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


class ConfigError(Exception):
    """A configuration is unusable. The text is one line that gives the key, the value and what is allowed."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class Required:
    """The type of REQUIRED, which marks a key without a default."""


REQUIRED = Required()


class ConfigType(IntEnum):
    """The type of a key's value, with the numbers of Kafka's ConfigType in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Setting:
    """How to read one key. `parse` returns the value or raises ValueError; `allowed` describes the allowed values."""

    parse: Callable[[str], object]
    allowed: str
    type: ConfigType


# A setting that makes only the checks that apply to every value: printable, and not longer than the protocol can carry.
ANY_TEXT = Setting(lambda value: value, "any text", ConfigType.STRING)


def _field(parse: Callable[[str], object], allowed: str, default: object, type_: ConfigType) -> Any:
    metadata = {"setting": Setting(parse, allowed, type_)}
    if isinstance(default, Required):
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def integer(default: int | Required | None, *, at_least: int = -(2**63), at_most: int = LONG_MAX) -> Any:
    """Declares a key that takes an integer within bounds. The error message gives the bounds. A key that Kafka reads as an
    int takes at most INT_MAX, one that it reads as a short SHORT_MAX."""

    def parse(text: str) -> int:
        # Check the form first, because int() would also accept underscores and the digits of other scripts.
        if _INTEGER.fullmatch(text) is None:
            raise ValueError
        value = int(text)
        if not at_least <= value <= at_most:
            raise ValueError
        return value

    low = "" if at_least == -(2**63) else f" of at least {at_least}"
    high = "" if at_most == LONG_MAX else f"{' and' if low else ' of'} at most {at_most}"
    return _field(parse, f"a whole number{low}{high}", default, _integer_type(at_most))


def _integer_type(at_most: int) -> ConfigType:
    if at_most == SHORT_MAX:
        return ConfigType.SHORT
    return ConfigType.INT if at_most <= INT_MAX else ConfigType.LONG


def decimal(default: float, *, at_least: float, at_most: float | None = None) -> Any:
    """Declares a key that takes a decimal number within bounds, which Kafka reads as a double."""

    def parse(text: str) -> float:
        if _DECIMAL.fullmatch(text) is None:
            raise ValueError
        value = float(text)
        if not at_least <= value <= (math.inf if at_most is None else at_most):
            raise ValueError
        return value

    high = "" if at_most is None else f" and at most {at_most:g}"
    return _field(parse, f"a number of at least {at_least:g}{high}", default, ConfigType.DOUBLE)


def boolean(default: bool) -> Any:
    """Declares a key that takes `true` or `false`, in upper or lower case, as in Kafka."""

    def parse(text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"

    return _field(parse, "true or false", default, ConfigType.BOOLEAN)


def text(default: str | Required | None) -> Any:
    """Declares a key that takes any text. An empty value is kept."""
    return _field(ANY_TEXT.parse, ANY_TEXT.allowed, default, ANY_TEXT.type)


def words(default: Sequence[str] | Required, *, among: Sequence[str] = ()) -> Any:
    """Declares a key that takes a comma-separated list; empty elements are dropped."""

    def parse(value: str) -> tuple[str, ...]:
        parts = tuple(part for each in value.split(",") if (part := each.strip(BLANKS)))
        if among and not all(part in among for part in parts):
            raise ValueError
        return parts

    allowed = "a comma-separated list" + (f" of {', '.join(among)}" if among else "")
    return _field(parse, allowed, default if isinstance(default, Required) else tuple(default), ConfigType.LIST)


def choice(default: str, *, among: Sequence[str]) -> Any:
    """Declares a key that takes one of these words."""

    def parse(value: str) -> str:
        if value not in among:
            raise ValueError
        return value

    return _field(parse, f"one of {', '.join(among)}", default, ConfigType.STRING)


def custom(parse: Callable[[str], object], allowed: str, default: object, type_: ConfigType = ConfigType.STRING) -> Any:
    """Declares a key with a parser of its own."""
    return _field(parse, allowed, default, type_)


def key_of(field_name: str) -> str:
    """Returns the key of a field: `log.dirs` for `log_dirs`."""
    return field_name.replace("_", ".")


def field_of(key: str) -> str:
    """Returns the field of a key: `log_dirs` for `log.dirs`."""
    return key.replace(".", "_")


def settings_of(configuration_class: type) -> dict[str, Setting]:
    """Returns the settings of the declared keys in order of declaration."""
    fields = dataclasses.fields(configuration_class)
    return {key_of(field.name): field.metadata["setting"] for field in fields if "setting" in field.metadata}


def load_settings(configuration_class: type, properties: Mapping[str, str]) -> dict[str, Any]:
    """Maps field names to values for every declared key in `properties`. Raises ConfigError for an invalid value or a
    missing key."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(configuration_class):
        setting: Setting | None = field.metadata.get("setting")
        if setting is None:
            continue
        key = key_of(field.name)
        if key in properties:
            values[field.name] = parse_setting(key, setting, properties[key])
        elif field.default is dataclasses.MISSING:
            raise ConfigError(f"{key} is missing; it takes {setting.allowed}")
    return values


def load_readable_settings(configuration_class: type, properties: Mapping[str, str]) -> dict[str, Any]:
    """Maps field names to values for the declared keys in `properties`, and leaves out the values that are invalid."""
    settings = settings_of(configuration_class)
    values: dict[str, Any] = {}
    for key, value in properties.items():
        if key in settings:
            with contextlib.suppress(ConfigError):
                values[field_of(key)] = parse_setting(key, settings[key], value)
    return values


def is_readable(setting: Setting, value: str) -> bool:
    """Whether the value is valid."""
    try:
        parse_setting("", setting, value)
    except ConfigError:
        return False
    return True


def parse_setting(key: str, setting: Setting, value: str) -> object:
    """Parses the value of one key. Raises ConfigError if it is invalid."""
    stripped = value.strip(BLANKS)
    if any(unicodedata.category(each) in ("Cc", "Cs") for each in stripped):
        # Refuse control characters and surrogates: some cannot be part of a file name, others cannot be sent in a request.
        raise ConfigError(f"{key}={value} is not valid (it holds control characters); it takes {setting.allowed}")
    if len(value.encode()) > _VALUE_BYTES_MAX:
        raise ConfigError(f"{key} is not valid ({len(value)} characters are too many); it takes {setting.allowed}")
    try:
        return setting.parse(stripped)
    except ValueError as error:
        reason = f" ({error})" if str(error) and not str(error).startswith(("invalid literal", "could not")) else ""
        raise ConfigError(f"{key}={value} is not valid{reason}; it takes {setting.allowed}") from None
