"""Every fault of the lab on a leader's disk and on a follower's disk, under load (tests/integration/faults/matrix.py)."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.faults.matrix import CASES, ROLES, Case, MatrixCluster, Seen, go_through, matrix_cluster, table

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(150)]


class Clusters:
    """The one cluster that all cases share. A case that fails leaves nothing for the next to stumble over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._current: MatrixCluster | None = None
        self._made = 0
        self.rows: list[Seen] = []

    def current(self) -> MatrixCluster:
        if self._current is None:
            self._made += 1
            self._current = self._stack.enter_context(matrix_cluster(self._folder / str(self._made)))
        return self._current

    def take_down(self, error: BaseException | None = None) -> None:
        self._current = None
        stack = self._stack.pop_all()
        stack.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)


@pytest.fixture(scope="module")
def clusters(faulty_disks: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    clusters = Clusters(tmp_path_factory.mktemp("matrix"))
    yield clusters
    print("\n" + table(clusters.rows))
    clusters.take_down()


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("case", CASES, ids=[case.name.replace(", ", "-").replace(" ", "-") for case in CASES])
def test_a_disk_fails_under_load(clusters: Clusters, case: Case, role: str) -> None:
    """The directory is offline within its bound, nothing acknowledged is lost, other directories notice nothing, and the
    way back that the README tells leads back."""
    matrix = clusters.current()
    try:
        clusters.rows.append(go_through(matrix, case, role))
    except BaseException as error:
        clusters.take_down(error)
        raise
