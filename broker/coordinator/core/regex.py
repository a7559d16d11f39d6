"""Regular expressions over names of topics and transactional ids, in time that is linear in the name (core).

Kafka uses RE2, whose expressions cannot make a match take forever. Python's `re` backtracks and can: `(a+)+b` would stop the
event loop. So this is RE2's method: the expression becomes an automaton, which is followed for all its branches at once, and
the sets of branches that have been met are remembered (a lazy DFA).

The syntax is RE2's, but for Unicode's scripts (`\\p{Greek}`), of which Python has no table; its general categories are known
(`\\pL`). An expression has to match the whole name.
"""

from dataclasses import dataclass, field
from typing import Final

from broker.coordinator.core.regex_chars import Chars, Position, is_word
from broker.coordinator.core.regex_syntax import Alternatives, InvalidRegex, Node, Repeat, Sequence, parse

__all__ = ["InvalidRegex", "Regex"]

# How many states an expression may have. A name costs as many steps at most for each of its characters.
STATES_MAX: Final = 2_000
# How many parts of an expression, counted as often as they are repeated, may become states: `(){1000}` makes none at all.
PARTS_MAX: Final = 20_000
# How many members all the remembered sets of states may have.
MEMBERS_MAX: Final = 200_000

_Set = frozenset[int]


@dataclass(slots=True)
class _State:
    """One state. With one of the characters it goes on to `next`; without any, to the states in `empty`."""

    chars: Chars | None = None
    next: int = -1
    empty: list[int] = field(default_factory=list)
    # Where in the name `empty` is open; None is anywhere.
    position: Position | None = None


class Regex:
    """One expression. The constructor raises InvalidRegex."""

    def __init__(self, text: str) -> None:
        self.text = text
        # How many states have been looked at.
        self.work = 0
        self._states: list[_State] = []
        self._parts = 0
        self._final = self._new_state()
        self._start = frozenset({self._compile(parse(text), self._final)})
        self._has_positions = any(state.position is not None for state in self._states)
        # What each character leads to, for each set that has been met and the kind of character before.
        self._followed: dict[tuple[_Set, str], dict[str, _Set]] = {}
        self._members = 0

    def matches(self, name: str) -> bool:
        """Whether the expression matches the whole name."""
        current, before = self._start, ""
        for char in name:
            followed = self._followed.get((current, before))
            reached = None if followed is None else followed.get(char)
            current = self._follow(current, before, char) if reached is None else reached
            before = self._kind(char)
            self.work += 1
            if not current:
                return False
        return self._final in self._closure(current, before, "")

    def _kind(self, char: str) -> str:
        """Returns a character before which the same positions hold. Few kinds make few sets to remember."""
        if not self._has_positions:
            return ""
        return char if char == "\n" else "a" if is_word(char) else "-"

    def _follow(self, current: _Set, before: str, char: str) -> _Set:
        reached = frozenset(
            self._states[each].next
            for each in self._closure(current, before, char)
            if (chars := self._states[each].chars) is not None and chars.holds(char)
        )
        self._members += len(current) + len(reached) + 1
        if self._members > MEMBERS_MAX:
            self._followed.clear()
            self._members = len(current) + len(reached) + 1
        self._followed.setdefault((current, before), {})[char] = reached
        return reached

    def _closure(self, states: _Set, before: str, after: str) -> set[int]:
        """Returns the states that are reachable at the position between `before` and `after` without reading a character."""
        found = set(states)
        waiting = list(states)
        while waiting:
            state = self._states[waiting.pop()]
            if state.position is not None and not state.position.holds(before, after):
                continue
            for each in state.empty:
                if each not in found:
                    found.add(each)
                    waiting.append(each)
        self.work += len(found)
        return found

    # --- from the syntax to the automaton ------------------------------------------------------------------------

    def _new_state(self) -> int:
        if len(self._states) >= STATES_MAX:
            raise InvalidRegex("it is too large")
        self._states.append(_State())
        return len(self._states) - 1

    def _compile(self, node: Node, goal: int) -> int:
        """Adds the states of the node, and returns the one from which it leads to `goal`."""
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise InvalidRegex("it is too large")
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                goal = self._compile(part, goal)
            return goal
        if isinstance(node, Repeat):
            return self._compile_repeat(node, goal)
        state = self._new_state()
        if isinstance(node, Chars):
            self._states[state].chars, self._states[state].next = node, goal
        elif isinstance(node, Alternatives):
            self._states[state].empty = [self._compile(each, goal) for each in node.branches]
        else:
            self._states[state].empty, self._states[state].position = [goal], node
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
