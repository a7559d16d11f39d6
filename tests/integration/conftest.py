"""What integration tests ask for: loop-mounted disks, or a loud word about why they cannot be had; and a clean end."""

import signal
from types import FrameType
from typing import NoReturn

import pytest

from tests.integration.cluster import need_loop_disks
from tests.integration.faults.network import need_network


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(signal.Signals(number).name)


@pytest.fixture(scope="session", autouse=True)
def _clean_up_when_told_to_end() -> None:
    """SIGTERM ends a run as Ctrl-C does: daemons, mounts and loop devices are taken away first."""
    signal.signal(signal.SIGTERM, _interrupt)


@pytest.fixture(scope="session")
def loop_disks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Loop-mounted disks can be made here. Where not, the test is skipped, and in CI it fails."""
    need_loop_disks(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="session")
def faulty_disks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same for disks whose blocks can be made to fail (FUSE)."""
    need_loop_disks(tmp_path_factory.mktemp("trial"), faulty=True)


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Network namespaces can be made and cut here. Where not, the test is skipped, and in CI it fails."""
    need_network()
