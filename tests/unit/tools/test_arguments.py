"""What all tools share: command lines, versions, and exit statuses."""

from importlib import metadata

import pytest

from tools import arguments
from tools.arguments import ToolParser, add_bootstrap
from tools.errors import ToolError, run_tool


def parser() -> ToolParser:
    made = ToolParser("kafka-something", "Does something.")
    add_bootstrap(made)
    made.add_argument("--topic")
    made.add_subparsers(dest="action").add_parser("act")
    return made


def test_a_good_command_line() -> None:
    """An option's value may follow after a blank or after an equals sign."""
    assert parser().parse_args(["--bootstrap-server", "h:1"]).bootstrap_server == "h:1"
    assert parser().parse_args(["--bootstrap-server=h:1", "act"]).action == "act"


@pytest.mark.parametrize("given", [[], ["--bootstrap-server", "h:1", "--top", "x"], ["--boot", "h:1"], ["act"]])
def test_a_wrong_command_line_is_status_1(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 1, as in Kafka's tools. Abbreviated options are refused, because a later option could make them
    ambiguous."""
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(given)
    assert caught.value.code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kafka-something: ")
    assert "usage: kafka-something" in captured.err


def test_help_is_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    """The help goes to stdout and says what the tool does."""
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["--help"])
    assert caught.value.code == 0
    assert "Does something." in capsys.readouterr().out


def test_the_version_is_the_packages_or_unknown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Prints the version of the installed package, or "unknown (not installed)" for a source tree that was never
    installed."""
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"diskraft {arguments.version()}\n"

    def missing(_name: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", missing)
    assert arguments.version() == "unknown (not installed)"


def test_how_a_tool_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """A tool ends with its own status, with 1 and one line for a ToolError, with 130 for Ctrl-C, or with a traceback for a
    bug."""

    def fails(error: BaseException) -> int:
        raise error

    assert run_tool(lambda: 0) == 0
    assert run_tool(lambda: 3) == 3
    assert run_tool(lambda: fails(ToolError("mend this"))) == 1
    assert capsys.readouterr().err == "mend this\n"
    assert run_tool(lambda: fails(KeyboardInterrupt())) == 130
    with pytest.raises(ZeroDivisionError):
        run_tool(lambda: fails(ZeroDivisionError()))
