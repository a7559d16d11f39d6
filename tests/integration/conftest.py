"""What integration tests ask for: loop-mounted disks, or a loud word about why they cannot be had."""

import pytest

from tests.integration.cluster import need_loop_disks


@pytest.fixture(scope="session")
def loop_disks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Loop-mounted disks can be made here. Where not, the test is skipped, and in CI it fails."""
    need_loop_disks(tmp_path_factory.mktemp("trial"))
