"""Runs the tests of librdkafka, programs in C and C++, against the librdkafka that confluent-kafka brings along.

Only the files of the chosen tests are compiled, and stay in `build/` for the next run. A test has a name such as
`0081_admin`, and is chosen by its number. `0081/do_test_DeleteGroups` is one part of it, for those tests that end with the
first part that fails. Each runs in a process of its own, several at a time, because they mostly wait.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.metadata import files
from pathlib import Path

from tests.interop.client_suites.runner import NoSource, Outcome, Runner, SuiteFailed, run_logged
from tests.interop.downloads import alone_with
from tests.interop.our_tools import ROOT

# The version of Kafka by which the tests choose what they expect.
KAFKA_VERSION = "4.1.0"
AT_A_TIME = 3
# The tests lengthen their time limits by this factor.
PATIENCE = 4
NAME_OF_TEST = re.compile(r"_TEST_DECL\((\w+)\)")
COLOR = re.compile(r"\x1b\[\d*m")
# What a test skips itself with, and what it fails with. The name of the test goes before.
SKIPPED = r"\[{name} */[^\n]*SKIPPING TEST: (?P<reason>[^\n[]*)"
FAILED = r"### Test \"{name}[ \"][^\n]*\n(?P<reason>[^\n]*)"
# Why the program leaves out tests that need no broker, and those that librdkafka is known to fail.
LEFT_OUT = "Filtered due to"
REASON_CHARACTERS_MAX = 200
OUTCOMES = {"PASSED": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
# What the tests need beside their own file. librdkafka itself is not compiled.
COMMON = (
    "tests/test.c",
    "tests/testcpp.cpp",
    "tests/rusage.c",
    "tests/sockem.c",
    "tests/sockem_ctrl.c",
    "src/tinycthread.c",
    "src/tinycthread_extra.c",
    "src/rdlist.c",
)
COMPILERS = {".c": "gcc", ".cpp": "g++"}
COMPILE_SECONDS_MAX = 300
# In place of what ./configure would find out. The tests that read librdkafka's statistics skip themselves without RapidJSON.
CONFIG = """
#define HAVE_ATOMICS_32 1
#define HAVE_ATOMICS_32_ATOMIC 1
#define ATOMIC_OP32(OP1,OP2,PTR,VAL) __atomic_ ## OP1 ## _ ## OP2(PTR, VAL, __ATOMIC_SEQ_CST)
#define HAVE_ATOMICS_64 1
#define HAVE_ATOMICS_64_ATOMIC 1
#define ATOMIC_OP64(OP1,OP2,PTR,VAL) __atomic_ ## OP1 ## _ ## OP2(PTR, VAL, __ATOMIC_SEQ_CST)
#define ATOMIC_OP(OP1,OP2,PTR,VAL) __atomic_ ## OP1 ## _ ## OP2(PTR, VAL, __ATOMIC_SEQ_CST)
#define HAVE_REGEX 1
#define HAVE_RAND_R 1
#define HAVE_STRNDUP 1
#define HAVE_STRERROR_R 1
#define HAVE_PTHREAD_SETNAME_GNU 1
#define HAVE_GETRUSAGE 1
#define WITH_C11THREADS 1
#define WITH_SNAPPY 1
#define WITH_SOCKEM 1
#define WITH_SSL 1
#define WITH_ZLIB 1
#define WITH_ZSTD 1
#define SOLIB_EXT ".so"
#define BUILT_WITH ""
#ifdef __cplusplus
#if __has_include(<rapidjson/document.h>)
#define WITH_RAPIDJSON 1
#endif
#endif
"""


@dataclass(frozen=True, slots=True)
class LibrdkafkaRunner(Runner):
    """`scenario` is what the tests call a way to configure the brokers. `group_protocol` is that of all their consumers."""

    find_source: Callable[[], Path]
    scenario: str = "default"
    group_protocol: str = "classic"
    test_seconds_max: float = 600

    def prepare(self, home: Path) -> None:
        source = self.find_source()
        for compiler in COMPILERS.values():
            if shutil.which(compiler) is None:
                raise NoSource(f"{compiler} is missing (Debian: apt install g++)")
        (home / "source").symlink_to(source)
        _write_tools(home / "kafka" / "bin")

    def run(
        self, home: Path, tests: Sequence[str], *, bootstrap: str, folder: Path, seconds_max: float
    ) -> dict[str, Outcome]:
        # A test that runs again is given by its name.
        chosen = sorted({re.sub(r"^(\d+)_\w+", r"\1", test) for test in tests})
        library = _library()
        program = home / "test-runner"
        source = (home / "source").resolve()
        with alone_with(source):
            _build(source, {test[:4] for test in chosen}, library, program)
        # A test looks for a file in ../src.
        (folder / "src").symlink_to(source / "src")
        settings = folder / "test.conf"
        settings.write_text(f"bootstrap.servers={bootstrap}\ntest.timeout.multiplier={PATIENCE}\n")
        environment = {
            "LD_LIBRARY_PATH": str(library.parent),
            "PYTHONPATH": str(ROOT),
            "RDKAFKA_TEST_CONF": str(settings),
            "BROKERS": bootstrap,
            "KAFKA_PATH": str(home / "kafka"),
            "TEST_KAFKA_VERSION": KAFKA_VERSION,
            "TEST_SCENARIO": self.scenario,
            "TEST_CONSUMER_GROUP_PROTOCOL": self.group_protocol,
        }
        outcomes: dict[str, Outcome] = {}
        deadline = time.monotonic() + seconds_max
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for each in pool.map(partial(self._run_one, program, folder, environment, deadline), chosen):
                outcomes |= each
        return outcomes

    def _run_one(
        self, program: Path, folder: Path, environment: Mapping[str, str], deadline: float, test: str
    ) -> dict[str, Outcome]:
        """Runs the tests of one number, or one part of them. They leave files in the folder where they run."""
        number, _, part = test.partition("/")
        own = folder / test.replace("/", "-")
        own.mkdir()
        report, output = own / "report.json", own / "tests.log"
        chosen = {"TESTS": number, "TEST_REPORT": str(report), "SUBTESTS": part}
        try:
            run_logged(
                # One test at a time, none that needs no broker, none that librdkafka is known to fail.
                [str(program), "-p1", "-L", "-K"],
                cwd=own,
                environment={**environment, **chosen},
                output=output,
                seconds_max=min(self.test_seconds_max, max(0.0, deadline - time.monotonic())),
            )
        except SuiteFailed as error:
            return {test: Outcome("failed", str(error))}
        if not report.exists():
            return {test: Outcome("failed", f"the program ended early (see {output})")}
        found = read_report(report.read_text(), output.read_text(errors="replace"), number)
        return {f"{name}/{part}" if part else name: outcome for name, outcome in found.items()}


def read_report(report: str, output: str, number: str) -> dict[str, Outcome]:
    """Returns the outcomes of the tests with this number, without those that the program leaves out."""
    output = COLOR.sub("", output)
    outcomes = {}
    for name, each in json.loads(report)["tests"].items():
        if not name.startswith(f"{number}_"):
            continue
        outcome = OUTCOMES[each["state"]]
        if outcome == "passed":
            outcomes[name] = Outcome(outcome, "")
            continue
        pattern = (FAILED if outcome == "failed" else SKIPPED).format(name=name)
        said = re.search(pattern, output)
        reason = said["reason"].strip()[:REASON_CHARACTERS_MAX] if said else ""
        # A test of another scenario is skipped in silence.
        if outcome == "failed" or (reason and not reason.startswith(LEFT_OUT)):
            outcomes[name] = Outcome(outcome, reason or "it said nothing")
    return outcomes


def _library() -> Path:
    """Returns the librdkafka that confluent-kafka comes with. Raises NoSource."""
    for file in files("confluent-kafka") or ():
        if re.fullmatch(r"librdkafka-\w+\.so\.1", file.name):
            return Path(str(file.locate()))
    raise NoSource("the installed confluent-kafka comes without a librdkafka of its own")


def _build(source: Path, numbers: Iterable[str], library: Path, program: Path) -> None:
    """Compiles what is not compiled yet, and links it. The tests that are left out are replaced by nothing."""
    (source / "config.h").write_text(CONFIG)
    own = [path for number in sorted(numbers) for path in sorted((source / "tests").glob(f"{number}-*.c*"))]
    chosen = [*map(source.joinpath, COMMON), *own]
    if any(path.suffix == ".cpp" for path in own):
        chosen += sorted((source / "src-cpp").glob("*.cpp"))
    rest = source / "tests" / "left_out.c"
    declared = NAME_OF_TEST.findall((source / "tests" / "test.c").read_text())
    rest.write_text(
        "".join(f"__attribute__((weak)) int main_{name}(int n, char **a) {{ return 1; }}\n" for name in declared)
    )
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(partial(_compile, source), [*chosen, rest]))
    # The part of testcpp.cpp for tests in C++ is not linked without them.
    _command(
        ["g++", "-rdynamic", *map(str, objects), str(library), "-pthread", "-Wl,--unresolved-symbols=ignore-all"], program
    )


def _compile(source: Path, path: Path) -> Path:
    """Returns the object file. The compiler gets only the name of the file, because some tests name topics after it."""
    target = path.with_suffix(".o")
    if not target.exists():
        unfinished = path.with_suffix(".o.new")
        folders = ["-I.", f"-I{source / 'src'}", f"-I{source / 'src-cpp'}", "-include", str(source / "config.h")]
        compiler = [COMPILERS[path.suffix], "-w", "-O0", "-fPIC", *folders]
        _command([*compiler, "-c", path.name], unfinished, folder=path.parent)
        unfinished.rename(target)
    return target


def _command(command: Sequence[str], target: Path, *, folder: Path | None = None) -> None:
    """Runs a compiler in the folder. Raises SuiteFailed."""
    done = subprocess.run(
        [*command, "-o", str(target)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=COMPILE_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise SuiteFailed(f"{command[0]} cannot make {target.name}: {done.stderr[:2000]}")


def _write_tools(folder: Path) -> None:
    """Puts our tool where the tests look for that of Apache Kafka."""
    folder.mkdir(parents=True)
    tool = folder / "kafka-topics.sh"
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tools.kafka.topics "$@"\n')
    tool.chmod(0o755)
