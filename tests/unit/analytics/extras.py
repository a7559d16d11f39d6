"""Skips the tests of a module if the extra `analytics` or Java is missing. In CI that is an error."""

import os

import pytest


def need(*missing: str | None) -> None:
    """Skips the calling module, or fails in CI, if a requirement is missing. Each argument is a result of
    `analytics.requirements`: a message, or None."""
    lines = [line for line in missing if line is not None]
    if lines and os.environ.get("CI"):
        raise RuntimeError(f"CI runs every test: {'; '.join(lines)}")
    if lines:
        pytest.skip("; ".join(lines), allow_module_level=True)
