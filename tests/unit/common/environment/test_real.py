"""Clock, timers, randomness and metrics of the real environment."""

import asyncio
import errno
import gc
import os
import socket
import threading
import time
import urllib.request
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from common.environment import metrics_server
from common.environment.interface import ListenFailed
from common.environment.metrics_server import CONNECTIONS_MAX, MetricsServer
from common.environment.process import PROCESS
from common.environment.real import RealEnvironment
from common.environment.real_network import listening_socket
from common.environment.real_timers import Timer
from common.ids import uuid_text
from common.metrics_exposition import SnapshotCollector, gauge
from common.time_units import NS_PER_MS


async def test_whoever_wakes_finds_its_deadline_passed(env: RealEnvironment) -> None:
    """uvloop's clock is cached and counts whole milliseconds. Deadlines between whole milliseconds must not fire early."""
    for i in range(100):
        deadline_ns = env.now_ns() + i * 13_337
        await env.sleep_until(deadline_ns)
        assert env.now_ns() >= deadline_ns


async def test_a_deadline_in_the_past_lets_the_loop_turn(env: RealEnvironment) -> None:
    """A task that sleeps until past deadlines in a loop must not starve the other tasks."""
    turned: list[int] = []
    asyncio.get_running_loop().call_soon(turned.append, 1)
    await env.sleep_until(0)
    assert turned == [1]


async def test_call_at_calls_once_at_the_deadline_and_can_be_cancelled(env: RealEnvironment) -> None:
    """call_at uses the same clock as sleep_until, and its callbacks run in the order of their deadlines."""
    called: list[tuple[str, bool]] = []
    start_ns = env.now_ns()
    env.call_at(start_ns + 7 * NS_PER_MS, lambda: called.append(("late", env.now_ns() >= start_ns + 7 * NS_PER_MS)))
    env.call_at(start_ns + 2 * NS_PER_MS, lambda: called.append(("early", env.now_ns() >= start_ns + 2 * NS_PER_MS)))
    cancel = env.call_at(start_ns + 3 * NS_PER_MS, lambda: called.append(("cancelled", True)))
    cancel_passed = env.call_at(start_ns, lambda: called.append(("passed", True)))
    cancel()
    cancel_passed()
    await env.sleep_until(start_ns + 12 * NS_PER_MS)
    assert called == [("early", True), ("late", True)]


class TimerOwner:
    """Keeps the timer that calls it, as a request does: a reference cycle."""

    def __init__(self, env: RealEnvironment, at_ns: int) -> None:
        self.fired = asyncio.Event()
        self.cancel = env.call_at(at_ns, self.fire)

    def fire(self) -> None:
        self.fired.set()


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_the_owner_of_an_ended_timer_leaves_no_work_for_the_garbage_collector(
    env: RealEnvironment, is_cancelled: bool
) -> None:
    """Otherwise the collector would free thousands of answered requests at once, which holds up the event loop."""
    gc.disable()
    try:
        owner = TimerOwner(env, env.now_ns() + (3_600_000 if is_cancelled else 0) * NS_PER_MS)
        if is_cancelled:
            owner.cancel()
        else:
            await owner.fired.wait()
        known = weakref.ref(owner)
        del owner
        assert known() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("delay_ms", [0, 1])
async def test_a_timer_that_has_fired_leaves_no_work_for_the_garbage_collector(env: RealEnvironment, delay_ms: int) -> None:
    """A timer whose deadline has passed already goes through call_soon, whose handles keep what they have called."""
    gc.collect()
    known = _count_timers()
    gc.disable()
    try:
        owner = TimerOwner(env, env.now_ns() + delay_ms * NS_PER_MS)
        await owner.fired.wait()
        del owner
        # The handle is still at work until the loop has turned.
        await asyncio.sleep(0)
        assert _count_timers() <= known
    finally:
        gc.enable()


def _count_timers() -> int:
    return sum(isinstance(each, Timer) for each in gc.get_objects())


async def test_timeout_at_cancels_its_body_at_the_deadline(env: RealEnvironment) -> None:
    """timeout_at raises TimeoutError at the deadline and not earlier."""
    deadline_ns = env.now_ns() + 5 * NS_PER_MS
    with pytest.raises(TimeoutError):
        async with env.timeout_at(deadline_ns):
            await asyncio.get_running_loop().create_future()
    assert env.now_ns() >= deadline_ns


