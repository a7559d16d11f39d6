"""Reads regular expressions in the syntax of RE2 (core)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from broker.coordinator.core.regex_chars import (
    ANY_CHAR,
    NO_NEWLINE,
    UNICODE_MAX,
    Chars,
    Position,
    Ranges,
    case_variants,
    make_chars,
    union,
)

REPEATS_MAX: Final = 1_000
DEPTH_MAX: Final = 100
# As characters. A longer expression has too many states anyway, or says the same thing over and over.
LENGTH_MAX: Final = 20_000

_LOWER: Final = ("a", "z")
_UPPER: Final = ("A", "Z")
_DIGIT: Final = ("0", "9")
_WORD: Final = (_LOWER, _UPPER, _DIGIT, ("_", "_"))
_CLASSES: Final[Mapping[str, Ranges]] = {
    "d": (_DIGIT,),
    "w": _WORD,
    "s": (("\t", "\n"), ("\f", "\r"), (" ", " ")),
}
_POSIX: Final[Mapping[str, Ranges]] = {
    "alnum": (_LOWER, _UPPER, _DIGIT),
    "alpha": (_LOWER, _UPPER),
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": (_DIGIT,),
    "graph": (("!", "~"),),
    "lower": (_LOWER,),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (_UPPER,),
    "word": _WORD,
    "xdigit": (_DIGIT, ("A", "F"), ("a", "f")),
}
_CATEGORIES: Final = "Cc Cf Co Cs Ll Lm Lo Lt Lu Mc Me Mn Nd Nl No Pc Pd Pe Pf Pi Po Ps Sc Sk Sm So Zl Zp Zs".split()
_POSITIONS: Final = {
    "A": Position.TEXT_BEGIN,
    "z": Position.TEXT_END,
    "b": Position.WORD_BOUNDARY,
    "B": Position.NO_WORD_BOUNDARY,
}
_REPEATS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_BRACES: Final = re.compile(r"\{([0-9]{1,9})(,([0-9]{1,9})?)?\}")
_HEXADECIMAL: Final = re.compile(r"([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,8})\}")
# A single digit other than 0 would refer to a group, which no automaton can.
_OCTAL: Final = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_POSIX_CLASS: Final = re.compile(r"\[:(\^?)([a-z]+):\]")
_UNICODE_CLASS: Final = re.compile(r"([pP])(?:([A-Z])|\{(\^?)([A-Za-z_]+)\})")
_CONTROLS: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class InvalidRegex(Exception):
    """The text is no regular expression, or uses what is not supported."""


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


Node = Chars | Position | Sequence | Alternatives | Repeat


@dataclass(frozen=True, slots=True)
class _Flags:
    """What `(?ims)` sets. `U` changes nothing, because greedy or not makes no difference to whether a whole name matches."""

    ignores_case: bool = False
    is_multiline: bool = False
    dot_is_newline: bool = False

    def set(self, char: str, is_on: bool) -> "_Flags | None":
        """Returns the flags with one more set or cleared, None if there is no such flag."""
        if char == "i":
            return replace(self, ignores_case=is_on)
        if char == "m":
            return replace(self, is_multiline=is_on)
        if char == "s":
            return replace(self, dot_is_newline=is_on)
        return self if char == "U" else None


def parse(text: str) -> Node:
    """Raises InvalidRegex."""
    if len(text) > LENGTH_MAX:
        raise InvalidRegex("it is too large")
    parser = _Parser(text)
    node = parser.alternatives(0, _Flags())
    if parser.peek() is not None:
        parser.fail("a ')' closes nothing")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def fail(self, reason: str) -> NoReturn:
        raise InvalidRegex(f"{reason} (at character {self._at})")

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

    def alternatives(self, depth: int, flags: _Flags) -> Node:
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
                is_group, inner = self._opening(flags)
                if is_group:
                    parts.append(self._repeated(self._group(depth, inner)))
                else:
                    flags = inner
            else:
                parts.append(self._repeated(self._atom(flags)))
        branches.append(Sequence(tuple(parts)))
        return branches[0] if len(branches) == 1 else Alternatives(tuple(branches))

    def _group(self, depth: int, flags: _Flags) -> Node:
        node = self.alternatives(depth + 1, flags)
        if not self.take(")"):
            self.fail("a group is not closed")
        return node

    def _opening(self, flags: _Flags) -> tuple[bool, _Flags]:
        """Reads what follows a '('. Returns whether a group begins, and the flags from here on."""
        if not self.take("?"):
            return True, flags
        if self.take("P<") or self.take("<"):
            while self._next("the name of a group is not closed") != ">":
                pass
            return True, flags
        is_on = True
        while True:
            char = self._next("a group is not closed")
            if char in ":)":
                return char == ":", flags
            if char == "-" and is_on:
                is_on = False
                continue
            changed = flags.set(char, is_on)
            if changed is None:
                self.fail(f"(?{char} is not supported")
            flags = changed

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

    def _atom(self, flags: _Flags) -> Node:
        if self._bounds() is not None:
            self.fail("there is nothing to repeat")
        char = self._next("")
        if char == ".":
            return ANY_CHAR if flags.dot_is_newline else NO_NEWLINE
        if char == "^":
            return Position.LINE_BEGIN if flags.is_multiline else Position.TEXT_BEGIN
        if char == "$":
            return Position.LINE_END if flags.is_multiline else Position.TEXT_END
        if char == "[":
            return self._class(flags)
        if char == "\\":
            return self._escaped(flags)
        return _literal(char, flags)

    def _escaped(self, flags: _Flags) -> Node:
        if self.take("Q"):
            quoted, _, _ = self._text[self._at :].partition("\\E")
            self._at = min(self._at + len(quoted) + 2, len(self._text))
            return Sequence(tuple(_literal(char, flags) for char in quoted))
        if self.take("C"):
            return ANY_CHAR
        position = _POSITIONS.get(self.peek() or "")
        if position is not None:
            self._at += 1
            return position
        found = self._class_escape(flags)
        return _literal(self._char_escape(), flags) if found is None else found

    def _class_escape(self, flags: _Flags) -> Chars | None:
        """Reads what follows a backslash, if it is a class of characters."""
        char = self.peek() or ""
        if char in ("p", "P"):
            return self._unicode_class(flags)
        if char.lower() not in _CLASSES:
            return None
        self._at += 1
        chars = make_chars(_CLASSES[char.lower()], ignores_case=flags.ignores_case)
        return chars if char in _CLASSES else chars.negated()

    def _unicode_class(self, flags: _Flags) -> Chars:
        found = _UNICODE_CLASS.match(self._text, self._at)
        name = "" if found is None else found[2] or found[4]
        categories = [each for each in _CATEGORIES if each == name or each[0] == name]
        if found is None or (not categories and name != "Any"):
            self.fail(f"\\{self.peek()} needs a general category of Unicode")
        self._at = found.end()
        chars = ANY_CHAR if name == "Any" else make_chars((), categories, ignores_case=flags.ignores_case)
        return chars.negated() if (found[1] == "P") != bool(found[3]) else chars

    def _char_escape(self) -> str:
        """Reads what follows a backslash, if it is one character."""
        octal = _OCTAL.match(self._text, self._at)
        if octal is not None:
            self._at = octal.end()
            return chr(int(octal[0], 8))
        char = self._next("it ends in a backslash")
        if char == "x":
            found = _HEXADECIMAL.match(self._text, self._at)
            if found is None or (code := int(found[1] or found[2], 16)) > UNICODE_MAX:
                self.fail("\\x needs a number of a character")
            self._at = found.end()
            return chr(code)
        if char in _CONTROLS:
            return _CONTROLS[char]
        if not char.isascii() or char.isalnum():
            self.fail(f"\\{char} is not supported")
        return char

    # --- classes of characters -----------------------------------------------------------------------------------

    def _class(self, flags: _Flags) -> Chars:
        is_negated = self.take("^")
        items: list[Chars] = []
        while not items or self.peek() != "]":
            items.append(self._class_item(flags))
        self._at += 1
        chars = union(items, ignores_case=flags.ignores_case)
        return chars.negated() if is_negated else chars

    def _class_item(self, flags: _Flags) -> Chars:
        posix = _POSIX_CLASS.match(self._text, self._at)
        if posix is not None:
            if posix[2] not in _POSIX:
                self.fail(f"{posix[0]} is no class of characters")
            self._at = posix.end()
            chars = make_chars(_POSIX[posix[2]], ignores_case=flags.ignores_case)
            return chars.negated() if posix[1] else chars
        first = self._class_char(flags)
        if isinstance(first, Chars):
            return first
        if not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return _literal(first, flags)
        self._at += 1
        last = self._class_char(flags)
        if isinstance(last, Chars) or last < first:
            self.fail("a range of characters ends before it begins")
        return make_chars([(first, last)], ignores_case=flags.ignores_case)

    def _class_char(self, flags: _Flags) -> str | Chars:
        char = self._next("a class of characters is not closed")
        if char != "\\":
            return char
        found = self._class_escape(flags)
        return self._char_escape() if found is None else found


def _literal(char: str, flags: _Flags) -> Chars:
    """Returns the class of this character. Of those that differ in case, it names the one that stands for all of them."""
    ranges = [(each, each) for each in case_variants(char)] if flags.ignores_case else [(char, char)]
    return make_chars(ranges, ignores_case=flags.ignores_case)
