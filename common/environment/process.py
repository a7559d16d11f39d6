"""Resources that the kernel keeps per process and not per node: record locks and open sockets (shell).

`fcntl.lockf` never conflicts within one process, and closing *any* descriptor of a locked file drops the lock. Two nodes in
one process could therefore lock the same directory; `held_locks` makes the second node fail. `sockets` lists every socket,
so that an exit can shut them all down. Otherwise a thread stuck in the kernel would keep the descriptors of the dead process
open, and the kernel would still accept connections on them. `PROCESS` is the only global object of the daemons.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Callable
from typing import NoReturn


class ProcessResources:
    """Locks and sockets of every node in this process.

    Nodes use only single dictionary operations on the fields, which are safe from any thread and never block.
    """

    def __init__(self) -> None:
        # Maps (device, inode) of each locked directory to the function that drops its lock without touching the disk.
        self.held_locks: dict[tuple[int, int], Callable[[], None]] = {}
        # Every open socket, listening or connected. The owner that closes a socket also removes it from here.
        self.sockets: dict[socket.socket, None] = {}

    def exit(self, code: int) -> NoReturn:
        """Exits the process from any thread, after it has shut down all sockets and released all locks."""
        for sock in list(self.sockets):
            close_socket(sock)
        for release in list(self.held_locks.values()):
            release()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        # A normal exit would join threads that may never return from a hung disk.
        os._exit(code)


def close_socket(sock: socket.socket) -> None:
    """Shuts the socket down and closes it. This ends the connection and frees the port even if a duplicate descriptor stays
    open."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        sock.close()


PROCESS = ProcessResources()