async def test_timeout_at_leaves_other_ends_of_its_body_alone(env: RealEnvironment) -> None:
    """If the body returns, raises or is cancelled before the deadline, its outcome is kept and the timer is cancelled."""
    async with env.timeout_at(env.now_ns() + NS_PER_MS):
        pass
    with pytest.raises(ZeroDivisionError):
        async with env.timeout_at(env.now_ns() + NS_PER_MS):
            raise ZeroDivisionError

    async def waits() -> None:
        async with env.timeout_at(env.now_ns() + 10**10):
            await asyncio.get_running_loop().create_future()

    task = asyncio.ensure_future(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await env.sleep_until(env.now_ns() + 3 * NS_PER_MS)


async def test_a_timeout_that_has_passed_already(env: RealEnvironment) -> None:
    """If the deadline is in the past, timeout_at still cancels a body that suspends."""
    with pytest.raises(TimeoutError):
        async with env.timeout_at(0):
            await asyncio.get_running_loop().create_future()


async def test_uuids_are_random_and_never_reserved_nor_taken_for_an_option(env: RealEnvironment) -> None:
    """No uuid is drawn twice, is reserved, or has a text that starts with a dash like a command-line option."""
    made = {env.uuid() for _ in range(2000)}
    assert len(made) == 2000
    assert all(len(uuid) == 16 and int.from_bytes(uuid, "big") >= 100 for uuid in made)
    assert not [uuid for uuid in made if uuid_text(uuid).startswith("-")]


async def test_environments_draw_different_numbers(env: RealEnvironment) -> None:
    """The operating system seeds each environment, so that two nodes do not draw the same election timeouts."""
    assert env.rng.random() != RealEnvironment("other").rng.random()


async def test_the_wall_clock_is_in_milliseconds(env: RealEnvironment) -> None:
    """The time is after this test was written and before the year 2200."""
    assert 1_700_000_000_000 < env.wall_ms() < 7_258_118_400_000


def scrape(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        content: bytes = answer.read()
    return content


async def test_metrics_are_served_while_the_loop_is_busy_and_until_stopped(env: RealEnvironment) -> None:
    """A separate thread serves the metrics, so a request is answered although it blocks the event loop in this test."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    collector = SnapshotCollector(env.now_ns)
    collector.publish([gauge("kafka_log_logmanager_offlinelogdirectorycount_value", "Offline directories.", 1)])
    stop = env.serve_metrics("127.0.0.1", port, collector)
    assert b"kafka_log_logmanager_offlinelogdirectorycount_value 1.0" in scrape(port)
    with pytest.raises(ListenFailed, match=f"127.0.0.1:{port}: Address already in use"):
        env.serve_metrics("127.0.0.1", port, collector)
    stop()
    stop()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), timeout=10):
        pass


@pytest.fixture
def metrics_port(env: RealEnvironment) -> Iterator[int]:
    """Serves one metric of `env`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    collector = SnapshotCollector(env.now_ns)
    collector.publish([gauge("kafka_server_kafkaserver_brokerstate", "State of the broker.", 3)])
    stop = env.serve_metrics("127.0.0.1", port, collector)
    yield port
    stop()


def metrics_threads() -> int:
    return sum(thread.name == "metrics answer" for thread in threading.enumerate())


async def test_silent_peers_of_the_metrics_neither_pile_up_nor_keep_others_out(
    env: RealEnvironment, metrics_port: int
) -> None:
    """Each of many connections sends nothing. Only CONNECTIONS_MAX of them keep a thread, the oldest ones are closed, and a
    scrape is answered."""
    before = metrics_threads()
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", metrics_port), timeout=10))
            for _ in range(3 * CONNECTIONS_MAX)
        ]
        assert silent[0].recv(1) == b"", "it had to leave"
        assert b"kafka_server_kafkaserver_brokerstate 3.0" in scrape(metrics_port)
        assert silent[2 * CONNECTIONS_MAX - 1].recv(1) == b""
        deadline = time.monotonic() + 10
        while metrics_threads() - before > CONNECTIONS_MAX:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)


async def test_a_silent_peer_of_the_metrics_is_closed_in_the_end(env: RealEnvironment) -> None:
    """A peer that sends half a request is waited for, and then its connection is closed."""
    listening = listening_socket("127.0.0.1", 0)
    server = MetricsServer(listening, SnapshotCollector(env.now_ns), PROCESS, silence_seconds_max=0.05)
    with socket.create_connection(listening.getsockname(), timeout=10) as silent:
        silent.sendall(b"GET /metrics HTT")
        assert silent.recv(1) == b""
    server.stop()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\xff\x00\xfe\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nAccept: text/plain; version=abc\r\n\r\n",
        b"GET //[ HTTP/1.1\r\n\r\n",
        b"BREW /\xe9 HTTP/1.1\r\n\r\n",
    ],
)
async def test_rubbish_sent_to_the_metrics_is_no_failure_of_the_node(
    env: RealEnvironment, metrics_port: int, request_bytes: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed, no thread fails, and the next scrape is answered."""
    with socket.create_connection(("127.0.0.1", metrics_port), timeout=10) as peer:
        peer.sendall(request_bytes)
        while peer.recv(4096):
            pass
    assert b"kafka_server_kafkaserver_brokerstate 3.0" in scrape(metrics_port)
    assert capfd.readouterr().err == ""


async def test_a_scrape_for_which_there_is_no_thread_or_descriptor_fails_alone(
    env: RealEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process may have more of them when the next scrape comes."""

    class Listening(socket.socket):
        is_short = True

        def accept(self) -> tuple[socket.socket, Any]:
            if self.is_short:
                self.is_short = False
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().accept()

    monkeypatch.setattr(metrics_server, "_ACCEPT_PAUSE_SECONDS", 0)
    collector = SnapshotCollector(env.now_ns)
    collector.publish([gauge("kafka_server_kafkaserver_brokerstate", "State of the broker.", 3)])
    listening = Listening(fileno=listening_socket("127.0.0.1", 0).detach())
    port = listening.getsockname()[1]
    server = MetricsServer(listening, collector, PROCESS)
    start = threading.Thread.start

    def refuse_an_answer(thread: threading.Thread) -> None:
        if thread.name == "metrics answer":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse_an_answer)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as refused:
            assert refused.recv(1) == b""
    assert not listening.is_short
    assert b"kafka_server_kafkaserver_brokerstate 3.0" in scrape(port)
    server.stop()


async def test_a_host_name_that_cannot_be_and_a_missing_thread_are_refusals(
    env: RealEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are a ListenFailed, which is one line for the operator, and the port is free again."""
    collector = SnapshotCollector(env.now_ns)
    with pytest.raises(ListenFailed, match="label"):
        env.serve_metrics("a." + "b" * 64, 9404, collector)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(ListenFailed, match="can't start new thread"):
            env.serve_metrics("127.0.0.1", 0, collector)
