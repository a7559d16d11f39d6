"""Fixtures that skip a test if loop-mounted disks or network namespaces cannot be created here, and cleanup on SIGTERM."""

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
    """Makes SIGTERM end a run like Ctrl-C, so that daemons, mounts and loop devices are removed first."""
    signal.signal(signal.SIGTERM, _interrupt)


@pytest.fixture(scope="session")
def loop_disks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Requires loop-mounted disks. Without them the test is skipped, or fails in CI."""
    need_loop_disks(tmp_path_factory.mktemp("trial"))


@pytest.fixture(scope="session")
def faulty_disks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Requires disks whose blocks can be made to fail (FUSE). Without them the test is skipped, or fails in CI."""
    need_loop_disks(tmp_path_factory.mktemp("trial"), faulty=True)


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Requires network namespaces. Without them the test is skipped, or fails in CI."""
    need_network()
