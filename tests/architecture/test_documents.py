"""The documents keep up with the code: every event that a daemon logs is in ARCHITECTURE.md, every own key in the README."""

import ast
import re

from common.configuration.server import ServerConfig
from common.configuration.settings import keys_of
from tests.architecture.test_house_rules import DAEMON_PACKAGES, ROOT, modules

LEVELS = {"debug", "info", "warning", "error", "critical"}


def logged_events() -> set[str]:
    """First arguments of `….log.<level>("event")`, and of the controller's own ControllerEvent("event")."""
    found: set[str] = set()
    for _, tree in modules(*DAEMON_PACKAGES, "tools"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
                continue
            function = ast.unparse(node.func)
            is_log = isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS and function.split(".")[-2] == "log"
            if is_log or function == "ControllerEvent":
                found.add(str(node.args[0].value))
    return found


def test_every_event_is_in_the_table() -> None:
    """An operator who greps for an event finds what it means."""
    documented = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", (ROOT / "ARCHITECTURE.md").read_text()))
    events = logged_events()
    assert len(events) > 50
    assert sorted(events - documented) == []


def test_every_key_of_our_own_is_in_the_readme() -> None:
    """Keys without a Kafka page to look them up in."""
    readme = (ROOT / "README.md").read_text()
    own = [key for key in keys_of(ServerConfig) if key.startswith("diskraft.")]
    assert own
    assert [key for key in own if f"`{key}`" not in readme] == []
