"""What all tools share: command lines, versions, and exit statuses."""

import errno
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tools import arguments, diskraft
from tools.arguments import ToolParser, add_bootstrap, int32, int64
from tools.errors import ToolError, run_tool
from tools.kafka import cluster, consumer_groups, leader_election

ROOT = Path(__file__).resolve().parents[3]


def parser() -> ToolParser:
    made = ToolParser("kafka-something", "Does something.")
    add_bootstrap(made)
    made.add_argument("--topic")
    made.add_argument("--topics")
    made.add_argument("--broker-list")
    made.add_subparsers(dest="action").add_parser("act").add_argument("--format")
    return made


def test_a_good_command_line() -> None:
    """An option's value may follow after a blank or after an equals sign."""
    assert parser().parse_args(["--bootstrap-server", "h:1"]).bootstrap_server == "h:1"
    assert parser().parse_args(["--bootstrap-server=h:1", "act"]).action == "act"


def test_options_may_be_abbreviated() -> None:
    """As in Kafka's tools, also with an equals sign, and below a subcommand."""
    found = parser().parse_args(["--boot", "h:1", "--topic=x", "--command-c", "f", "act", "--fo", "y"])
    assert (found.bootstrap_server, found.topic, found.command_config, found.format) == ("h:1", "x", "f", "y")


def test_no_argument_at_all_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka's tools print it on stderr with status 1."""
    with pytest.raises(SystemExit) as caught:
        parser().parse_args([])
    assert caught.value.code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Does something." in captured.err


def test_diskraft_alone_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """So do its groups of commands. It is an answer rather than an error."""
    for given, command in ([], "local"), (["local"], "down"), (["disks"], "move"):
        with pytest.raises(SystemExit) as caught:
            diskraft.main(given)
        assert caught.value.code == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        assert command in captured.out


@pytest.mark.parametrize("given", [["--bootstrap-server", "h:1", "--to", "x"], ["--b", "h:1", "--top", "x"], ["act"]])
def test_a_wrong_command_line_is_status_1(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The option is ambiguous or missing. The exit status is 1, as in Kafka's tools."""
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(given)
    assert caught.value.code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("kafka-something: ")
    assert "usage: kafka-something" in captured.err


@pytest.mark.parametrize("text", ["0", "-3", "nan", "inf", "soon"])
def test_a_time_is_more_than_nothing(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A disk that is to hang for no time could hang forever, and a list without a pause between its rounds loads the
    cluster."""
    for words in (["disks", "kill", "--how", "freeze", f"--seconds={text}", "/d"], ["disks", "list", f"--watch={text}"]):
        with pytest.raises(SystemExit) as caught:
            diskraft.main(words)
        assert caught.value.code == 1
        assert f"invalid seconds value: '{text}'" in capsys.readouterr().err


def test_a_number_fits_into_its_field(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is one of the command line. It would otherwise come from the encoding of a request."""
    assert (int32("-2147483648"), int32("2147483647")) == (-(2**31), 2**31 - 1)
    assert (int64("-9223372036854775808"), int64("9223372036854775807")) == (-(2**63), 2**63 - 1)
    group = ["--bootstrap-server", "127.0.0.1:1", "--reset-offsets", "--group", "g", "--topic", "t"]
    election = ["--bootstrap-server", "127.0.0.1:1", "--election-type", "preferred", "--topic", "t"]
    for main, words in (
        (cluster.main, ["unregister", "-b", "127.0.0.1:1", "--id", "2147483648"]),
        (leader_election.main, [*election, "--partition", "-2147483649"]),
        (consumer_groups.main, [*group, "--to-offset", "9223372036854775808"]),
        (consumer_groups.main, [*group, "--shift-by", "-9223372036854775809"]),
    ):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 1
        assert f"{words[-2]}: '{words[-1]}' is not a number from -" in capsys.readouterr().err


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


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_closed_pipe_is_silent(lines: int) -> None:
    """The reader has gone before the tool prints: fewer lines than the buffer holds, and more. As with Kafka's tools, the
    status is 0 and nothing is on stderr."""
    code = f"""
import sys
from tools.errors import run_tool

def main() -> int:
    sys.stdin.read()
    for number in range({lines}):
        print(number)
    return 7

sys.exit(run_tool(main))
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


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


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 100_000])
def test_a_full_disk_under_the_output_is_one_line(lines: int) -> None:
    """/dev/full takes nothing: neither what is left in the buffer at the end, nor what does not fit into it."""
    code = f"""
import sys
from tools.errors import run_tool

def main() -> int:
    for number in range({lines}):
        print(number)
    return 0

sys.exit(run_tool(main))
"""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"the output cannot be written: No space left on device\n")


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_a_help_text_that_cannot_be_written_is_an_error(option: str, unbuffered: str) -> None:
    """argparse itself ignores it. A closed pipe is not an error, as in every tool."""
    command = [sys.executable, "-m", "tools.kafka.topics", option]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, env=environment, check=False)
    assert (done.returncode, done.stderr) == (1, b"the output cannot be written: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as closed:
        done = subprocess.run(command, cwd=ROOT, stdout=closed, stderr=subprocess.PIPE, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_under_another_file_is_not_about_the_output() -> None:
    """An error that names a file is not that of stdout."""

    def fails() -> int:
        raise OSError(errno.ENOSPC, "No space left on device", "/a/file")

    with pytest.raises(OSError, match="/a/file"):
        run_tool(fails)


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_tool_without_standard_streams_works(closed: str) -> None:
    """Nothing that the tool opens gets the number of a stream that was closed."""
    code = """
import os, sys
from tools.errors import run_tool

def main() -> int:
    print("a line")
    return 5 if sys.stdin.read() == "" and os.open("/dev/null", os.O_RDONLY) > 2 else 6

sys.exit(run_tool(main))
"""
    command = ["bash", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (5, b"")


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_the_logs_of_a_tool_or_node_without_standard_streams_work(closed: str) -> None:
    """structlog and `configure_logging` take the streams when they are imported, so all entry points need them before that.
    `random-uuid` logs as a tool does, the rest of the code as a node does."""
    code = """
from tools.kafka import storage
from tools.node import server_start

status = storage.main(["random-uuid"])
server_start.configure_logging(log_format=None)
import structlog
structlog.get_logger().warning("an_event")
raise SystemExit(status + 5)
"""
    command = ["bash", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, code]
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 5, done.stderr
