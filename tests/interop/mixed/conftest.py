"""Fixtures of the mixed clusters: the release of Apache Kafka, and disks that can die."""

import pytest

from tests.integration.cluster import need_loop_disks
from tests.interop.apache_kafka import NoJars
from tests.interop.mixed.releases import BEFORE_DIRECTORY_IDS, NEWEST, OLDER, Release, find_release


@pytest.fixture(autouse=True)
def _every_daemon_lives() -> None:
    """These tests have clusters of their own, so the one that the tests beside this folder share is not needed."""


def _release(version: str, factory: pytest.TempPathFactory) -> Release:
    try:
        return find_release(version, factory.mktemp("kafka"))
    except NoJars as reason:
        pytest.skip(f"NOTHING WAS TESTED WITH APACHE KAFKA {version}: {reason}")


@pytest.fixture(scope="session")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The newest release that was tried."""
    return _release(NEWEST, tmp_path_factory)


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The last release of 3.x."""
    return _release(OLDER, tmp_path_factory)


@pytest.fixture(scope="session")
def before_directory_ids(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The last release before KIP-858."""
    return _release(BEFORE_DIRECTORY_IDS, tmp_path_factory)


@pytest.fixture(scope="session")
def loop_disks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Requires loop-mounted disks. Without them the test is skipped, or fails in CI."""
    need_loop_disks(tmp_path_factory.mktemp("trial"))
