"""Finds citations of files, sections, symbols and make targets that do not exist, in pages, comments and docstrings.

In pages it checks relative links with their anchors, and these in backticks: paths, `path::symbol`, `Class.attribute` and
`make target`. In comments and docstrings it checks paths, pages with the headings quoted after them, dotted module names,
and identifiers in backticks, which must occur somewhere in the code. Paths are relative to the root of the repository; a
path without its first folders ("core/lease") must be the end of an existing path.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = ("admin", "analytics", "broker", "common", "controller", "tests", "tools")
SUFFIXES = (".py", ".md", ".txt", ".yml", ".toml", ".json")
# Folders that builds and test runs create. They are not in the repository.
GENERATED = ("build/",)

_PACKAGE = "|".join(PACKAGES)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
_PATH = re.compile(r"\.?[A-Za-z_][\w.*-]*(?:/[\w.*-]+)*/?")
_CLASS_ATTRIBUTE = re.compile(r"([A-Z]\w+)\.([a-z_]\w*)(?:\(.*\))?")
# Does not match names in Java's camelCase: those are Kafka's.
_IDENTIFIER = re.compile(r"_?[a-z][a-z0-9]*_\w+|_?[A-Z]\w*[a-z][A-Z]\w*|[A-Z]+_\w+")
_MAKE = re.compile(r"make ([a-z][a-z-]*)\b")
_MAKE_LINE = re.compile(r"^ {4}make ([a-z][a-z-]*)\b", re.MULTILINE)
_TREE_LINE = re.compile(r"^ {4}([\w.]+(?:/[\w.]+)*) {2,}\S", re.MULTILINE)
# Comments, and strings, in which no comment begins.
_COMMENT_OR_STRING = re.compile(
    r"(?P<comment>#[^\n]*)|"
    r"""(?P<prefix>\b[a-zA-Z]{1,2})?(?P<quotes>'''|'|"{3}|")(?:\\.|(?!(?P=quotes)).)*(?P=quotes)""",
    re.DOTALL,
)
_ATTRIBUTE_OF_SELF = re.compile(r"\bself\.(\w+)")
_PAGE = re.compile(r'([\w./-]*\w\.md)\b(?:,\s+"([^"]+)")?')
_NUMBERED_SECTION = re.compile(r"\b(?:[A-Z]{4,}(?:\.md)?,? sections?|section) \d")
_PAGE_WITHOUT_SUFFIX = re.compile(r"\b(DESIGN|INVARIANTS|KIPS|ARCHITECTURE|CONTRIBUTING)\b(?!\.md)")
_PATH_IN_PROSE = re.compile(rf"(?<![\w./@<-])((?:{_PACKAGE}|core|deploy|docs)/[\w.*/-]*[\w*/])")
_MODULE_IN_PROSE = re.compile(rf"(?<![\w./@-])((?:{_PACKAGE})(?:\.[a-z_]\w*)+)(?![\w-]*[(@:])")


def headings(page: str) -> list[str]:
    """Returns the headings of a page, ignoring code blocks."""
    return _HEADING.findall(re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL))


def anchor(heading: str) -> str:
    """Returns the anchor that GitHub generates for a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@dataclass
class Repository:
    """Everything that may be cited. Paths are relative to the root, with / as the separator. Folders end in /."""

    paths: set[str]
    make_targets: set[str]
    pages: dict[str, str]
    # The top-level names of each module, by its path, and the attributes of each class, by its name.
    symbols: dict[str, set[str]] = field(default_factory=dict)
    attributes: dict[str, set[str]] = field(default_factory=dict)
    # Every name that occurs in the code, including string constants.
    names: set[str] = field(default_factory=set)
    # The keys of server.properties, which look like modules: "broker.session.timeout.ms".
    keys: set[str] = field(default_factory=set)

    def add_module(self, path: str, source: str) -> None:
        """Collects the names that a module defines and uses."""
        tree = ast.parse(source)
        lines = source.splitlines()
        self.symbols[path] = set(_defined(tree.body))
        for node in _statements(tree):
            if isinstance(node, ast.ClassDef):
                content = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                own = self.attributes.setdefault(node.name, set())
                own.update(_defined(node.body), _ATTRIBUTE_OF_SELF.findall(content), map(ast.unparse, node.bases))
        self.names.update(re.findall(r"\w+", _COMMENT_OR_STRING.sub(_without_prose, source)))
        self.names.update(path.removesuffix(".py").split("/"))

    def has_path(self, path: str) -> bool:
        """Whether a file or folder has this path, or a longer path that ends in it."""
        if path.startswith(GENERATED):
            return True
        wanted = path.rstrip("/")
        if wanted in self.paths or f"{wanted}/" in self.paths or f"{wanted}.py" in self.paths:
            return True
        pattern = re.compile(r"(?:.*/)?" + re.escape(wanted).replace(r"\*", "[^/]*") + r"(?:\.py)?/?")
        if any(wanted.startswith(f"{package}/") for package in PACKAGES):
            pattern = re.compile(re.escape(wanted).replace(r"\*", "[^/]*") + r"(?:\.py)?/?")
        return any(map(pattern.fullmatch, self.paths))

    def has_symbol(self, path: str, symbol: str) -> bool:
        """Whether the module at the path defines `name` or `Class.attribute`."""
        name, _, attribute = symbol.partition(".")
        return name in self.symbols.get(path, ()) and (not attribute or self.has_attribute(name, attribute))

    def has_attribute(self, class_name: str, attribute: str) -> bool:
        """Whether a class of this name, or one of its base classes, has the attribute."""
        own = self.attributes.get(class_name, set())
        return attribute in own or any(self.has_attribute(base, attribute) for base in own & set(self.attributes))

    def has_module(self, dotted: str) -> bool:
        """Whether this is a package, a module, or a name that one of them defines."""
        parts = dotted.split(".")
        for length in range(len(parts), 0, -1):
            path = "/".join(parts[:length])
            rest = ".".join(parts[length:])
            if f"{path}.py" in self.paths:
                return not rest or self.has_symbol(f"{path}.py", rest)
            if f"{path}/" in self.paths:
                return not rest or self.has_symbol(f"{path}/__init__.py", rest)
        return False

    def is_key(self, dotted: str) -> bool:
        return any(key == dotted or key.startswith(dotted + ".") for key in self.keys)

    def has_heading(self, page: str, heading: str) -> bool:
        return heading in headings(self.pages.get(page, ""))


def _defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                for target in targets:
                    yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))
                # The names in __slots__.
                yield from (
                    each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and type(each.value) is str
                )
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If(body=inner, orelse=other):
                yield from _defined([*inner, *other])
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)
            case _:
                pass


def _without_prose(found: re.Match[str]) -> str:
    """Returns a string that may hold names, and nothing of comments and other strings."""
    if found["comment"] is not None:
        return ""
    may_hold_names = "f" in (found["prefix"] or "").lower() or (" " not in found[0] and len(found[0]) < 200)
    return found[0] if may_hold_names else '""'


def wrong_in_page(repository: Repository, path: str, page: str) -> list[str]:
    """Returns the citations in a page whose targets do not exist, each with its line."""
    found: list[str] = []

    def report(position: int, what: str) -> None:
        found.append(f"{path}:{page.count(chr(10), 0, position) + 1} {what}")

    for link in _LINK.finditer(page):
        if not _link_leads_somewhere(repository, path, link[1]):
            report(link.start(), f"link {link[1]}")
    for span in _SPAN.finditer(page):
        wrong = _wrong_in_span(repository, path, span[1])
        if wrong:
            report(span.start(), wrong)
    for line in _MAKE_LINE.finditer(page):
        if line[1] not in repository.make_targets:
            report(line.start(), f"make {line[1]}")
    for line in _TREE_LINE.finditer(page):
        if not repository.has_path(line[1]):
            report(line.start(), line[1])
    return found


def _link_leads_somewhere(repository: Repository, page: str, target: str) -> bool:
    if "://" in target:
        return True
    path, _, wanted = target.partition("#")
    file = _joined(page, path) if path else page
    if file not in repository.paths and f"{file}/" not in repository.paths:
        return False
    return not wanted or wanted in map(anchor, headings(repository.pages.get(file, "")))


def _joined(page: str, path: str) -> str:
    parts = page.split("/")[:-1]
    for part in path.rstrip("/").split("/"):
        if part == "..":
            if not parts:
                return path
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _wrong_in_span(repository: Repository, page: str, span: str) -> str | None:
    file, separator, symbol = span.partition("::")
    if separator:
        return None if repository.has_symbol(file, symbol) else span
    target = _MAKE.match(span)
    if target:
        return None if target[1] in repository.make_targets else span
    member = _CLASS_ATTRIBUTE.fullmatch(span)
    if member:
        return None if repository.has_attribute(member[1], member[2]) else span
    # Only the part before a placeholder is checked: `tests/fuzz/found/<target>/`.
    path = span.partition("<")[0]
    if _PATH.fullmatch(path) and ("/" in path or path.endswith(SUFFIXES)):
        is_there = repository.has_path(path) or repository.has_path(_joined(page, path))
        return None if is_there else span
    return None


def wrong_in_code(repository: Repository, path: str, source: str) -> list[str]:
    """Returns the citations in a module's comments and docstrings whose targets do not exist, each with its line."""
    return [f"{path}:{line} {wrong}" for line, text in prose(source) for wrong in _wrong_in_prose(repository, text)]


def _wrong_in_prose(repository: Repository, text: str) -> Iterator[str]:
    for page in _PAGE.finditer(text):
        if page[1] not in repository.pages:
            yield page[1]
        elif page[2] and not repository.has_heading(page[1], " ".join(page[2].split())):
            yield f"{page[1]}, {page[2]}"
    for citation in (_NUMBERED_SECTION.search(text), _PAGE_WITHOUT_SUFFIX.search(text)):
        if citation:
            yield citation[0]
    for cited in _PATH_IN_PROSE.finditer(text):
        if not cited[1].endswith(".md") and not repository.has_path(cited[1]):
            yield cited[1]
    for cited in _MODULE_IN_PROSE.finditer(text):
        if not repository.is_key(cited[1]) and not repository.has_module(cited[1]):
            yield cited[1]
    for span in _SPAN.finditer(text):
        if _IDENTIFIER.fullmatch(span[1]) and span[1] not in repository.names:
            yield span[1]
        member = _CLASS_ATTRIBUTE.fullmatch(span[1])
        if member and member[1] in repository.attributes and not repository.has_attribute(member[1], member[2]):
            yield span[1]


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yields the comments and docstrings of a module with their lines. A comment of several lines is yielded as one."""
    for statement in _statements(ast.parse(source)):
        match statement:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield statement.lineno, text
            case _:
                pass
    begun, last, lines = 0, -1, [""]
    line, position = 1, 0
    for found in _COMMENT_OR_STRING.finditer(source):
        if found["comment"] is None:
            continue
        line += source.count("\n", position, found.start())
        position = found.start()
        if line != last + 1:
            yield begun, " ".join(lines)
            begun, lines = line, []
        last = line
        lines.append(found[0].lstrip("# "))
    yield begun, " ".join(lines)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the statements in a module or statement. Expressions, to which most nodes belong, are left out."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, part, ()):
            yield each
            yield from _statements(each)


def read_repository(root: Path, files: Iterable[str]) -> Repository:
    """Reads the repository at `root`. `files` are the paths of its files, relative to the root."""
    paths = set(files)
    folders = {"/".join(path.split("/")[:length]) + "/" for path in paths for length in range(1, path.count("/") + 1)}
    repository = Repository(
        paths=paths | folders,
        make_targets=set(re.findall(r"^([a-z][a-z-]*):", (root / "Makefile").read_text(), re.MULTILINE)),
        pages={path: (root / path).read_text() for path in sorted(paths) if path.endswith(".md")},
    )
    for path in sorted(paths):
        if path.endswith(".py"):
            repository.add_module(path, (root / path).read_text())
    return repository
