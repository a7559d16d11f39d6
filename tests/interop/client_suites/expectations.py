"""What is expected of each test of a suite, as it is kept in `expected/<suite>.txt`, and how a run differs from it.

The file has sections with a test on each line: `[passes]`, `[skipped]`, `[security]`, `[unsteady]` and `[fails]`. Outside
`[passes]` the test is followed by ` # ` and the reason.

`[security]` holds tests that fail because Diskraft has neither TLS, nor SASL, nor ACLs. `[unsteady]` holds tests that
presume something about time or place which our cluster need not keep; both outcomes are accepted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop.client_suites.runner import Outcome

FOLDER = Path(__file__).with_name("expected")
SECTIONS = ("passes", "skipped", "security", "unsteady", "fails")
# A test that stands in one of these may fail as well as pass.
EITHER = ("unsteady",)
SAME_AS = {"security": "fails"}
SECTION_OF = {"passed": "passes", "skipped": "skipped", "failed": "fails"}
NO_REASON_YET = "give the reason"


@dataclass(frozen=True, slots=True)
class Expected:
    """The section of a test, and the reason if it is not expected to pass."""

    section: str
    reason: str = ""


def parse_expected(text: str) -> dict[str, Expected]:
    """Returns what is expected by the test's id. Raises ValueError for a line that says nothing about a test."""
    expected: dict[str, Expected] = {}
    section = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("#"):
            continue
        if line.startswith("["):
            section = line.strip("[]")
            if section not in SECTIONS:
                raise ValueError(f"{line} is no section; the sections are {', '.join(SECTIONS)}")
            continue
        test, _, reason = line.partition(" # ")
        if not section or test in expected or (section != "passes") != bool(reason):
            raise ValueError(f"{line}: a test stands once, in a section, and with its reason unless it passes")
        expected[test] = Expected(section, reason)
    return expected


def format_expected(expected: Mapping[str, Expected]) -> str:
    """The text that `parse_expected` reads."""
    lines: list[str] = []
    for section in SECTIONS:
        tests = sorted(test for test, each in expected.items() if each.section == section)
        lines += ["", f"[{section}]", *(f"{test} # {expected[test].reason}".removesuffix(" # ") for test in tests)]
    return "\n".join(lines[1:]) + "\n"


def differences(expected: Mapping[str, Expected], outcomes: Mapping[str, Outcome], *, is_whole: bool) -> list[str]:
    """Returns one line for each test that came out otherwise than expected. `is_whole`: every test should have run."""
    found = []
    for test, outcome in sorted(outcomes.items()):
        section = expected[test].section if test in expected else "none"
        if section in EITHER and outcome.outcome != "skipped":
            continue
        if SAME_AS.get(section, section) != SECTION_OF[outcome.outcome]:
            found.append(f"{test} {outcome.outcome}, but stands under {section}: {outcome.reason}".removesuffix(": "))
    if is_whole:
        found += [f"{test} did not run" for test in sorted(expected.keys() - outcomes.keys())]
    return found


def doubtful(expected: Mapping[str, Expected], outcomes: Mapping[str, Outcome]) -> tuple[str, ...]:
    """Returns the tests that failed though they should have passed."""
    passes = _section(expected, "passes")
    return tuple(sorted(test for test in passes & outcomes.keys() if outcomes[test].outcome == "failed"))


def renewed(expected: Mapping[str, Expected], outcomes: Mapping[str, Outcome]) -> dict[str, Expected]:
    """Returns what to expect after this run. Reasons stay; a test that fails for the first time waits for a person to give
    one."""
    result: dict[str, Expected] = {}
    for test, outcome in outcomes.items():
        before = expected.get(test)
        section = SECTION_OF[outcome.outcome]
        if before is not None and (
            SAME_AS.get(before.section, before.section) == section or (before.section in EITHER and section != "skipped")
        ):
            result[test] = before
        else:
            reason = {"passes": "", "skipped": outcome.reason, "fails": f"{NO_REASON_YET}: {outcome.reason}"}[section]
            result[test] = Expected(section, reason)
    return result


def summary(expected: Mapping[str, Expected], outcomes: Mapping[str, Outcome]) -> str:
    """Counts for a person, in one line. The share is of the tests that ran and need no security."""
    passed = {test for test, each in outcomes.items() if each.outcome == "passed"}
    skipped = {test for test, each in outcomes.items() if each.outcome == "skipped"}
    insecure = _section(expected, "security") & outcomes.keys()
    judged = outcomes.keys() - skipped - insecure
    share = 100 * len(passed & judged) / len(judged) if judged else 0.0
    return (
        f"{len(passed & judged)} of {len(judged)} tests passed ({share:.1f} %), {len(skipped)} skipped themselves; besides, "
        f"{len(passed & insecure)} of {len(insecure)} that need TLS, SASL or ACLs"
    )


def _section(expected: Mapping[str, Expected], name: str) -> set[str]:
    return {test for test, each in expected.items() if each.section == name}


def load_expected(suite: str) -> dict[str, Expected]:
    """Returns what is kept for the suite, nothing if there is no file yet."""
    path = FOLDER / f"{suite}.txt"
    return parse_expected(path.read_text()) if path.exists() else {}


def store_expected(suite: str, expected: Mapping[str, Expected]) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{suite}.txt").write_text(format_expected(expected))
