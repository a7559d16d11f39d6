"""The pages match the code: events in ARCHITECTURE.md, configuration keys in docs/configuration.md."""

import ast
import dataclasses
import re

from common.configuration import group
from common.configuration.server import DYNAMIC_KEYS, KNOWN_WITHOUT_EFFECT, ServerConfig
from common.configuration.settings import settings_of
from common.configuration.topic import TopicConfig
from tests.architecture.test_house_rules import ROOT, SIMULATED_PACKAGES, modules, walked

LEVELS = {"debug", "info", "warning", "error", "critical"}


def logged_events() -> set[str]:
    """Returns the first arguments of `….log.<level>("event")` and of the controller's ControllerEvent("event")."""
    found: set[str] = set()
    for _, tree in modules(*SIMULATED_PACKAGES, "tools"):
        for node in walked(tree):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            function = ast.unparse(node.func)
            is_log = isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS and function.split(".")[-2] == "log"
            if is_log or function == "ControllerEvent":
                found.add(str(node.args[0].value))
    return found


def troubling_events() -> set[str]:
    """Returns the events that are logged at the level of a warning or above, those of PeerWarnings included."""
    return {
        node.args[0].value
        for _, tree in modules(*SIMULATED_PACKAGES, "tools")
        for node in walked(tree)
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
        if isinstance(node.func, ast.Attribute) and node.func.attr in (LEVELS - {"debug", "info"}) | {"warn"}
        if ast.unparse(node.func).split(".")[-2] in ("log", "_log", "warnings") and isinstance(node.args[0].value, str)
    }


def documented_events() -> set[str]:
    """Returns the events in the first column of the table in ARCHITECTURE.md."""
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Events\n")[2]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {event for cell in cells for event in re.findall(r"`([a-z_]+)`", cell)}


def first_arguments() -> set[str]:
    """Returns every string that is the first argument of a call in production code. `logged_events` misses the events that
    are logged through helper functions."""
    return {
        node.args[0].value
        for _, tree in modules(*SIMULATED_PACKAGES, "tools")
        for node in walked(tree)
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
        if isinstance(node.args[0].value, str)
    }


def test_every_event_is_in_the_table() -> None:
    """An operator who greps for an event finds its meaning."""
    events = logged_events()
    assert len(events) > 50
    assert sorted(events - documented_events()) == []


def test_every_event_in_the_table_is_logged() -> None:
    """Otherwise an operator might wait for an event that nothing logs any more."""
    assert sorted(documented_events() - logged_events() - first_arguments()) == []


def test_an_operator_finds_what_to_do_about_every_warning_and_alert() -> None:
    """docs/operations.md says what to do about each event that warns and about each alert. It names no alert that is
    gone."""
    page = (ROOT / "docs" / "operations.md").read_text()
    warnings = page.partition("\n## Warnings and errors in the log\n")[2].partition("\n## ")[0]
    events = troubling_events()
    assert len(events) > 40
    assert sorted(event for event in events if f"`{event}`" not in warnings) == []
    alerts = set(re.findall(r"- alert: (\w+)", (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()))
    rows = re.findall(r"^\| (`.*?) \|", page.partition("\n## When an alert fires\n")[2].partition("\n## ")[0], re.MULTILINE)
    assert {alert for row in rows for alert in re.findall(r"`(\w+)`", row)} == alerts


def test_every_key_is_in_the_page_of_the_configuration() -> None:
    """The page lists every key with the right default. It also lists the keys that have no effect."""
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z0-9.]+)` \| ([^|]+) \|", page.partition("\n## Keys of a topic\n")[0], re.MULTILINE))
    defaults = {field.name: field.default for field in dataclasses.fields(ServerConfig)}
    for key in settings_of(ServerConfig):
        default = defaults[key.replace(".", "_")]
        assert key in rows
        if isinstance(default, int):
            assert rows[key] == str(default).lower(), key
    dynamic = page.partition("\n## Keys that can be changed while a broker runs\n")[2].partition("\n## ")[0]
    assert [key for key in DYNAMIC_KEYS if f"`{key}`" not in dynamic] == []
    for heading, keys in (("topic", settings_of(TopicConfig)), ("group", settings_of(group.GroupConfig))):
        section = page.partition(f"\n## Keys of a {heading}\n")[2].partition("\n## ")[0]
        assert [key for key in keys if f"| `{key}` |" not in section] == []
    assert [key for key in group.WITHOUT_EFFECT if f"`{key}`" not in page] == []
    assert [key for key in KNOWN_WITHOUT_EFFECT if f"`{key}`" not in page] == []
