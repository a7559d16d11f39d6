"""Reads the lines of kafka-console-producer as records with key and headers (core).

Counterpart of Kafka's LineMessageReader, with its properties and its errors. It works on bytes: what is no UTF-8 reaches the
topic as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tools.errors import ToolError

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Line:
    """A record that was read."""

    key: bytes | None
    value: bytes | None
    headers: list[Header] = field(default_factory=list)


class LineReader:
    """Parses lines, given in their order. Raises ToolError for properties that contradict each other."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parses_key = _is_true(properties, "parse.key")
        self._parses_headers = _is_true(properties, "parse.headers")
        self._ignores_errors = _is_true(properties, "ignore.error")
        marker = properties.get("null.marker")
        self._null_marker = None if marker is None else marker.encode()
        separators = {
            "key.separator": properties.get("key.separator", "\t"),
            "headers.delimiter": properties.get("headers.delimiter", "\t"),
            "headers.separator": properties.get("headers.separator", ","),
            "headers.key.separator": properties.get("headers.key.separator", ":"),
        }
        _check(separators, marker)
        self._key_separator, self._headers_delimiter, self._headers_separator, self._headers_key_separator = (
            text.encode() for text in separators.values()
        )
        self._number = 0

    def read(self, line: bytes) -> Line:
        """Parses a line without its end. Raises ToolError if a separator is missing."""
        self._number += 1
        headers, position = self._part(line, 0, self._parses_headers, self._headers_delimiter, "headers delimiter")
        key, position = self._part(line, position, self._parses_key, self._key_separator, "key separator")
        has_headers = headers is not None and headers != self._null_marker
        return Line(
            self._or_null(key),
            self._or_null(line[position:]),
            self._headers(headers) if has_headers and headers is not None else [],
        )

    def _part(self, line: bytes, start: int, is_wanted: bool, end: bytes, name: str) -> tuple[bytes | None, int]:
        """Returns the part before `end`, and the position behind it."""
        if not is_wanted:
            return None, start
        found = line.find(end, start)
        if found >= 0:
            return line[start:found], found + len(end)
        if self._ignores_errors:
            return None, start
        raise ToolError(f"No {name} found on line number {self._number}: '{_text(line)}'")

    def _or_null(self, content: bytes | None) -> bytes | None:
        return None if content == self._null_marker else content

    def _headers(self, headers: bytes) -> list[Header]:
        return [self._header(pair) for pair in headers.split(self._headers_separator)]

    def _header(self, pair: bytes) -> Header:
        key, separator, value = pair.partition(self._headers_key_separator)
        if not separator:
            if self._ignores_errors:
                return _text(pair), None
            raise ToolError(f"No header key separator found in pair '{_text(pair)}' on line number {self._number}")
        if key == self._null_marker:
            raise ToolError(f"Header keys should not be equal to the null marker '{_text(key)}' as they can't be null")
        return _text(key), self._or_null(value)


def _is_true(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "false").strip().lower() == "true"


def _check(separators: Mapping[str, str], marker: str | None) -> None:
    for key, text in separators.items():
        if not text:
            raise ToolError(f"{key} may not be empty")
    for one, other in (
        ("headers.delimiter", "headers.separator"),
        ("headers.delimiter", "headers.key.separator"),
        ("headers.separator", "headers.key.separator"),
    ):
        if separators[one] == separators[other]:
            raise ToolError(f"{one} and {other} may not be equal")
    for key, text in separators.items():
        if text == marker:
            raise ToolError(f"null.marker and {key} may not be equal")


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")
