"""Every file, section, symbol and make target that a page, a comment or a docstring cites must exist; see `citations`."""

import re
from collections.abc import Iterator
from functools import cache

import pytest

from common.configuration.server import KNOWN_WITHOUT_EFFECT, ServerConfig
from common.configuration.settings import settings_of
from tests.architecture.citations import PACKAGES, Repository, headings, read_repository, wrong_in_code, wrong_in_page
from tests.architecture.test_house_rules import ROOT

# Names in backticks that do not occur in the code: Kafka's classes, made-up examples, and a prefix of benchmark figures.
FOREIGN = frozenset(
    """
    ApiKeys ApiVersionManager KafkaApis KafkaPrincipal LogManager NetworkClient NetworkReceive RequestChannel SocketServer
    XxxRequest XxxResponse a_b snapshot_load
    """.split()
)


def repository_files() -> Iterator[str]:
    """Yields the files of the repository that may be cited, without virtual environments and build folders."""
    for path in sorted(ROOT.glob("*")):
        if path.is_file():
            yield path.name
    for folder in (*PACKAGES, "docs", "deploy", ".ci"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield str(path.relative_to(ROOT))


@cache
def repository() -> Repository:
    found = read_repository(ROOT, repository_files())
    found.names |= FOREIGN
    found.keys |= {*settings_of(ServerConfig), *KNOWN_WITHOUT_EFFECT}
    return found


@pytest.mark.slow
def test_what_pages_name_exists() -> None:
    """Checks links with their anchors, paths, `path::symbol`, `Class.attribute` and `make target` in all pages."""
    pages = repository().pages
    assert len(pages) >= 7
    assert [wrong for path, page in pages.items() for wrong in wrong_in_page(repository(), path, page)] == []


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_what_comments_name_exists(package: str) -> None:
    """Checks paths, pages with their headings, modules, and identifiers in backticks in all comments and docstrings."""
    modules = [path for path in sorted(repository().symbols) if path.startswith(f"{package}/")]
    assert modules
    found = [wrong for path in modules for wrong in wrong_in_code(repository(), path, (ROOT / path).read_text())]
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("[the map](ARCHITECTURE.md#events)", False),
        ("[the map](ARCHITECTURE.md#evens)", True),
        ("[a page](docs/DESIGNS.md)", True),
        ("[elsewhere](https://kafka.apache.org)", False),
        ("`broker/core/reconcile.py`", False),
        ("`broker/core/reconciled.py`", True),
        ("`broker/cores`", True),
        ("`reconcile.py`", False),
        ("`reconciled.py`", True),
        ("`/opt/kafka/config/server.properties`", False),
        ("`broker/core/reconcile.py::decide`", False),
        ("`broker/core/reconcile.py::decided`", True),
        ("`broker/core/reconcile.py::Action.CREATE`", False),
        ("`broker/core/reconcile.py::Action.CREATED`", True),
        ("`MetadataState.replay(record)`", False),
        ("`MetadataState.replayed`", True),
        ("`make simulate SEED=3`", False),
        ("`make simulation`", True),
        ("    make fuzzing", True),
        ("    common/recods      record batches", True),
    ],
)
def test_a_wrong_citation_in_a_page_is_found(text: str, is_wrong: bool) -> None:
    """Plants citations into a page at the root and checks which are reported."""
    assert len(wrong_in_page(repository(), "README.md", f"# Title\n\n{text}\n")) == is_wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ('docs/DESIGN.md, "Disks"', False),
        ('docs/DESIGN.md, "Disk"', True),
        ("DESIGN.md", True),
        ("docs/DESIGNS.md", True),
        ("section 6 of the page", True),
        ("ARCHITECTURE.md section", False),
        ("see DESIGN", True),
        ("the rules are in core/lease", False),
        ("the rules are in core/leases", True),
        ("common/storage/log.py", False),
        ("common/storage/logs.py", True),
        ("common.parts", False),
        ("common.parties", True),
        ("broker.session.timeout.ms", False),
        # The name is in two pieces, because otherwise this line itself would make it occur in the code.
        ("`is_connected" + "_to_nothing`", True),
        ("`written_offset`", False),
        ("`MetadataState.replay`", False),
        ("`MetadataState.replayed`", True),
    ],
)
def test_a_wrong_citation_in_code_is_found(text: str, is_wrong: bool) -> None:
    """Plants citations into a docstring, a comment and a comment of two lines, and checks which are reported."""
    split = text.replace(" ", "\n# ", 1)
    for source in (f'"""Says\n{text}."""\n', f"x = 1\n# Says {text}.\n", f"# {split}\nx = 1\n"):
        assert len(wrong_in_code(repository(), "common/planted.py", source)) == is_wrong, source


def test_headings_are_told_apart() -> None:
    """Two equal headings on a page would share an anchor, and a citation would always lead to the first."""
    for path, page in repository().pages.items():
        found = headings(page)
        assert len(set(found)) == len(found), path


def test_the_numbers_of_rules_are_counted() -> None:
    """The totals in the sentence at the top of docs/KIPS.md are right, and its rows are numbered without gaps."""
    page = repository().pages["docs/KIPS.md"]
    rows = re.findall(r"^\| (\d+)\.(\d+) \| [^|]+ \| ([^|]*) \| [^|]*\|$", page, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| \d", page, re.MULTILINE))
    sums = {
        kip: (
            sum(1 for row in rows if row[0] == kip and row[2].strip()),
            sum(1 for row in rows if row[0] == kip),
        )
        for kip in dict.fromkeys(row[0] for row in rows)
    }
    for kip, (_, count) in sums.items():
        assert [int(row[1]) for row in rows if row[0] == kip] == list(range(1, count + 1))
    parts = ", ".join(f"{done} of {count} of KIP-{kip}" for kip, (done, count) in sums.items())
    done, count = (sum(each) for each in zip(*sums.values(), strict=True))
    assert f"Of {count} rules {done} are in place: {parts}." in " ".join(page.split())


def test_every_implemented_rule_is_shown() -> None:
    """Every rule in docs/KIPS.md that names a module also names a test or a scenario."""
    page = repository().pages["docs/KIPS.md"]
    rows = re.findall(r"^\| (\d+\.\d+) \| [^|]+ \| `[^|]+` \| ([^|]*) \|$", page, re.MULTILINE)
    assert len(rows) > 100
    assert [number for number, shown in rows if "`tests/" not in shown] == []
