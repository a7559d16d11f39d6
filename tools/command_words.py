"""What can follow each command on its command line, read from its argparse parser (shell).

An argparse parser has no public way to list its options, so this is the only module that reads argparse's own attributes.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

# The metavars of options that take a path.
FILE_WORDS: Final = ("FILE", "PATH", "F1,F2")
FOLDER_WORDS: Final = ("DIR",)


@dataclass(frozen=True, slots=True)
class Option:
    """An option, with its flags: the long one last."""

    flags: tuple[str, ...]
    help: str
    value: str
    """What follows the option: `nothing`, `choice`, `file`, `folder` or `text`."""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Command:
    """A command or one of its subcommands, named by the words that lead to it: `diskraft local up`."""

    words: str
    help: str
    options: tuple[Option, ...]
    subcommands: tuple["Command", ...] = field(default=())
    takes_files: bool = False
    """Whether paths follow without an option."""

    def all(self) -> Iterator["Command"]:
        """Returns this command and all below it."""
        yield self
        for each in self.subcommands:
            yield from each.all()


def command(words: str, parser: argparse.ArgumentParser, help_: str = "") -> Command:
    """Returns the command that a parser reads."""
    actions = parser._actions
    return Command(
        words,
        help_ or _one_line(parser.description),
        tuple(_option(each) for each in actions if each.option_strings),
        tuple(_subcommands(words, actions)),
        any(not each.option_strings and _value(each) in ("file", "folder") for each in actions),
    )


def _subcommands(words: str, actions: list[argparse.Action]) -> Iterator[Command]:
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {each.dest: each.help for each in action._choices_actions}
            for name, parser in action.choices.items():
                yield command(f"{words} {name}", parser, _one_line(texts.get(name)))


def _option(action: argparse.Action) -> Option:
    return Option(
        tuple(sorted(action.option_strings, key=len)),
        _one_line(action.help),
        _value(action),
        tuple(map(str, action.choices or ())),
    )


def _value(action: argparse.Action) -> str:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if action.nargs == 0:
        return "nothing"
    if action.choices is not None:
        return "choice"
    if metavar in FOLDER_WORDS or action.dest == "dir":
        return "folder"
    return "file" if action.type is Path or metavar in FILE_WORDS else "text"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").replace("%%", "%").split())
