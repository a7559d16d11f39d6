"""Skips the tests of a module where the extra `analytics` or Java is missing; in CI nothing may be missing."""

import os

import pytest


def need(*missing: str | None) -> None:
    """At the top of a module, with what `analytics.requirements` says is missing."""
    lines = [line for line in missing if line is not None]
    if lines and os.environ.get("CI"):
        raise RuntimeError(f"CI runs every test: {'; '.join(lines)}")
    if lines:
        pytest.skip("; ".join(lines), allow_module_level=True)
