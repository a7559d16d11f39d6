"""Parses the JSON files that users write for the tools (core)."""

import json
from collections.abc import Callable
from typing import Any

ObjectHook = Callable[[list[tuple[str, Any]]], Any]


def parse_json(text: str, *, object_pairs_hook: ObjectHook | None = None) -> Any:
    """Like `json.loads`. Raises ValueError also for text that is nested too deeply, and for half of a surrogate pair: it can
    neither be sent nor be printed."""
    try:
        data = json.loads(text, object_pairs_hook=object_pairs_hook)
        json.dumps(data, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError as error:
        half = f"{ord(error.object[error.start]):04x}"
        raise ValueError(f"\\u{half} is half of a surrogate pair and stands alone") from None
    return data


def is_integer(value: object, *, bits: int = 32) -> bool:
    """Whether this is a number that can be sent in so many bits."""
    # JSON's true and false are instances of int.
    return type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1
