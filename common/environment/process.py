"""What the kernel keeps per process and not per node: record locks and open sockets (shell).

`fcntl.lockf` never conflicts inside one process, and closing *any* descriptor of a locked file drops the lock, so two nodes
that share a process would walk over each other: `held_locks` makes them conflict first. The sockets are listed so that an
exit can shut down every one of them: a thread stuck in the kernel keeps the process's descriptors open after its death,
and the kernel goes on accepting connections for it. `PROCESS` is the one object of the daemons that is global.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Callable
from typing import NoReturn


class ProcessResources:
    """Locks and sockets of every node in this process. Only dictionary operations: safe from any thread, never blocking."""

    def __init__(self) -> None:
        # (device, inode) of each locked directory, and how to drop its lock without touching the disk.
        self.held_locks: dict[tuple[int, int], Callable[[], None]] = {}
        self.sockets: dict[socket.socket, None] = {}

    def exit(self, code: int) -> NoReturn:
        """Ends the process from any thread: peers see the end of their connections, ports and locks are free, then out."""
        for sock in list(self.sockets):
            close_socket(sock)
        for release in list(self.held_locks.values()):
            release()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        # A normal return would join threads that a hung disk never gives back.
        os._exit(code)


def close_socket(sock: socket.socket) -> None:
    """Shuts the socket down before it is closed, so that a peer or a port is released even if a duplicate lives on."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        sock.close()


PROCESS = ProcessResources()
