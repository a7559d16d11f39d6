"""Checks for a process that halts while one of its threads hangs in the kernel, where no signal reaches it.

The kernel keeps such a process, but the port must be closed, the connections must end, and healthy directories must be
unlocked.
"""

import fcntl
import os
import socket

from tests.integration.cluster import SECONDS_MAX, is_listening, until
from tools.lab.local_cluster import LocalNode


def connected(node: LocalNode) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.files.port), timeout=SECONDS_MAX)


def assert_gone_while_stuck(node: LocalNode, client: socket.socket, *, healthy: list[str]) -> None:
    """Checks that the process logged why it halts, closed its port, ended the client's connection, and unlocked the
    healthy directories."""
    node.wait_for("node_halted")
    until(lambda: not is_listening(node.files.port), f"the port of {node.files.name} is closed")
    assert client.recv(1) == b"", "an established connection sees its end"
    for path in healthy:
        until(lambda path=path: can_lock(path), f"the lock of {path} is free")  # type: ignore[misc]


def can_lock(path: str) -> bool:
    """Whether the directory's `.lock` can be locked now. Uses the same kind of lock as the daemons and Apache Kafka."""
    descriptor = os.open(f"{path}/.lock", os.O_RDWR)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
