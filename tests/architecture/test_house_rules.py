"""House rules that import contracts cannot check: banned calls, broad exception handlers, docstrings, no async in cores.

Each test reads the syntax trees of the production modules and lists the places that break its rule.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DAEMON_PACKAGES = ("common", "controller", "broker")
# The simulator runs these packages, so they reach everything outside the process through the environment only.
SIMULATED_PACKAGES = (*DAEMON_PACKAGES, "admin")
PACKAGES = (*SIMULATED_PACKAGES, "analytics", "tools")
# The modules that may look at a request's version: request handlers, the network and protocol layers, and forwarding.
KNOW_VERSIONS = (
    "broker/controller_link/forwarding.py",
    "broker/requests/",
    "common/net/",
    "common/protocol/",
    "controller/requests.py",
)
# The only package that may access the clock, files, the network and randomness.
ENVIRONMENT = "common/environment/"

# The only allowed call of asyncio.sleep: it yields to other tasks without looking at a clock.
GIVES_WAY = "asyncio.sleep(0)"
BANNED_CALLS = {
    "asyncio.create_task": "tasks live in a TaskGroup",
    "asyncio.ensure_future": "tasks live in a TaskGroup",
    "asyncio.sleep": "use env.sleep_until",
    "asyncio.timeout": "use env.timeout_at",
    "asyncio.timeout_at": "use env.timeout_at",
    "asyncio.wait_for": "use env.timeout_at",
    "asyncio.open_connection": "use env.connect",
    "asyncio.start_server": "use env.listen",
    "datetime.now": "use env.wall_ms",
    "datetime.utcnow": "use env.wall_ms",
    "time.time": "use env.wall_ms",
    "time.time_ns": "use env.wall_ms",
    "time.monotonic": "use env.now_ns",
    "time.monotonic_ns": "use env.now_ns",
    "time.perf_counter": "use env.now_ns",
    "time.sleep": "use env.sleep_until",
    "uuid.uuid4": "use env.uuid",
    "os.urandom": "use env.rng",
    "open": "use a LogDir",
}


@cache
def _parsed(package: str) -> list[tuple[str, ast.Module]]:
    return [
        (str(path.relative_to(ROOT)), ast.parse(path.read_text(), filename=str(path)))
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


def modules(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    """Yields path and syntax tree of every module, sorted by path. The trees are cached: no test may change them."""
    for package in packages:
        yield from _parsed(package)


@cache
def walked(tree: ast.Module) -> list[ast.AST]:
    """Returns every node of a syntax tree. Each of many tests looks at all nodes, and walking takes longer than looking."""
    return list(ast.walk(tree))


def test_daemons_make_no_banned_call() -> None:
    """Daemons and the admin client get time, tasks, files and randomness only from the environment."""
    found = [
        f"{path}:{node.lineno} {name}: {BANNED_CALLS[name]}"
        for path, tree in modules(*SIMULATED_PACKAGES)
        if not path.startswith(ENVIRONMENT)
        for node in walked(tree)
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in BANNED_CALLS and ast.unparse(node) != GIVES_WAY
    ]
    assert found == []


def test_random_is_only_a_type_outside_the_environment() -> None:
    """`random.Random` may appear in signatures, but no module may call functions of `random`."""
    found = [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, tree in modules(*SIMULATED_PACKAGES)
        if not path.startswith(ENVIRONMENT)
        for node in walked(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "random"
        and node.attr != "Random"
    ]
    assert found == []


def test_no_broad_exception_handler() -> None:
    """An unexpected exception must end the daemon, so no handler may swallow it."""
    broad = {"", "Exception", "BaseException"}
    found = [
        f"{path}:{node.lineno}"
        for path, tree in modules(*PACKAGES)
        for node in walked(tree)
        if isinstance(node, ast.ExceptHandler) and (ast.unparse(node.type) if node.type else "") in broad
    ]
    assert found == []


def is_core(path: str) -> bool:
    """Whether the import contract "core" lists the module or a package that contains it."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return any(module == each or module.startswith(f"{each}.") for each in core_modules())


@cache
def core_modules() -> tuple[str, ...]:
    """Returns the modules and packages in the import contract "core", the only list of them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    [contract] = [each for each in settings["tool"]["importlinter"]["contracts"] if each["id"] == "core"]
    return tuple(contract["source_modules"])


def test_a_module_that_calls_itself_core_is_held_to_it() -> None:
    """The first line of a module docstring says "(core)" if and only if the import contract covers the module."""
    says = re.compile(r"\(core\b")
    found = {
        path: (says.search(docstring.splitlines()[0]) is not None, is_core(path))
        for path, tree in modules(*PACKAGES)
        if (docstring := ast.get_docstring(tree)) is not None
    }
    assert [path for path, (says_core, covered) in found.items() if says_core and not covered] == [], "not in the contract"
    assert [path for path, (says_core, covered) in found.items() if covered and not says_core] == [], "does not say so"
    assert sum(covered for _, covered in found.values()) > 100


def test_core_modules_are_plain_functions() -> None:
    """A core never awaits: it has no coroutine functions."""
    found = [
        f"{path}:{node.lineno}"
        for path, tree in modules(*PACKAGES)
        if is_core(path)
        for node in walked(tree)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]
    assert found == []


def test_only_handlers_look_at_the_version_of_a_request() -> None:
    """Only the codec, the connections and the handlers may use a request's version. The code that they call may not."""
    found = [
        f"{path}:{node.lineno}"
        for path, tree in modules(*PACKAGES)
        if not path.startswith(KNOW_VERSIONS)
        for node in walked(tree)
        if isinstance(node, ast.Name | ast.Attribute | ast.arg) and is_named_api_version(node)
    ]
    assert found == []


def test_handlers_compare_a_version_with_a_named_first_version() -> None:
    """A bare number would not say which feature begins with that version."""
    compared = [
        (f"{path}:{node.lineno} {ast.unparse(node)}", [ast.unparse(each) for each in (node.left, *node.comparators)])
        for path, tree in modules(*DAEMON_PACKAGES)
        if not path.startswith("common/protocol/")
        for node in walked(tree)
        if isinstance(node, ast.Compare) and any(is_named_api_version(each) for each in (node.left, *node.comparators))
    ]
    assert len(compared) >= 8
    assert [place for place, sides in compared if not any("_FIRST_VERSION" in side for side in sides)] == []


def is_named_api_version(node: ast.AST) -> bool:
    """Whether this is a variable, an attribute or an argument named api_version."""
    name = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None)
    return isinstance(name, str) and name.lstrip("_") == "api_version"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_is(package: str) -> None:
    """Every module has a docstring that says what it contains. Empty package files are exempt."""
    missing = [path for path, tree in modules(package) if tree.body and ast.get_docstring(tree) is None]
    assert missing == []


def test_daemon_modules_hold_no_mutable_state() -> None:
    """The simulator runs many nodes in one process, and a module-level list, dict or set would be shared between them.

    Upper-case names are constants by convention and are never modified.
    """
    mutable = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    found = [
        f"{path}:{node.lineno} {ast.unparse(target)}"
        for path, tree in modules(*DAEMON_PACKAGES)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, mutable)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if not ast.unparse(target).lstrip("_").isupper() and ast.unparse(target) != "__all__"
    ]
    assert found == []
