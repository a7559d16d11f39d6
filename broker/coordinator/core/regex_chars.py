"""Classes of characters in regular expressions, and the positions between characters (core).

A class says of any character of Unicode whether it belongs, as RE2's classes do: by ranges, by Unicode's general categories,
and without regard to case by simple case folding, in which one character stands for one.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

UNICODE_MAX: Final = 0x10FFFF

Ranges = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Chars:
    """One character that is in one of the ranges or categories, or outside one of `outside`. `make_chars` makes it."""

    # Invariant: the ranges from a first to a last character are sorted and do not touch.
    firsts: tuple[str, ...]
    lasts: tuple[str, ...]
    categories: frozenset[str] = frozenset()
    outside: tuple["Chars", ...] = ()
    ignores_case: bool = False
    is_negated: bool = False

    def holds(self, char: str) -> bool:
        """Whether the character belongs to the class."""
        variants = case_variants(char) if self.ignores_case else (char,)
        return any(self._has(each) for each in variants) != self.is_negated

    def _has(self, char: str) -> bool:
        at = bisect_right(self.firsts, char) - 1
        return (
            (at >= 0 and char <= self.lasts[at])
            or (bool(self.categories) and unicodedata.category(char) in self.categories)
            or any(not each.holds(char) for each in self.outside)
        )

    def negated(self) -> "Chars":
        return replace(self, is_negated=not self.is_negated)


def make_chars(ranges: Ranges, categories: Iterable[str] = (), *, ignores_case: bool = False) -> Chars:
    """Returns the class of the characters in these ranges and categories."""
    firsts: list[str] = []
    lasts: list[str] = []
    for first, last in sorted(ranges):
        if lasts and ord(first) <= ord(lasts[-1]) + 1:
            lasts[-1] = max(lasts[-1], last)
        else:
            firsts.append(first)
            lasts.append(last)
    return Chars(tuple(firsts), tuple(lasts), frozenset(categories), ignores_case=ignores_case)


def union(classes: Iterable[Chars], *, ignores_case: bool) -> Chars:
    """Returns the class of the characters in any of these."""
    ranges: list[tuple[str, str]] = []
    categories: set[str] = set()
    # There are few different negated classes, so an expression that repeats them does not make matches slow.
    outside: dict[Chars, None] = {}
    for each in classes:
        if each.is_negated:
            outside[each.negated()] = None
        else:
            ranges.extend(zip(each.firsts, each.lasts, strict=True))
            categories.update(each.categories)
    return replace(make_chars(ranges, categories, ignores_case=ignores_case), outside=tuple(outside))


def case_variants(char: str) -> tuple[str, ...]:
    """Returns the character and the others of its kind that differ in case: small, capital and title case."""
    folded = _fold(char)
    cased = (folded, folded.upper(), folded.title())
    # The dotless i is not an i, although its capital letter is that of i.
    return (char, *(each for each in dict.fromkeys(cased) if len(each) == 1 and _fold(each) == folded))


def _fold(char: str) -> str:
    """Returns the one character that stands for all that differ in case only."""
    return next((each for each in (char.casefold(), char.lower()) if len(each) == 1), char)


ANY_CHAR: Final = make_chars([("\0", chr(UNICODE_MAX))])
NO_NEWLINE: Final = make_chars([("\n", "\n")]).negated()


class Position(Enum):
    """A condition on what is before and after a position in the text."""

    TEXT_BEGIN = auto()
    TEXT_END = auto()
    LINE_BEGIN = auto()
    LINE_END = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()

    def holds(self, before: str, after: str) -> bool:
        """Whether this is so between these characters, of which one is empty at an end of the text."""
        if self is Position.TEXT_BEGIN:
            return not before
        if self is Position.TEXT_END:
            return not after
        if self is Position.LINE_BEGIN:
            return before in ("", "\n")
        if self is Position.LINE_END:
            return after in ("", "\n")
        return (is_word(before) != is_word(after)) == (self is Position.WORD_BOUNDARY)


def is_word(char: str) -> bool:
    """Whether the character is one of words: RE2's words are ASCII."""
    return char.isascii() and (char.isalnum() or char == "_")
