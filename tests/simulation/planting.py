"""Plants a bug into production code, in memory, for one run of the simulator.

An `Edit` names a function and a piece of its source, with the buggy text that replaces it. While the bug is planted the
function runs the code of the edited source, wherever it was imported. Production modules know nothing about this. The piece
must occur in the source exactly once, or `planted` raises: otherwise a bug would silently stop being planted when the
production code changes.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any


class DoesNotFit(Exception):
    """The production code has changed, and the planted bug must be adapted to it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces `right` by `wrong` in the source of `function`, indented as if the function were at the top level."""

    function: Callable[..., Any]
    right: str
    wrong: str


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One bug. `story` is how a programmer might have justified it. If few seeds find the bug, `seed` is one of them."""

    name: str
    story: str
    edits: tuple[Edit, ...]
    seed: int | None = None

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plants the bug while the context is open. Raises DoesNotFit before it has changed anything."""
        functions = dict.fromkeys(_plain(edit.function) for edit in self.edits)
        codes = [self._code(function) for function in functions]
        with ExitStack() as stack:
            for function, code in zip(functions, codes, strict=True):
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = code
            yield

    def _code(self, function: FunctionType) -> CodeType:
        """Compiles the function with all its edits."""
        source = textwrap.dedent(inspect.getsource(function))
        for edit in self.edits:
            if edit.function is function:
                found = source.count(edit.right)
                if found != 1:
                    raise DoesNotFit(f"{self.name}: {function.__qualname__} has {found} times, not once: {edit.right!r}")
                source = source.replace(edit.right, edit.wrong)
        tree = ast.parse(source)
        ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
        module = compile(tree, function.__code__.co_filename, "exec", dont_inherit=True)
        code = _code_named(module, function.__name__)
        if code.co_freevars != function.__code__.co_freevars:
            raise DoesNotFit(f"{self.name}: {function.__qualname__} uses names of an enclosing function")
        return code.replace(co_qualname=function.__qualname__)


def _plain(function: Callable[..., Any]) -> FunctionType:
    if not isinstance(function, FunctionType):
        raise DoesNotFit(f"{function!r} is no plain function")
    return function


def _code_named(module: CodeType, name: str) -> CodeType:
    """Finds the function's code among the constants of a compiled module that contains nothing but the function."""
    return next(each for each in module.co_consts if isinstance(each, CodeType) and each.co_name == name)
