"""Plants a bug into production code for one run of the simulator, in memory.

An `Edit` names a function and a piece of its text, with what stands there in the buggy version. While the bug is planted the
function has the code of the edited text; every reference to the function sees it, wherever it was imported. Nothing in
production modules knows of this. Easy to get wrong: a bug that no longer fits the code would be a bug that is never
planted, so the text must be found exactly once, and anything else raises.
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
    """The production code has changed, and the planted bug has to follow it."""


@dataclass(frozen=True, slots=True)
class Edit:
    """In the source of `function`, `right` becomes `wrong`. Indentation is that of the function itself."""

    function: Callable[..., Any]
    right: str
    wrong: str


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """One bug. `story` is what its author may have thought; `seed`, of a bug that few seeds show, is one that found it."""

    name: str
    story: str
    edits: tuple[Edit, ...]
    seed: int | None = None

    @contextmanager
    def planted(self) -> Iterator[None]:
        """The production code has the bug inside of this. Raises DoesNotFit before anything is changed."""
        functions = dict.fromkeys(_plain(edit.function) for edit in self.edits)
        codes = [self._code(function) for function in functions]
        with ExitStack() as stack:
            for function, code in zip(functions, codes, strict=True):
                stack.callback(setattr, function, "__code__", function.__code__)
                function.__code__ = code
            yield

    def _code(self, function: FunctionType) -> CodeType:
        """The function compiled with all edits that concern it."""
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
    """The function's own code among the constants of the module that holds its definition alone."""
    return next(each for each in module.co_consts if isinstance(each, CodeType) and each.co_name == name)
