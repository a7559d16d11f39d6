"""The test suites of other projects against clusters of ours, compared with what is expected of each test.

`make client-suites` runs them whole. Here runs what CI has time for.
"""

import json
import warnings
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import pytest

from common.net.api_versions import advertised_versions
from common.protocol.registry import APIS
from tests.interop.client_suites.expectations import (
    Expected,
    differences,
    doubtful,
    format_expected,
    load_expected,
    parse_expected,
    renewed,
    summary,
)
from tests.interop.client_suites.go_runner import GoRunner, read_events
from tests.interop.client_suites.librdkafka_runner import read_report
from tests.interop.client_suites.pytest_runner import KAFKA_VERSION
from tests.interop.client_suites.runner import NoSource, Outcome, SuiteFailed
from tests.interop.client_suites.running import run_suite
from tests.interop.client_suites.suites import SUITES

with warnings.catch_warnings():
    # kafka-python loads its schemas with a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.broker_version_data import BROKER_API_VERSIONS, infer_broker_version_from_api_versions


def test_what_diskraft_serves_reaches_as_far_as_in_the_kafka_that_the_suites_take_it_for() -> None:
    """A client that has concluded which Kafka this is, or was told so, asks no more which versions there are."""
    kafka = tuple(map(int, KAFKA_VERSION.split(".")[:2]))
    served = {int(key): (versions.first, versions.last) for key, versions in advertised_versions(APIS).items()}
    assert infer_broker_version_from_api_versions(served) == kafka
    short = {
        key: (served[key], theirs)
        for key, theirs in BROKER_API_VERSIONS[kafka].items()
        if key in served and not served[key][0] <= theirs[0] <= theirs[1] <= served[key][1]
    }
    assert short == {}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", [name for name, suite in SUITES.items() if suite.in_ci])
def test_a_clients_own_suite_comes_out_as_expected(name: str, tmp_path: Path) -> None:
    suite, expected = SUITES[name], load_expected(name)
    try:
        outcomes = run_suite(suite, suite.in_ci, tmp_path, partial(doubtful, expected))
    except NoSource as error:
        pytest.skip(f"the suite of {name} DID NOT RUN: {error}")
    print(f"{name}: {summary(expected, outcomes)}")
    assert differences(expected, outcomes, is_whole=suite.in_ci == suite.tests) == []


EXPECTED = """
[passes]
a
b

[skipped]
c # of another time

[security]
s # needs TLS

[unsteady]
u # depends on time

[fails]
e # the suite presumes one broker
"""
AS_EXPECTED = {
    "a": Outcome("passed", ""),
    "b": Outcome("passed", ""),
    "c": Outcome("skipped", "of another time"),
    "s": Outcome("failed", "no such port"),
    "u": Outcome("passed", ""),
    "e": Outcome("failed", "3 != 1"),
}


@pytest.mark.parametrize(
    ("test", "outcome", "found"),
    [
        ("a", Outcome("failed", "boom"), ["a failed, but stands under passes: boom"]),
        ("a", Outcome("skipped", "no"), ["a skipped, but stands under passes: no"]),
        ("c", Outcome("passed", ""), ["c passed, but stands under skipped"]),
        ("s", Outcome("passed", ""), ["s passed, but stands under security"]),
        ("u", Outcome("failed", "late"), []),
        ("u", Outcome("skipped", "no"), ["u skipped, but stands under unsteady: no"]),
        ("e", Outcome("passed", ""), ["e passed, but stands under fails"]),
        ("f", Outcome("passed", ""), ["f passed, but stands under none"]),
    ],
)
def test_every_difference_is_found(test: str, outcome: Outcome, found: list[str]) -> None:
    expected = parse_expected(EXPECTED)
    assert differences(expected, AS_EXPECTED, is_whole=True) == []
    assert differences(expected, AS_EXPECTED | {test: outcome}, is_whole=True) == found


def test_only_what_should_have_passed_runs_again() -> None:
    outcomes = {test: Outcome("failed", "late") for test in AS_EXPECTED} | {"b": Outcome("skipped", "no")}
    assert doubtful(parse_expected(EXPECTED), outcomes) == ("a",)


def test_a_test_that_did_not_run_is_a_difference_of_a_whole_run() -> None:
    expected = parse_expected(EXPECTED)
    outcomes = {test: outcome for test, outcome in AS_EXPECTED.items() if test != "b"}
    assert differences(expected, outcomes, is_whole=True) == ["b did not run"]
    assert differences(expected, outcomes, is_whole=False) == []


