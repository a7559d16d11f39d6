"""What a node advises if it cannot listen."""

import errno
import os
import socket

import pytest

from common.environment.interface import ListenFailed
from common.environment.real_network import listening_socket
from tools.node.node import listen_remedy


@pytest.mark.parametrize(
    ("host", "remedy"),
    [
        # 192.0.2.0/24 is reserved for documentation (RFC 5737).
        pytest.param("192.0.2.1", "name an address of this machine", id="another machine"),
        pytest.param("x" * 64, "correct the host, or make its name resolve to an address of this machine", id="label"),
        pytest.param("::zz", "correct the host, or make its name resolve to an address of this machine", id="address"),
    ],
)
def test_the_advice_fits_what_is_wrong_with_the_host(host: str, remedy: str) -> None:
    """Listens on such a host in earnest, because the cause comes from the system. Nothing there could be stopped."""
    with pytest.raises(ListenFailed) as failed:
        listening_socket(host, 0)
    assert listen_remedy(failed.value.__cause__) == remedy


def test_only_an_address_in_use_asks_to_stop_what_listens_there() -> None:
    """Another socket has the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ListenFailed) as failed:
        listening_socket("127.0.0.1", taken.getsockname()[1])
    assert listen_remedy(failed.value.__cause__) == "stop what listens there, or name an address that is free"


@pytest.mark.parametrize(
    ("cause", "remedy"),
    [
        (
            OSError(errno.EACCES, os.strerror(errno.EACCES)),
            "name a port above 1023, or give the node the capability CAP_NET_BIND_SERVICE",
        ),
        (
            socket.gaierror(socket.EAI_AGAIN, "try again"),
            "correct the host, or make its name resolve to an address of this machine",
        ),
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), None),
        (RuntimeError("can't start new thread"), None),
        (None, None),
    ],
)
def test_other_causes(cause: BaseException | None, remedy: str | None) -> None:
    """A port that takes a privilege, no answer of the name server, and causes that no other address would cure."""
    assert listen_remedy(cause) == remedy
