"""If a requirement is missing, the commands print one line that names it and how to install it, and exit with status 1."""

import subprocess
import sys
from pathlib import Path

import pytest

from analytics import requirements
from tools.diskraft import main

ROOT = Path(__file__).resolve().parents[3]
EXPORT = ["metadata", "export", "--metadata-log-dir", "x", "--out", "y"]
REPORT = ["reports", "disk-failures", "--input", "x"]


def only_line(captured: pytest.CaptureFixture[str]) -> str:
    out, error = captured.readouterr()
    assert out == ""
    (line,) = error.splitlines()
    return str(line)


@pytest.mark.parametrize(
    ("arguments", "package"), [(EXPORT, "pyarrow"), (REPORT, "pyspark"), (["demo", "--report"], "pyarrow")]
)
def test_a_missing_package_is_named(
    arguments: list[str], package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command checks for the package before it checks anything else."""
    monkeypatch.setattr(requirements, "find_spec", lambda _name: None)
    assert main(arguments) == 1
    line = only_line(capsys)
    assert f"the package {package} is missing" in line
    assert "make analytics, or pip install '.[analytics]', in a clone" in line


def fake_java(folder: Path, script: str) -> None:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_a_missing_java_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither JAVA_HOME nor PATH has a Java."""
    monkeypatch.setattr(requirements, "find_spec", lambda _name: object())
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(REPORT) == 1
    assert "Java 17 or later is missing; install it (Debian: apt-get install openjdk-17-jre-headless)" in only_line(capsys)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", None),
        ("echo 'openjdk version \"21\" 2023-09-19' >&2", None),
        ("echo 'java version \"1.8.0_392\"' >&2", "is Java 8"),
        ("echo 'openjdk version \"11.0.2\"' >&2", "is Java 11"),
        ("exit 1", "-version fails"),
    ],
)
def test_the_java_of_java_home_is_asked_for_its_version(
    script: str, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark prefers JAVA_HOME to PATH. If that Java is too old, Spark would fail with a traceback, so its version is checked
    first."""
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    line = requirements.missing_java()
    assert line is None if told is None else line is not None and told in line


def test_java_home_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If JAVA_HOME has no Java, that is an error: Spark's launcher does not fall back to PATH."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "cannot be run" in (requirements.missing_java() or "")


def test_the_command_line_imports_neither_package() -> None:
    """`diskraft` works without the extra `analytics`, and starts quickly with it."""
    code = "import sys, tools.diskraft; print(sorted({'pyarrow', 'pyspark'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
