"""Reads regular expressions in the syntax of RE2, over the characters of topic names (core)."""

import re
import string
from dataclasses import dataclass
from typing import Final, NoReturn

TOPIC_CHARS: Final = frozenset(string.ascii_letters + string.digits + "._-")
REPEATS_MAX: Final = 1_000
DEPTH_MAX: Final = 100

_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_CLASSES: Final = {
    "d": frozenset(string.digits),
    "w": _WORD & TOPIC_CHARS,
    "s": frozenset[str](),
}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": TOPIC_CHARS,
    "blank": frozenset[str](),
    "cntrl": frozenset[str](),
    "digit": frozenset(string.digits),
    "graph": TOPIC_CHARS,
    "lower": frozenset(string.ascii_lowercase),
    "print": TOPIC_CHARS,
    "punct": frozenset("._-"),
    "space": frozenset[str](),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD & TOPIC_CHARS,
    "xdigit": frozenset(string.hexdigits),
}
_REPEATS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_BRACES: Final = re.compile(r"\{([0-9]{1,9})(,([0-9]{1,9})?)?\}")
_HEXADECIMAL: Final = re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,8})\}")
_POSIX_CLASS: Final = re.compile(r"\[:(\^?)([a-z]+):\]")
_UNICODE_MAX: Final = 0x10FFFF
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class InvalidTopicRegex(Exception):
    """The text is no regular expression, or uses what is not supported."""


@dataclass(frozen=True, slots=True)
class Chars:
    """Any one of these characters."""

    chars: frozenset[str]


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of the name."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of the name."""


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Any one of the branches."""

    branches: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The node so often; `most` None is any number of times."""

    node: "Node"
    least: int
    most: int | None


Node = Chars | Begin | End | Sequence | Alternatives | Repeat


