"""Fast conversion of records to JSON text (core).

Names and formats are those of Kafka's tools: camel case, uuids as text, bytes as base64, a tagged field only if it differs
from its default. Fields that the record's version lacks are left out, and reserved directory ids have the numbers that the
log has. The conversion takes the largest part of an export's time, so everything derived from a declaration is computed once
per type, version and numbering.
"""

import base64
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from common.ids import Uuid, uuid_text
from common.protocol.numbering import TO_APACHE, Numbering
from common.protocol.schema import ArrayOf, Primitive, Struct, StructSchema, WireType
from common.protocol.source import UUIDS

Writer = Callable[[Any], str]

_NUMBERS: Final = (
    Primitive.INT8,
    Primitive.INT16,
    Primitive.UINT16,
    Primitive.INT32,
    Primitive.INT64,
)
_text: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_UUIDS_MAX: Final = 100_000
# Used as the default of fields that are always written: no value equals it.
_NEVER: Final = object()


class UuidTexts(dict[bytes, str]):
    """The text form of uuids. Each is encoded once: a cluster has few uuids, and its log repeats them all the time.
    `numbers` has the uuids that are printed as other ones."""

    def __init__(self, numbers: Mapping[Uuid, Uuid] = MappingProxyType({})) -> None:
        super().__init__()
        self._numbers = numbers

    def __missing__(self, uuid: Uuid) -> str:
        if len(self) >= _UUIDS_MAX:
            self.clear()
        text = self[uuid] = uuid_text(self._numbers.get(uuid, uuid))
        return text


class RecordTexts:
    """Converts records to text. `uuids` may be shared with other code that needs the text of uuids."""

    def __init__(self, uuids: UuidTexts) -> None:
        self._uuids = uuids
        self._directories = {Numbering.KIP858: uuids, Numbering.APACHE: UuidTexts(TO_APACHE)}
        self._writers: dict[tuple[type[Struct], int, Numbering], Writer] = {}

    def text(self, record: Struct, version: int, numbering: Numbering = Numbering.KIP858) -> str:
        """Returns the fields that exist in `version`, as one JSON object. `numbering` is that of the record's log."""
        key = (type(record), version, numbering)
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = self._struct_writer(record.wire_schema, version, numbering)
        return writer(record)

    def _struct_writer(self, schema: StructSchema, version: int, numbering: Numbering) -> Writer:
        plan = [
            (
                f'"{field.json_name}":',
                field.name,
                self._writer(field.wire_type, version, numbering),
                field.make_default() if field.is_tagged(version) else _NEVER,
            )
            for field in schema.fields
            if version in field.versions
        ]

        def write(record: Any) -> str:
            found = []
            for key, name, writer, default in plan:
                value = getattr(record, name)
                if default is _NEVER or value != default:
                    found.append(key + ("null" if value is None else writer(value)))
            return "{" + ",".join(found) + "}"

        return write

    def _writer(self, wire_type: WireType, version: int, numbering: Numbering) -> Writer:
        if isinstance(wire_type, ArrayOf):
            return self._array_writer(wire_type.element, version, numbering)
        if isinstance(wire_type, StructSchema):
            return self._struct_writer(wire_type, version, numbering)
        if wire_type in _NUMBERS:
            return str
        if wire_type in UUIDS:
            uuids = self._texts_of(wire_type, numbering)
            return lambda value: f'"{uuids[value]}"'
        if wire_type is Primitive.BYTES:
            return lambda value: f'"{base64.b64encode(value).decode("ascii")}"'
        return _text

    def _array_writer(self, element: WireType, version: int, numbering: Numbering) -> Writer:
        if element in UUIDS:
            uuids = self._texts_of(element, numbering)
            return lambda values: '["' + '","'.join([uuids[each] for each in values]) + '"]' if values else "[]"
        writer = self._writer(element, version, numbering)
        return lambda values: "[" + ",".join([writer(each) for each in values]) + "]"

    def _texts_of(self, wire_type: WireType, numbering: Numbering) -> UuidTexts:
        return self._directories[numbering] if wire_type is Primitive.ASSIGNED_DIRECTORY_ID else self._uuids
