"""Starts and ends a daemon process: event loop, signals, garbage collector, unexpected exceptions (shell).

`run_daemon` never returns, because only `ProcessResources.exit` can end a process whose disk hangs. Any unexpected exception
ends the daemon, whether in the main task, in a callback or in a thread: a daemon that limps on gives wrong answers. Asserts
guard the codec and the replay, so `run_daemon` refuses `python -O`.
"""

import asyncio
import contextlib
import ctypes
import gc
import resource
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Final, NoReturn

import structlog
import uvloop

from common.environment.huge_pages import move_heap_to_huge_pages
from common.environment.process import PROCESS, ProcessResources
from common.environment.real import RealEnvironment

# A full collection walks all live objects, so these thresholds make it rare. The modules and the objects loaded at start
# are exempt (`freeze_loaded_objects`). The two younger generations are small, because a start makes millions of objects that
# stay: with a million in the middle generation, its collection stopped a broker for most of a second. Smaller ones cost no
# more in all, because every object is looked at once in each generation.
GC_THRESHOLDS: Final = (20_000, 2, 1_600)

# Signals that arrive this soon after the first one repeat it. A terminal sends Ctrl-C to the whole process group, and many
# supervisors pass the signal on to their child as well.
SAME_REQUEST_SECONDS: Final = 1.0

# How long the main task may take to end after one of its child tasks has failed.
_UNWINDING_SECONDS: Final = 2.0

# glibc's mallopt parameters, numbered as in malloc.h.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_MALLOC_PARAMETERS: Final = ((_M_MMAP_THRESHOLD, 32 * 1024 * 1024), (_M_TRIM_THRESHOLD, 128 * 1024 * 1024))


class ShutdownSignals:
    """Handles SIGTERM, SIGINT and, as in Kafka, SIGHUP. The first signal requests a controlled shutdown. A second one exits
    with status 1, unless it comes within SAME_REQUEST_SECONDS. A signal that is ignored, as SIGHUP under nohup, stays so."""

    def __init__(self, loop: asyncio.AbstractEventLoop, process: ProcessResources = PROCESS) -> None:
        self._process = process
        self._loop = loop
        self._requested_at = 0.0
        self._requested: asyncio.Future[None] = loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._received, number)
        # The image starts a node with SIGTERM blocked: the kernel drops a signal for which the first process of a container
        # has no handler yet, and the container would go on until it is killed. One that came meanwhile arrives now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})

    async def wait(self) -> None:
        """Returns when the first signal arrives."""
        await asyncio.shield(self._requested)

    def _received(self, number: signal.Signals) -> None:
        if not self._requested.done():
            self._requested_at = self._loop.time()
            self._requested.set_result(None)
            return
        if self._loop.time() - self._requested_at < SAME_REQUEST_SECONDS:
            return
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{number.name} came again before the controlled shutdown had ended; leaving at once\n")
        self._process.exit(1)


Main = Callable[[RealEnvironment, ShutdownSignals], Coroutine[Any, Any, int]]


def run_daemon(main: Main, *, node_name: str) -> NoReturn:
    """Runs `main(env, shutdown_signals)` on a new uvloop and exits with the status that it returns.

    The caller configures logging first. An exception raised by `main` is logged and ends the process with status 1.
    """
    if not __debug__:
        sys.stderr.write("python -O removes the checks that these daemons rely on; start them without it\n")
        PROCESS.exit(1)
    _raise_descriptor_limit()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.collect()
    gc.freeze()
    _keep_freed_memory()
    move_heap_to_huge_pages()
    threading.excepthook = _thread_failed
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(main, node_name))
    PROCESS.exit(1)


def freeze_loaded_objects() -> None:
    """Exempts all live objects from garbage collection. Call it once, after loading the metadata and the logs.

    Does not collect first: that would stop the event loop for as long as it takes to visit each object, and a start
    produces hardly any garbage."""
    gc.freeze()


class _LastWord:
    """Frees ports and locks, then exits the process, when the `with` block ends, even if it ends with an exception.

    The event loop is still running then: closing it would cancel and await the remaining tasks, which may hang.
    """

    def __init__(self) -> None:
        self.status = 1

    def __enter__(self) -> "_LastWord":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> NoReturn:
        if error is not None:
            _log_failure("daemon_failed", error)
        PROCESS.exit(self.status)


async def _run(main: Main, node_name: str) -> None:
    loop = asyncio.get_running_loop()
    main_task = asyncio.current_task()
    assert main_task is not None
    loop.set_exception_handler(partial(_callback_failed, main_task))
    with _LastWord() as last_word:
        last_word.status = await main(RealEnvironment(node_name), ShutdownSignals(loop))


def _callback_failed(main_task: asyncio.Task[None], loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    _log_failure("callback_failed", context.get("exception"), reason=context.get("message"))
    if not main_task.cancelling():
        PROCESS.exit(1)
    # A task has already failed and the others are being cancelled. A request that arrives now fails, because the TaskGroup
    # is closed. Exiting now would hide the first failure, which the main task is about to log.
    loop.call_later(_UNWINDING_SECONDS, PROCESS.exit, 1)


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    thread = failure.thread.name if failure.thread is not None else ""
    _log_failure("thread_failed", failure.exc_value, thread=thread)
    PROCESS.exit(1)


def _log_failure(event: str, error: BaseException | None, **fields: object) -> None:
    structlog.get_logger().critical(event, exc_info=error, **fields)


def _keep_freed_memory() -> None:
    """Makes glibc's malloc keep freed memory. Other C libraries keep their defaults.

    Every large request allocates and frees megabyte buffers. If malloc returned them to the kernel each time, the kernel
    would zero the pages again for the next request, which costs a quarter of a produce request's CPU time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC_PARAMETERS:
            mallopt(parameter, value)


def _raise_descriptor_limit() -> None:
    # Segments, indexes and connections soon need more than the usual 1,024.
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
