"""The lines of kafka-console-producer: keys, headers and nulls, with the properties of Kafka's LineMessageReader."""

import pytest

from tools.errors import ToolError
from tools.kafka.line_reader import Line, LineReader


def reader(**properties: str) -> LineReader:
    return LineReader({name.replace("_", "."): value for name, value in properties.items()})


@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"a\tb", Line(None, b"a\tb")),
        ({}, b"", Line(None, b"")),
        ({}, b"\xff\x00", Line(None, b"\xff\x00")),
        ({"parse_key": " TRUE "}, b"k\tv\tw", Line(b"k", b"v\tw")),
        ({"parse_key": "true"}, b"\t", Line(b"", b"")),
        ({"parse_key": "true", "key_separator": "=="}, b"k==v", Line(b"k", b"v")),
        ({"parse_key": "true", "ignore_error": "true"}, b"v", Line(None, b"v")),
        ({"parse_headers": "true"}, b"a:1,b:2:3\tv", Line(None, b"v", [("a", b"1"), ("b", b"2:3")])),
        ({"parse_headers": "true", "ignore_error": "true"}, b"a\tv", Line(None, b"v", [("a", None)])),
        ({"parse_headers": "true", "parse_key": "true"}, b"a:\tk\tv", Line(b"k", b"v", [("a", b"")])),
        (
            {
                "parse_headers": "true",
                "parse_key": "true",
                "headers_delimiter": "!",
                "headers_separator": ";",
                "headers_key_separator": "=",
                "null_marker": "NULL",
            },
            b"a=1;b=NULL!NULL\tNULL",
            Line(None, None, [("a", b"1"), ("b", None)]),
        ),
        ({"parse_headers": "true", "null_marker": "N"}, b"N\tv", Line(None, b"v")),
    ],
)
def test_what_a_line_says(properties: dict[str, str], line: bytes, expected: Line) -> None:
    """Content that is not text is kept. What is equal to the null marker becomes null."""
    assert reader(**properties).read(line) == expected


@pytest.mark.parametrize(
    ("properties", "line", "text"),
    [
        ({"parse_key": "true"}, b"v", "No key separator found on line number 2: 'v'"),
        ({"parse_headers": "true"}, b"v", "No headers delimiter found on line number 2: 'v'"),
        ({"parse_headers": "true"}, b"h\tv", "No header key separator found in pair 'h' on line number 2"),
        (
            {"parse_headers": "true", "null_marker": "N"},
            b"N:1\tv",
            "Header keys should not be equal to the null marker 'N' as they can't be null",
        ),
    ],
)
def test_lines_that_cannot_be_read(properties: dict[str, str], line: bytes, text: str) -> None:
    """The message has the number of the line."""
    lines = reader(**properties)
    lines.read(b"a:1\tb")
    with pytest.raises(ToolError) as raised:
        lines.read(line)
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"headers_delimiter": ","}, "headers.delimiter and headers.separator may not be equal"),
        ({"headers_delimiter": ":"}, "headers.delimiter and headers.key.separator may not be equal"),
        ({"headers_separator": ":"}, "headers.separator and headers.key.separator may not be equal"),
        ({"null_marker": ","}, "null.marker and headers.separator may not be equal"),
        ({"null_marker": "\t"}, "null.marker and key.separator may not be equal"),
        ({"key_separator": ""}, "key.separator may not be empty"),
    ],
)
def test_separators_that_are_not_distinct(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ToolError) as raised:
        reader(**properties)
    assert str(raised.value) == text
