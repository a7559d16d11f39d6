"""Coverage-guided fuzzing of every target: `python -m tests.fuzz --seconds 60 [--target NAME] [--jobs 2]`.

The seconds are divided among the targets. Each target runs in its own process, so that a hang or excessive memory only ends
that process. Measuring memory and time would slow down the fuzzing. Therefore every input that reached new code is run again
afterwards and measured. A finding is saved as a file; the run prints the command that replays it and exits with status 1.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.target import FOUND, Target, check_limits
from tests.fuzz.targets import TARGETS

FINDINGS = Path("build") / "fuzz"
# Wall-clock time, generous because the machine may be busy.
SECONDS_PER_INPUT = 20
MEMORY_MB = 1024
_EXECUTIONS = re.compile(r"number_of_executed_units: (\d+)")
_COVERAGE = re.compile(r"cov: (\d+)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one target's run. `finding` is empty if there was none."""

    name: str
    executions: int
    seconds: float
    coverage: int
    corpus: int
    finding: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the fuzzer and returns the exit status."""
    arguments = _parser().parse_args(argv)
    targets = [TARGETS[name] for name in arguments.target] or list(TARGETS.values())
    if arguments.replay is not None:
        return _replay(targets, arguments.replay)
    jobs = min(arguments.jobs, len(targets))
    seconds = max(1, round(arguments.seconds * jobs / len(targets)))
    with ThreadPoolExecutor(jobs) as threads:
        outcomes = threads.map(lambda target: _fuzz(target, seconds), targets)
        failed = [outcome for outcome in map(_report, outcomes) if outcome.finding]
    if failed:
        print(
            f"\n{len(failed)} of {len(targets)} targets failed: {', '.join(each.name for each in failed)}", file=sys.stderr
        )
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--target", action="append", default=[], choices=sorted(TARGETS), help="only this one; repeatable")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at once")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one input and show what happens")
    return parser


def _replay(targets: Sequence[Target], file: Path) -> int:
    data = file.read_bytes()
    for target in targets:
        target.check(data)
        check_limits(target, data)
        print(f"{target.name}: {len(data)} bytes pass")
    return 0


def _fuzz(target: Target, seconds: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{target.name}-") as name:
        corpus, temporary = Path(name, "corpus"), Path(name, "temporary")
        for folder in (corpus, temporary):
            folder.mkdir()
        for number, seed in enumerate([*target.seeds(), *target.found()]):
            (corpus / f"seed-{number:04}").write_bytes(seed)
        artifacts = FINDINGS / target.name
        artifacts.mkdir(parents=True, exist_ok=True)
        command = [
            *(sys.executable, "-m", "tests.fuzz.run_target", target.name),
            f"-max_total_time={seconds}",
            f"-max_len={target.size_max}",
            f"-timeout={SECONDS_PER_INPUT}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-artifact_prefix={artifacts}/",
            "-print_final_stats=1",
            str(corpus),
        ]
        try:
            run = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                timeout=seconds + 120, check=False,
                # libFuzzer exits without cleaning up. A target's temporary files are in this folder and removed with it.
                env=os.environ | {"TMPDIR": str(temporary)},
            )  # fmt: skip
            output, is_well = run.stdout, run.returncode == 0
        except subprocess.TimeoutExpired:
            output, is_well = f"{target.name} did not end", False
        finding = "" if is_well else _tail(output, target)
        return Outcome(
            target.name,
            executions=_last_number(_EXECUTIONS, output),
            seconds=seconds,
            coverage=_last_number(_COVERAGE, output),
            corpus=len(list(corpus.iterdir())),
            finding=finding or _measure(target, corpus),
        )


def _tail(output: str, target: Target) -> str:
    """Returns at most the last 60 lines of the output, starting no earlier than the first error, and the replay command."""
    starts = [output.find("Uncaught Python exception"), output.find("ERROR: libFuzzer")]
    start = min((each for each in starts if each >= 0), default=0)
    lines = output[start:].splitlines()[-60:]
    return "\n".join([*lines, f"replay: python -m tests.fuzz --target {target.name} --replay <the file named above>"])


def _last_number(pattern: re.Pattern[str], output: str) -> int:
    numbers = pattern.findall(output)
    return int(numbers[-1]) if numbers else 0


def _measure(target: Target, corpus: Path) -> str:
    """Measures memory and time of every input that reached new code."""
    for path in sorted(corpus.iterdir()):
        try:
            check_limits(target, path.read_bytes())
        except AssertionError as error:
            kept = FINDINGS / target.name / f"limit-{path.name}"
            kept.write_bytes(path.read_bytes())
            return f"{error}\n{kept}\nreplay: python -m tests.fuzz --target {target.name} --replay {kept}"
    return ""


def _report(outcome: Outcome) -> Outcome:
    print(
        f"{outcome.name:22} {outcome.executions:9} executions, {outcome.executions / outcome.seconds:7.0f} a second, "
        f"{outcome.coverage:5} branches, {outcome.corpus:5} inputs kept{', FAILED' if outcome.finding else ''}",
        flush=True,
    )
    if outcome.finding:
        print(f"{outcome.finding}\nA mended one is kept in {FOUND.relative_to(Path.cwd())}/{outcome.name}", file=sys.stderr)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
