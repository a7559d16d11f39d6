"""Comparisons with an earlier commit: what is printed, and what happens without git's history."""

import os
from pathlib import Path

import pytest

from tests.benchmarks import baseline
from tests.benchmarks.baseline import COMMIT, baseline_cluster, comparison


def test_a_figure_stands_beside_its_goal_and_the_earlier_one() -> None:
    assert comparison("fetch", "requests/s", now=18_000.4, goal=20_000, before=9_000) == (
        f"fetch 18,000 requests/s (goal 20,000, {COMMIT} 9,000)"
    )
    assert comparison("loop", "us each", now=45, goal=None, before=None) == "loop 45 us each"


def test_without_the_history_the_comparison_is_left_out_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The source of an installed package is no repository, and a shallow clone lacks the commit."""
    # So that git finds no repository above the folder either.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", os.fspath(tmp_path))
    (tmp_path / "installed").mkdir()
    monkeypatch.setattr(baseline, "_SOURCE_ROOT", tmp_path / "installed")
    with baseline_cluster(tmp_path / "run") as cluster:
        assert cluster is None
    assert capsys.readouterr().err == f"not compared with {COMMIT}: there is no git history with it\n"
    assert not (tmp_path / "run").exists()
