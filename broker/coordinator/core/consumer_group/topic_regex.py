"""Regular expressions over names of topics, in time that is linear in the name (core).

Kafka uses RE2, whose expressions cannot make a match take forever. Python's `re` backtracks and can: `(a+)+b` would stop the
event loop. So this is RE2's method: the expression becomes an automaton, which is followed for all its branches at once, and
the sets of branches that have been met are remembered (a lazy DFA).

The syntax is RE2's, but for what has no use here: word boundaries (`\\b`), Unicode classes (`\\p{..}`) and the flag `U`. An
expression has to match the whole name. Names of topics consist of letters, digits, `.`, `_` and `-`, so a class of
characters is a set of some of these.
"""

from dataclasses import dataclass, field
from typing import Final

from broker.coordinator.core.consumer_group.topic_regex_syntax import (
    Alternatives,
    Begin,
    Chars,
    End,
    InvalidTopicRegex,
    Node,
    Repeat,
    Sequence,
    parse,
)

__all__ = ["InvalidTopicRegex", "TopicMatching", "TopicRegex"]

# How many states an expression may have. A name costs as many steps at most for each of its characters.
STATES_MAX: Final = 2_000
# How many sets of states are remembered.
SETS_MAX: Final = 1_000

_Set = frozenset[int]


@dataclass(slots=True)
class _State:
    """One state. With one of the characters it goes on to `next`; without any, to the states in `empty`."""

    chars: frozenset[str] = frozenset()
    next: int = -1
    empty: list[int] = field(default_factory=list)
    # Whether `empty` is open only at the beginning or at the end of the name.
    is_begin: bool = False
    is_end: bool = False


class TopicRegex:
    """One expression. The constructor raises InvalidTopicRegex."""

    def __init__(self, text: str) -> None:
        self.text = text
        # How many states have been looked at.
        self.work = 0
        self._states: list[_State] = []
        self._final = self._new_state()
        start = self._compile(parse(text), self._final)
        self._start = self._closure({start}, at_begin=True)
        # What each character leads to, for each set that has been met.
        self._followed: dict[_Set, dict[str, _Set]] = {}

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole name."""
        current = self._start
        for char in name:
            followed = self._followed.get(current)
            if followed is None:
                if len(self._followed) >= SETS_MAX:
                    self._followed.clear()
                followed = self._followed[current] = {}
            reached = followed.get(char)
            if reached is None:
                after = {self._states[each].next for each in current if char in self._states[each].chars}
                reached = followed[char] = self._closure(after)
            current = reached
            self.work += 1
            if not current:
                return False
        return self._final in self._closure(set(current), at_begin=not name, at_end=True)

    def _closure(self, states: set[int], *, at_begin: bool = False, at_end: bool = False) -> _Set:
        found = set(states)
        waiting = list(states)
        while waiting:
            state = self._states[waiting.pop()]
            if (state.is_begin and not at_begin) or (state.is_end and not at_end):
                continue
            for each in state.empty:
                if each not in found:
                    found.add(each)
                    waiting.append(each)
        self.work += len(found)
        return frozenset(found)

    # --- from the syntax to the automaton ------------------------------------------------------------------------

    def _new_state(self) -> int:
        if len(self._states) >= STATES_MAX:
            raise InvalidTopicRegex("it is too large")
        self._states.append(_State())
        return len(self._states) - 1

    def _compile(self, node: Node, goal: int) -> int:
        """Adds the states of the node, and returns the one from which it leads to `goal`."""
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                goal = self._compile(part, goal)
            return goal
        if isinstance(node, Repeat):
            return self._compile_repeat(node, goal)
        state = self._new_state()
        if isinstance(node, Chars):
            self._states[state].chars, self._states[state].next = node.chars, goal
        elif isinstance(node, Alternatives):
            self._states[state].empty = [self._compile(each, goal) for each in node.branches]
        else:
            self._states[state].empty = [goal]
            self._states[state].is_begin = isinstance(node, Begin)
            self._states[state].is_end = isinstance(node, End)
        return state

    def _compile_repeat(self, node: Repeat, goal: int) -> int:
        if node.most is None:
            loop = self._new_state()
            self._states[loop].empty = [self._compile(node.node, loop), goal]
            start = loop
        else:
            start = goal
            for _ in range(node.most - node.least):
                optional = self._new_state()
                self._states[optional].empty = [self._compile(node.node, start), goal]
                start = optional
        for _ in range(node.least):
            start = self._compile(node.node, start)
        return start


class TopicMatching:
    """The names that each of several expressions matches, found step by step."""

    def __init__(self, texts: list[str], names: list[str]) -> None:
        self.found: dict[str, set[str]] = {text: set() for text in texts}
        self._regexes = [TopicRegex(text) for text in texts]
        self._names = iter(names)

    def advance(self, *, names_max: int, work_max: int) -> bool:
        """Goes on until so many names or so much work are done. Returns whether there may be more."""
        work_before = sum(regex.work for regex in self._regexes)
        for _ in range(names_max):
            name = next(self._names, None)
            if name is None:
                return False
            for regex in self._regexes:
                if regex.matches(name):
                    self.found[regex.text].add(name)
            if sum(regex.work for regex in self._regexes) - work_before > work_max:
                break
        return True