def parse(text: str) -> Node:
    """Raises InvalidTopicRegex."""
    parser = _Parser(text)
    node = parser.alternatives(0, ignores_case=False)
    if parser.peek() is not None:
        parser.fail("a ')' closes nothing")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fail(self, reason: str) -> NoReturn:
        raise InvalidTopicRegex(f"{reason} (at character {self._at})")

    def peek(self) -> str | None:
        return self._text[self._at] if self._at < len(self._text) else None

    def take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _next(self, otherwise: str) -> str:
        char = self.peek()
        if char is None:
            self.fail(otherwise)
        self._at += 1
        return char

    def alternatives(self, depth: int, *, ignores_case: bool) -> Node:
        """Reads up to the end of the group or of the text."""
        if depth > DEPTH_MAX:
            self.fail("groups are nested too deeply")
        branches: list[Node] = []
        parts: list[Node] = []
        while (char := self.peek()) is not None and char != ")":
            if self.take("|"):
                branches.append(Sequence(tuple(parts)))
                parts = []
            elif self.take("("):
                is_group, flag = self._opening(ignores_case=ignores_case)
                if is_group:
                    parts.append(self._repeated(self._group(depth, ignores_case=flag)))
                else:
                    ignores_case = flag
            else:
                parts.append(self._repeated(self._atom(ignores_case=ignores_case)))
        branches.append(Sequence(tuple(parts)))
        return branches[0] if len(branches) == 1 else Alternatives(tuple(branches))

    def _group(self, depth: int, *, ignores_case: bool) -> Node:
        node = self.alternatives(depth + 1, ignores_case=ignores_case)
        if not self.take(")"):
            self.fail("a group is not closed")
        return node

    def _opening(self, *, ignores_case: bool) -> tuple[bool, bool]:
        """Reads what follows a '('. Returns whether a group begins, and whether case is ignored from here on."""
        if not self.take("?"):
            return True, ignores_case
        if self.take("P<") or self.take("<"):
            while self._next("the name of a group is not closed") != ">":
                pass
            return True, ignores_case
        is_on = True
        while True:
            char = self._next("a group is not closed")
            if char in ":)":
                return char == ":", ignores_case
            if char == "-":
                is_on = False
            elif char == "i":
                ignores_case = is_on
            elif char not in "ms":
                # Names of topics have no line ends, so the flags m and s change nothing.
                self.fail(f"(?{char} is not supported")

    def _repeated(self, node: Node) -> Node:
        """Reads what says how often the node may occur."""
        bounds = self._bounds()
        if bounds is None:
            return node
        # Greedy or not makes no difference to whether a whole name matches.
        self.take("?")
        if self._bounds() is not None:
            self.fail("one repetition follows another")
        return Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for operator, bounds in _REPEATS.items():
            if self.take(operator):
                return bounds
        found = _BRACES.match(self._text, self._at)
        if found is None:
            return None
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if max(least, most or 0) > REPEATS_MAX or (most is not None and most < least):
            self.fail(f"{found[0]} is no number of repetitions, which is {REPEATS_MAX} at most")
        self._at = found.end()
        return least, most

    def _atom(self, *, ignores_case: bool) -> Node:
        if self._bounds() is not None:
            self.fail("there is nothing to repeat")
        char = self._next("")
        if char == ".":
            return Chars(TOPIC_CHARS)
        if char == "^":
            return Begin()
        if char == "$":
            return End()
        if char == "[":
            return Chars(self._class(ignores_case=ignores_case))
        if char == "\\":
            return self._escaped(ignores_case=ignores_case)
        return _literal(char, ignores_case=ignores_case)

    def _escaped(self, *, ignores_case: bool) -> Node:
        if self.take("Q"):
            quoted, _, _ = self._text[self._at :].partition("\\E")
            self._at = min(self._at + len(quoted) + 2, len(self._text))
            return Sequence(tuple(_literal(char, ignores_case=ignores_case) for char in quoted))
        if self.take("A"):
            return Begin()
        if self.take("z"):
            return End()
        if self.take("C"):
            return Chars(TOPIC_CHARS)
        found = self._class_escape()
        return Chars(found) if found is not None else _literal(self._char_escape(), ignores_case=ignores_case)

    def _class_escape(self) -> frozenset[str] | None:
        """Reads what follows a backslash, if it is a class of characters."""
        char = self.peek() or ""
        if char.lower() not in _CLASSES:
            return None
        self._at += 1
        return _CLASSES[char] if char in _CLASSES else TOPIC_CHARS - _CLASSES[char.lower()]

    def _char_escape(self) -> str:
        """Reads what follows a backslash, if it is one character."""
        char = self._next("it ends in a backslash")
        if char == "x":
            found = _HEXADECIMAL.match(self._text, self._at)
            if found is None or (code := int(found[1] or found[2], 16)) > _UNICODE_MAX:
                self.fail("\\x needs a number of a character")
            self._at = found.end()
            return chr(code)
        if char in _CONTROLS:
            return _CONTROLS[char]
        if not char.isascii() or char.isalnum():
            self.fail(f"\\{char} is not supported")
        return char

    # --- classes of characters -----------------------------------------------------------------------------------

    def _class(self, *, ignores_case: bool) -> frozenset[str]:
        is_negated = self.take("^")
        chars: set[str] = set()
        is_first = True
        while is_first or self.peek() != "]":
            chars |= self._class_item()
            is_first = False
        self._at += 1
        if ignores_case:
            chars |= {char.swapcase() for char in chars}
        return TOPIC_CHARS - chars if is_negated else TOPIC_CHARS & chars

    def _class_item(self) -> frozenset[str]:
        posix = _POSIX_CLASS.match(self._text, self._at)
        if posix is not None:
            if posix[2] not in _POSIX:
                self.fail(f"{posix[0]} is no class of characters")
            self._at = posix.end()
            return TOPIC_CHARS - _POSIX[posix[2]] if posix[1] else _POSIX[posix[2]]
        first = self._class_char()
        if not isinstance(first, str):
            return first
        if not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return frozenset({first})
        self._at += 1
        last = self._class_char()
        if not isinstance(last, str) or last < first:
            self.fail("a range of characters ends before it begins")
        return frozenset(char for char in TOPIC_CHARS if first <= char <= last)

    def _class_char(self) -> str | frozenset[str]:
        char = self._next("a class of characters is not closed")
        if char != "\\":
            return char
        found = self._class_escape()
        return self._char_escape() if found is None else found


def _literal(char: str, *, ignores_case: bool) -> Chars:
    return Chars(frozenset({char.lower(), char.upper()}) if ignores_case else frozenset({char}))
