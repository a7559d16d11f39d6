"""Loads the hypothesis profiles before any property test is collected, and lists tests that are slow."""

import signal

import pytest

from tests.property.profiles import register_profiles

# A test without the mark `slow` may take a quarter of this. The margin keeps fast tests off the list on a busy machine.
SLOW_SECONDS = 1.0

register_profiles()


def pytest_configure() -> None:
    """Makes Ctrl-C work for the tests and what they start, also where pytest runs in the background of a script."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the files with slow tests first, so that no process is left with a long one while the others idle."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists the tests that took long and are not marked `slow`. They do not fail: a busy machine also makes tests slow."""
    unmarked = [
        report
        for report in terminalreporter.getreports("passed")
        if report.when == "call" and report.duration > SLOW_SECONDS and "slow" not in report.keywords
    ]
    if unmarked:
        terminalreporter.section("slow, and not marked so")
        for report in sorted(unmarked, key=lambda report: report.duration, reverse=True):
            terminalreporter.line(f"{report.duration:.2f}s {report.nodeid}")
