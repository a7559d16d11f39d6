"""Runs whole suites and compares them with what is expected: `python -m tests.interop.client_suites [SUITE ...]`.

`--rewrite` stores the outcome as what is expected from now on; the reason of a new failure has to be filled in by hand. The
exit status is 1 if a test differs, or if a suite cannot run.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.interop.client_suites import expectations
from tests.interop.client_suites.runner import NoSource, SuiteFailed
from tests.interop.client_suites.running import run_suite
from tests.interop.client_suites.suites import SUITES
from tests.interop.client_suites.suites.suite import Suite


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.client_suites")
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", choices=[[], *SUITES], help=f"of {', '.join(SUITES)}; default: all"
    )
    parser.add_argument("--rewrite", action="store_true", help="store the outcome as what is expected")
    parser.add_argument("--folder", type=Path, help="keep the logs in this folder (default: a temporary one)")
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="client-suites-"))
    ran = [_run(SUITES[name], folder / name, rewrite=arguments.rewrite) for name in arguments.suites or SUITES]
    return 0 if all(ran) else 1


def _run(suite: Suite, folder: Path, *, rewrite: bool) -> bool:
    """Returns whether the suite did as expected."""
    print(f"{suite.name}: logs in {folder}", flush=True)
    expected = expectations.load_expected(suite.name)
    try:
        outcomes = run_suite(suite, suite.tests, folder, partial(expectations.doubtful, expected))
    except NoSource as error:
        print(f"{suite.name} NOT RUN: {error}", file=sys.stderr)
        return False
    except SuiteFailed as error:
        print(f"{suite.name} FAILED: {error}", file=sys.stderr)
        return False
    if rewrite:
        expected = expectations.renewed(expected, outcomes)
        expectations.store_expected(suite.name, expected)
    differences = expectations.differences(expected, outcomes, is_whole=True)
    print(f"{suite.name}: {expectations.summary(expected, outcomes)}; {len(differences)} differ from what is expected")
    for line in differences:
        print(f"  {line}")
    return not differences


if __name__ == "__main__":
    sys.exit(main())
