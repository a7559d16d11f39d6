"""Declared messages as the JSON that Kafka's tools print (core).

Counterpart of the JsonConverter classes that Kafka generates. Names are in camel case, uuids are text, bytes are base64. A
tagged field appears only if it differs from its default, and a field that the version lacks is left out.
"""

import base64
from typing import Any

from common.ids import uuid_text
from common.parts import Buffer
from common.protocol.schema import ArrayOf, Struct, WireType
from common.protocol.source import UUIDS

JsonObject = dict[str, Any]


def to_json(message: Struct, version: int) -> JsonObject:
    """Converts a message, or a struct inside one, to JSON with the fields that exist in `version`."""
    found: JsonObject = {}
    for field in message.wire_schema.fields:
        if version not in field.versions:
            continue
        value = getattr(message, field.name)
        if not (field.is_tagged(version) and value == field.make_default()):
            found[field.json_name] = _value(value, field.wire_type, version)
    return found


def _value(value: Any, wire_type: WireType, version: int) -> Any:
    if value is None:
        return None
    if isinstance(wire_type, ArrayOf):
        return [_value(element, wire_type.element, version) for element in value]
    if isinstance(value, Struct):
        return to_json(value, version)
    if wire_type in UUIDS:
        return uuid_text(value)
    if isinstance(value, Buffer):
        return base64.b64encode(value).decode("ascii")
    return value
