"""What the demo measures."""

import time
from pathlib import Path

import pytest

from tools.lab import demo


@pytest.mark.parametrize("loop", [True, False])
def test_a_disk_dies_no_later_than_anybody_can_see_it(loop: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A broker that writes at that moment logs the error before the killing call is back; the time to it is never negative.
    seen: list[float] = []
    disk = tmp_path / "disk"
    disk.mkdir()
    monkeypatch.setattr(demo, "kill_disk", lambda _path: seen.append(time.time()))
    rename = Path.rename

    def seen_renaming(path: Path, target: Path) -> None:
        seen.append(time.time())
        rename(path, target)

    monkeypatch.setattr(Path, "rename", seen_renaming)
    killed_at = demo._kill(disk, loop=loop)
    assert len(seen) == 1
    assert killed_at <= seen[0]
