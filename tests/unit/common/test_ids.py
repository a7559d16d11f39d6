"""Uuids as text: the form that Kafka prints, and the texts that are accepted and refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.ids import METADATA_TOPIC_ID, ZERO_UUID, Uuid, uuid_from_text, uuid_text


@pytest.mark.parametrize(
    ("uuid", "text"),
    [
        (ZERO_UUID, "AAAAAAAAAAAAAAAAAAAAAA"),
        (METADATA_TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAQ"),
        (Uuid(bytes(15) + b"\x02"), "AAAAAAAAAAAAAAAAAAAAAg"),
        (Uuid(b"\xff" * 16), "_____________________w"),
        (Uuid(b"\xfb" * 16), "-_v7-_v7-_v7-_v7-_v7-w"),
    ],
)
def test_the_text_of_a_uuid_is_kafkas(uuid: Uuid, text: str) -> None:
    """The examples are the well-known ids and a uuid with both characters that differ from plain base64."""
    assert uuid_text(uuid) == text
    assert uuid_from_text(text) == uuid
    assert uuid_from_text(text + "==") == uuid


@given(st.binary(min_size=16, max_size=16))
def test_every_uuid_has_one_text_that_gives_it_back(raw: bytes) -> None:
    """Every uuid has one text of 22 characters, which gives it back."""
    text = uuid_text(raw)
    assert len(text) == 22
    assert uuid_from_text(text) == raw


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "AAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAAA",
        "AAAA AAAAAAAAAAAAAAAAAA",
        "++++++++++++++++++++++",
        "/_____________________",
        "äAAAAAAAAAAAAAAAAAAAAA",
        "A" * 43,
        "AAAAAAAAAAAAAAAAAAAAAA\n",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Text that is too short or too long, has foreign characters, is plain base64 or has a line end raises a ValueError,
    which names the text."""
    with pytest.raises(ValueError, match=r"is not a base64url uuid|a uuid has 16"):
        uuid_from_text(text)
