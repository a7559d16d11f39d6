"""How a daemon starts and exits. Each test runs its daemons in separate processes."""

import asyncio
import contextlib
import errno
import io
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from common.environment.entry import SAME_REQUEST_SECONDS, ShutdownSignals
from common.environment.process import ProcessResources
from tests.unit.common.environment.test_real_log_dir import lock_from_another_process

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.slow

PRELUDE = """
import asyncio, sys, threading
from common.environment.entry import SAME_REQUEST_SECONDS, ShutdownSignals, run_daemon
from common.environment.real import RealEnvironment
"""


@contextmanager
def daemon(body: str, *arguments: str, flags: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """Runs a daemon in a new process. `body` is the body of its `main(env, signals)`.

    The process is killed when the block ends.
    """
    indented = "\n".join("    " + line for line in body.strip().splitlines())
    script = f"{PRELUDE}\nasync def main(env, signals):\n{indented}\n\nrun_daemon(main, node_name='node-1')\n"
    with subprocess.Popen(
        [sys.executable, *flags, "-c", script, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=30)
    return process.returncode, output, errors


def test_the_status_of_main_is_the_status_of_the_process() -> None:
    """The main task runs on uvloop, and its output is flushed."""
    with daemon("print(type(asyncio.get_running_loop()).__module__)\nreturn 7") as process:
        status, output, errors = ended(process)
    assert (status, output, errors) == (7, "uvloop\n", "")


def test_python_without_asserts_is_refused() -> None:
    """The daemon prints one line and exits with status 1."""
    with daemon("return 0", flags=("-O",)) as process:
        status, output, errors = ended(process)
    assert (status, output) == (1, "")
    assert errors == "python -O removes the checks that these daemons rely on; start them without it\n"


@pytest.mark.parametrize(
    ("body", "event"),
    [
        ("raise RuntimeError('boom')", "daemon_failed"),
        (
            "asyncio.get_running_loop().call_soon(lambda: 1 / 0)\nawait env.sleep_until(env.now_ns() + 10**11)",
            "callback_failed",
        ),
        ("threading.Thread(target=lambda: 1 / 0).start()\nawait env.sleep_until(env.now_ns() + 10**11)", "thread_failed"),
    ],
)
def test_an_unexpected_exception_anywhere_ends_the_daemon(body: str, event: str) -> None:
    """An exception in the main task, in a callback or in a thread is logged, and the process exits with status 1."""
    with daemon(body) as process:
        status, output, _errors = ended(process)
    assert status == 1
    assert event in output
    assert "Error" in output


FAILING = """
async def fail():
    raise ValueError('the cause')

def stumble():
    # As a request does that comes in while the tasks are being cancelled.
    loop.call_soon(stumble)
    try:
        work = asyncio.sleep(0)
        group.create_task(work)
    except RuntimeError:
        work.close()
        raise

loop = asyncio.get_running_loop()
async with asyncio.TaskGroup() as group:
    group.create_task(fail())
    loop.call_soon(stumble)
    try:
        await env.sleep_until(env.now_ns() + 10**11)
    finally:
        {unwind}
"""


@pytest.mark.parametrize("unwind", ["await asyncio.sleep(0)", "await env.sleep_until(env.now_ns() + 10**11)"])
def test_the_cause_of_an_end_is_told_whatever_stumbles_over_it(unwind: str) -> None:
    """A task fails. While the other tasks are being cancelled, a callback fails too. Both failures are logged.

    If another task never finishes its cancellation, the process exits anyway.
    """
    with daemon(FAILING.format(unwind=unwind)) as process:
        status, output, _errors = ended(process)
    assert status == 1
    assert "callback_failed" in output
    if "sleep(0)" in unwind:
        assert "daemon_failed" in output
        assert "the cause" in output


class LoopOfSignals:
    """Stands for an event loop: the test sets the time and sends the signals."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handlers: dict[signal.Signals, Callable[[], None]] = {}

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    def add_signal_handler(self, number: signal.Signals, handler: Callable[..., None], *arguments: object) -> None:
        self.handlers[number] = lambda: handler(*arguments)


class ProcessThatStays:
    """Records the exit statuses instead of ending the process."""

    def __init__(self) -> None:
        self.exits: list[int] = []

    def exit(self, status: int) -> None:
        self.exits.append(status)


async def test_a_signal_that_comes_twice_within_a_moment_counts_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C in a terminal reaches the daemon from the terminal and, passed on, from its supervisor. Only a signal that
    comes after a second is the operator's second one."""
    loop, process = LoopOfSignals(), ProcessThatStays()
    signals = ShutdownSignals(cast(asyncio.AbstractEventLoop, loop), cast(ProcessResources, process))
    loop.handlers[signal.SIGTERM]()
    await signals.wait()
    loop.now += 0.9
    loop.handlers[signal.SIGTERM]()
    loop.handlers[signal.SIGINT]()
    assert process.exits == []
    assert capsys.readouterr().err == ""
    loop.now += 0.2
    loop.handlers[signal.SIGINT]()
    assert process.exits == [1]
    assert capsys.readouterr().err == "SIGINT came again before the controlled shutdown had ended; leaving at once\n"


@pytest.mark.parametrize("is_ignored", [False, True])
async def test_a_closed_terminal_asks_for_the_shutdown_too_unless_that_is_ignored(is_ignored: bool) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        loop = LoopOfSignals()
        ShutdownSignals(cast(asyncio.AbstractEventLoop, loop), cast(ProcessResources, ProcessThatStays()))
        assert (signal.SIGHUP in loop.handlers) is not is_ignored
    finally:
        signal.signal(signal.SIGHUP, previous)


async def test_a_second_signal_ends_a_daemon_whose_log_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, process = LoopOfSignals(), ProcessThatStays()
    ShutdownSignals(cast(asyncio.AbstractEventLoop, loop), cast(ProcessResources, process))

    class FullDisk(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stderr", FullDisk())
    loop.handlers[signal.SIGTERM]()
    loop.now += SAME_REQUEST_SECONDS
    loop.handlers[signal.SIGINT]()
    assert process.exits == [1]


def test_the_first_signal_asks_and_a_later_one_ends() -> None:
    """The first signal requests a controlled shutdown. A later one makes the daemon exit immediately."""
    body = "print('ready', flush=True)\nawait signals.wait()\nprint('asked to stop', flush=True)\nreturn 0"
    with daemon(body) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert ended(process)[:2] == (0, "asked to stop\n")
    body = body.replace("return 0", "await env.sleep_until(env.now_ns() + 10**11)")
    with daemon(body) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked to stop\n"
        status = None
        while status is None:
            # The first ones come within the moment in which they count as the same request.
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = process.wait(timeout=0.1)
        status, _output, errors = ended(process)
    assert status == 1
    assert errors == "SIGINT came again before the controlled shutdown had ended; leaving at once\n"


def test_a_signal_that_arrives_before_the_daemon_handles_it_asks_too() -> None:
    """The image blocks SIGTERM until the daemon does, and this test does so for its child."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        with daemon("await signals.wait()\nprint('asked to stop')\nreturn 0") as process:
            process.send_signal(signal.SIGTERM)
            assert ended(process)[:2] == (0, "asked to stop\n")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


STUCK = """
import fcntl, os
from common.environment import disk_operations

class Echo:
    def __init__(self, connection): self.connection = connection
    def data_received(self, view): self.connection.send([bytes(view)])
    def connection_lost(self, reason): pass
    def writable(self): pass

def hang(*arguments):
    os.write(1, b"stuck\\n")
    # In the kernel, where nothing but an end of the other process wakes it: a read of a FIFO nobody writes to.
    return os.read(os.open(sys.argv[2], os.O_RDONLY), 1)

log_dir = env.log_dir(sys.argv[1], operation_timeout_ns=10**11)
await log_dir.attach()
await log_dir.lock()
file = await log_dir.open("a", create=True)
listener = env.listen("127.0.0.1", 0, Echo)
print(listener.port, flush=True)
disk_operations._pwritev = hang
pending = log_dir.append(file, 0, [b"x"])
await signals.wait()
env.exit(3)
"""


def test_exit_frees_ports_connections_and_locks_with_a_stuck_thread(tmp_path: Path) -> None:
    """The exit frees the connection, the port and the lock without waiting for a thread that is stuck in a system call."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "disk").mkdir()
    with daemon(STUCK, str(tmp_path / "disk"), str(tmp_path / "fifo")) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert process.stdout.readline() == "stuck\n"
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(b"ping")
            assert client.recv(4) == b"ping"
            process.send_signal(signal.SIGTERM)
            assert client.recv(1) == b""
        assert process.wait(30) == 3
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))
    assert lock_from_another_process(tmp_path / "disk") == "free"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="from 3.14 on the old generation is collected in increments")
def test_no_garbage_collection_visits_all_that_a_start_loads() -> None:
    """A daemon makes a million objects that stay, as a broker does for thousands of partitions. Counts the objects that each
    collection visits: with too large a middle generation these are nearly all, and the event loop stands still for long."""
    body = """
import gc
visited = []
def count(phase, info):
    if phase == "start":
        visited.append(sum(len(gc.get_objects(generation=each)) for each in range(info["generation"] + 1)))
gc.callbacks.append(count)
kept = [[] for _ in range(1_200_000)]
gc.callbacks.remove(count)
print(len(visited), max(visited), len(kept))
return 0
"""
    with daemon(body) as process:
        status, output, errors = ended(process)
    assert status == 0, errors
    collections, most, _ = map(int, output.split())
    assert collections >= 10
    assert most <= 100_000