def test_reasons_outlive_a_renewal() -> None:
    """What is new waits for its reason, what passes loses it, and what is read back is what was written."""
    expected = parse_expected(EXPECTED)
    assert renewed(expected, AS_EXPECTED) == expected
    assert parse_expected(format_expected(expected)) == expected
    changed = AS_EXPECTED | {"a": Outcome("failed", "boom"), "e": Outcome("passed", "")}
    again = renewed(expected, changed)
    assert again["a"] == Expected("fails", "give the reason: boom")
    assert again["e"] == Expected("passes")
    assert again["u"] == expected["u"]


@pytest.mark.parametrize("text", ["a", "[passes]\na # why", "[fails]\na", "[unheard of]", "[passes]\na\na"])
def test_a_file_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"section|reason"):
        parse_expected(text)


class _Panics(GoRunner):
    """Its first test ends the process."""

    def _run_process(
        self, home: Path, names: Iterable[str], told: Mapping[str, str], events: Path, seconds_max: float
    ) -> None:
        first, *others = sorted(names)
        ended = [("fail", first)] if first == "TestPanic" else [("pass", name) for name in (first, *others)]
        events.write_text("".join(json.dumps({"Action": action, "Test": name}) + "\n" for action, name in ended))


def test_after_a_panic_the_other_tests_run_in_a_new_process(tmp_path: Path) -> None:
    tests = ("TestZero", "TestPanic", "TestRest/within")
    outcomes = _Panics("example.org/none").run(tmp_path, tests, bootstrap="", folder=tmp_path, seconds_max=1)
    assert {test: each.outcome for test, each in outcomes.items()} == {
        "TestPanic": "failed",
        "TestRest": "passed",
        "TestZero": "passed",
    }


class _Nothing(GoRunner):
    """It ends before any test has."""

    def _run_process(
        self, home: Path, names: Iterable[str], told: Mapping[str, str], events: Path, seconds_max: float
    ) -> None:
        events.touch()


def test_tests_that_never_end_are_no_outcome(tmp_path: Path) -> None:
    with pytest.raises(SuiteFailed, match="TestA did not run"):
        _Nothing("example.org/none").run(tmp_path, ("TestA",), bootstrap="", folder=tmp_path, seconds_max=1)


def test_what_gos_tool_says_of_the_tests() -> None:
    events = [
        {"Action": "run", "Test": "TestA"},
        {"Action": "output", "Test": "TestA/b", "Output": "    group_test.go:46: a record came twice\n"},
        {"Action": "output", "Test": "TestA/b", "Output": "    --- FAIL: TestA/b (0.00s)\n"},
        {"Action": "fail", "Test": "TestA/b"},
        {"Action": "fail", "Test": "TestA"},
        {"Action": "pass", "Test": "TestC"},
        {"Action": "output", "Test": "TestD", "Output": "    share_test.go:7: no share groups\n"},
        {"Action": "skip", "Test": "TestD"},
        {"Action": "fail"},
    ]
    assert read_events(map(json.dumps, events)) == {
        "TestA/b": Outcome("failed", "a record came twice"),
        "TestA": Outcome("failed", "it said nothing"),
        "TestC": Outcome("passed", ""),
        "TestD": Outcome("skipped", "no share groups"),
    }


def test_what_librdkafkas_program_says_of_the_tests() -> None:
    states = {
        "<MAIN>": "PASSED",
        "0044_partition_cnt": "PASSED",
        "0045_update": "FAILED",
        "0045_update_mock": "SKIPPED",
        "0045_update_many": "SKIPPED",
        "0045_update_removed": "SKIPPED",
        "0045_update_twice": "PASSED",
        "0045_update_late": "FAILED",
    }
    output = (
        "[0045_update_mock  /  0.000s] WARN: SKIPPING TEST: Filtered due to negative test flags\n"
        "[0045_update_many  /  0.000s] \x1b[33mWARN: SKIPPING TEST: needs RapidJSON\x1b[0m\n"
        '\x1b[31m### Test "0045_update_late (part:7)" failed at a.c:9:part() at Mon: ###\ntoo late\x1b[0m\n'
        '### Test "0045_update" failed at a.c:8:main() at Mon: ###\nno assignment\n'
        '### Test "0045_update" failed at a.c:9:main() at Mon: ###\nno revocation\n'
    )
    report = json.dumps({"tests": {test: {"state": state} for test, state in states.items()}})
    assert read_report(report, output, "0045") == {
        "0045_update": Outcome("failed", "no assignment"),
        "0045_update_many": Outcome("skipped", "needs RapidJSON"),
        "0045_update_twice": Outcome("passed", ""),
        "0045_update_late": Outcome("failed", "too late"),
    }
