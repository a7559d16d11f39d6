"""The completion scripts: what they offer, tried in each shell that is installed here."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tools import diskraft
from tools.completion import COMMANDS, SCRIPTS, commands
from tools.completion_scripts import bash_script, fish_script, zsh_script

ROOT = Path(__file__).resolve().parents[3]


def words() -> list[str]:
    return [each.words for top in commands() for each in top.all()]


def test_every_installed_command_is_completed() -> None:
    """A command that is added to the package must be added to the scripts as well."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {name: target.partition(":")[0] for name, target in project["scripts"].items()} == dict(COMMANDS)


def test_the_words_and_options_of_the_commands() -> None:
    """Subcommands are found at every depth, and options with what follows them."""
    assert {"diskraft", "diskraft local up", "diskraft disks kill", "kafka-storage format"} <= set(words())
    by_words = {each.words: each for top in commands() for each in top.all()}
    kinds = {option.flags[-1]: option.value for option in by_words["kafka-dump-log"].options}
    assert (kinds["--files"], kinds["--print-data-log"], kinds["--max-bytes"]) == ("file", "nothing", "text")
    up = {option.flags[-1]: option for option in by_words["diskraft local up"].options}
    assert (up["--dir"].value, up["--brokers"].help) == ("folder", "number of brokers (default 3)")
    kill = {option.flags[-1]: option for option in by_words["diskraft disks kill"].options}
    assert "power-cut" in kill["--how"].choices
    assert by_words["diskraft disks kill"].takes_files
    assert not by_words["kafka-topics"].takes_files
    unregister = {option.flags for option in by_words["kafka-cluster unregister"].options}
    assert ("-b", "--bootstrap-server") in unregister


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_command_prints_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`diskraft completion` is one of the commands that the script completes."""
    assert diskraft.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert script == SCRIPTS[shell](commands())
    assert "diskraft completion" in script
    for name in COMMANDS:
        assert name in script


LINES = [
    ("diskraft lo", {"local"}),
    ("diskraft local up --br", {"--brokers"}),
    ("diskraft disks kill --how power", {"power-cut"}),
    ("diskraft disks kill --seconds 3 --how power", {"power-cut"}),
    ("kafka-storage format --stand", {"--standalone"}),
    ("kafka-log-dirs --schema ", {"kafka", "kip-113"}),
    ("kafka-topics --under", {"--under-replicated-partitions", "--under-min-isr-partitions"}),
    ("kafka-metadata-quorum --bootstrap-server h:1 describe --repl", {"--replication"}),
    ("diskraft local up --dir fold", {"folder"}),
    ("kafka-storage info --config fi", {"file"}),
    ("kafka-topics --topic ", set()),
]

BASH = """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
# It needs a real completion to be running.
compopt() { :; }
_diskraft_complete
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(("line", "offered"), LINES)
def test_what_bash_offers(line: str, offered: set[str], folder: Path) -> None:
    """The last word is the one at the cursor."""
    script = bash_script(commands()) + BASH
    done = subprocess.run(
        ["bash", "-c", script, "bash", *line.split(" ")], cwd=folder, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stderr == ""
    assert set(done.stdout.split()) == offered


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("line", "offered"), LINES)
def test_what_fish_offers(line: str, offered: set[str], folder: Path) -> None:
    """fish adds a slash to folders."""
    script = fish_script(commands()) + "\ncomplete -C $argv[1]\n"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script, line], cwd=folder, capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stderr == ""
    assert {each.split("\t")[0].rstrip("/") for each in done.stdout.splitlines()} == offered


def test_every_option_has_a_help_text() -> None:
    """`--help` and the completion of fish and zsh show it."""
    silent = [
        (found.words, option.flags)
        for each in commands()
        for found in each.all()
        for option in found.options
        if not option.help
    ]
    assert silent == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_reads_the_script() -> None:
    """zsh completes only in a terminal, so this checks the syntax."""
    done = subprocess.run(
        ["zsh", "-n"], input=zsh_script(commands()), capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
