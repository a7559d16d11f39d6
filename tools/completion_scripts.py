"""Completion scripts for bash, zsh and fish, generated from the commands (core).

All three work in the same way: the words up to the cursor that are subcommands give the command, and the command gives the
options and subcommands that may follow. After an option that takes a value, the values or paths are offered instead. None of
them runs Diskraft, so pressing Tab takes no time.
"""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from tools.command_words import Command, Option


def bash_script(commands: Sequence[Command]) -> str:
    """Returns a script for `source <(diskraft completion bash)`."""
    lines = [
        "# Completion for bash. Load it with: source <(diskraft completion bash)",
        "_diskraft_complete() {",
        "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} where=${COMP_WORDS[0]##*/} index",
        "  for ((index = 1; index < COMP_CWORD; index++)); do",
        '    case "$where ${COMP_WORDS[index]}" in',
        f'      {_alternatives(_subcommand_words(commands))}) where="$where ${{COMP_WORDS[index]}}" ;;',
        "    esac",
        "  done",
        "  COMPREPLY=()",
        '  case "$where $previous" in',
    ]
    for command, option in _valued_options(commands):
        lines.append(f"    {_alternatives(f'{command.words} {flag}' for flag in option.flags)})")
        lines.append(f"      {_bash_values(option)}")
        lines.append("      return ;;")
    lines += ["  esac", '  case "$where" in']
    for command in _all(commands):
        words = " ".join([*(each.words.rpartition(" ")[2] for each in command.subcommands), *_flags(command)])
        lines.append(f"    {shlex.quote(command.words)})")
        lines.append(f'      COMPREPLY=($(compgen -W {shlex.quote(words)} -- "$current"))')
        if command.takes_files:
            lines.append('      [[ $current == -* ]] || { compopt -o filenames; COMPREPLY+=($(compgen -f -- "$current")); }')
        lines.append("      ;;")
    names = " ".join(command.words for command in commands)
    return "\n".join([*lines, "  esac", "}", f"complete -F _diskraft_complete {names}", ""])


def zsh_script(commands: Sequence[Command]) -> str:
    """Returns a script for `source <(diskraft completion zsh)`, or for a file `_diskraft` in a folder of fpath."""
    names = " ".join(command.words for command in commands)
    lines = [
        f"#compdef {names}",
        "# Completion for zsh. Load it after compinit with: source <(diskraft completion zsh)",
        "_diskraft() {",
        "  local where=${words[1]:t} previous=${words[CURRENT-1]} index",
        "  local -a subcommands options",
        "  for ((index = 2; index < CURRENT; index++)); do",
        '    case "$where ${words[index]}" in',
        f'      {_alternatives(_subcommand_words(commands))}) where="$where ${{words[index]}}" ;;',
        "    esac",
        "  done",
        '  case "$where $previous" in',
    ]
    for command, option in _valued_options(commands):
        lines.append(f"    {_alternatives(f'{command.words} {flag}' for flag in option.flags)})")
        lines.append(f"      {_zsh_values(option)}")
        lines.append("      return ;;")
    lines += ["  esac", '  case "$where" in']
    for command in _all(commands):
        lines.append(f"    {shlex.quote(command.words)})")
        subcommands = [_zsh_entry(each.words.rpartition(" ")[2], each.help) for each in command.subcommands]
        options = [_zsh_entry(flag, option.help) for option in command.options for flag in option.flags]
        for name, entries in ("subcommands", subcommands), ("options", options):
            lines += [f"      {name}=(", *(f"        {shlex.quote(entry)}" for entry in entries), "      )"]
        if command.takes_files:
            lines.append("      [[ $PREFIX == -* ]] || _files")
        lines.append("      ;;")
    lines += [
        "  esac",
        "  _describe 'command' subcommands",
        "  _describe -o 'option' options",
        "}",
        'if [[ $funcstack[1] == _diskraft ]]; then _diskraft "$@"; else compdef _diskraft ' + names + "; fi",
        "",
    ]
    return "\n".join(lines)


def fish_script(commands: Sequence[Command]) -> str:
    """Returns a script for `diskraft completion fish | source`, or for a file in ~/.config/fish/completions."""
    lines = [
        "# Completion for fish. Load it with: diskraft completion fish | source",
        "function __diskraft_where",
        "  set -l tokens (commandline -opc)",
        "  set -l where (basename -- $tokens[1])",
        "  for token in $tokens[2..-1]",
        '    switch "$where $token"',
        f"      case {' '.join(map(shlex.quote, _subcommand_words(commands)))}",
        '        set where "$where $token"',
        "    end",
        "  end",
        "  echo $where",
        "end",
    ]
    for command in _all(commands):
        start = f"complete -c {command.words.split(' ')[0]} -n {shlex.quote(_fish_condition(command))}"
        if not command.takes_files:
            lines.append(f"{start} -f")
        lines += (
            f"{start} -f -a {each.words.rpartition(' ')[2]} -d {_fish_quoted(each.help)}" for each in command.subcommands
        )
        for option in command.options:
            flags = " ".join(f"{_fish_flag(flag)} {flag.lstrip('-')}" for flag in option.flags)
            lines.append(f"{start} {flags}{_fish_values(option)} -d {_fish_quoted(option.help)}")
    return "\n".join([*lines, ""])


# --- all shells ------------------------------------------------------------------------------------------------------


def _all(commands: Iterable[Command]) -> Iterator[Command]:
    for command in commands:
        yield from command.all()


def _subcommand_words(commands: Iterable[Command]) -> list[str]:
    return [each.words for each in _all(commands) if " " in each.words]


def _valued_options(commands: Iterable[Command]) -> Iterator[tuple[Command, Option]]:
    for command in _all(commands):
        for option in command.options:
            if option.value != "nothing":
                yield command, option


def _flags(command: Command) -> list[str]:
    # The short forms save typing only for those who know them.
    return [option.flags[-1] for option in command.options]


def _alternatives(words: Iterable[str]) -> str:
    return "|".join(map(shlex.quote, words))


# --- each shell ------------------------------------------------------------------------------------------------------


def _bash_values(option: Option) -> str:
    match option.value:
        case "choice":
            return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(option.choices))} -- "$current"))'
        case "file":
            return 'compopt -o filenames; COMPREPLY=($(compgen -f -- "$current"))'
        case "folder":
            return 'compopt -o filenames; COMPREPLY=($(compgen -d -- "$current"))'
        case _:
            return ": # Only the user knows it."


def _zsh_values(option: Option) -> str:
    match option.value:
        case "choice":
            return f"compadd -- {' '.join(map(shlex.quote, option.choices))}"
        case "file":
            return "_files"
        case "folder":
            return "_files -/"
        case _:
            return f"_message {shlex.quote(option.help or option.flags[-1])}"


def _zsh_entry(word: str, text: str) -> str:
    return f"{word}:{text}" if text else word


def _fish_condition(command: Command) -> str:
    return f'test (__diskraft_where) = "{command.words}"'


def _fish_flag(flag: str) -> str:
    if flag.startswith("--"):
        return "-l"
    # An option such as -hr has one dash and several letters.
    return "-s" if len(flag) == 2 else "-o"


def _fish_values(option: Option) -> str:
    match option.value:
        case "nothing":
            return ""
        case "choice":
            return f" -x -a {_fish_quoted(' '.join(option.choices))}"
        case "file":
            return " -r -F"
        case "folder":
            return " -x -a '(__fish_complete_directories)'"
        case _:
            return " -x"


def _fish_quoted(text: str) -> str:
    # In single quotes, fish knows only these two escapes.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
