"""The demo measures no negative time, and ends with one line where the cluster does not answer."""

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tools import diskraft
from tools.errors import ToolError
from tools.kafka.admin_run import run_admin
from tools.lab import demo


@pytest.mark.parametrize("loop", [True, False])
def test_a_disk_dies_no_later_than_anybody_can_see_it(loop: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A broker may log the disk's error before the call that kills the disk returns. `killed_at` must not be later than
    # that error, or the measured time to the error would be negative.
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


def test_a_topic_that_is_not_created_in_time_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "CREATION_MS", 100)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        with pytest.raises(ToolError, match=r"Timed out waiting for .* Call: createTopics"):
            run_admin(f"{host}:{port}", demo._create_topic)


class Client:
    """A producer that takes every record at once, or none."""

    def __init__(self, is_full: bool) -> None:
        self._is_full = is_full
        self.asked = threading.Event()

    def produce(self, *_: Any, **__: Any) -> None:
        self.asked.set()
        if self._is_full:
            raise BufferError

    def poll(self, _seconds: float) -> None:
        pass


@pytest.mark.parametrize("is_full", [False, True])
def test_a_writer_stops_that_cannot_keep_up_with_its_rate(is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, client = demo.Writer("127.0.0.1:1", 10**9), Client(is_full)
    monkeypatch.setattr(writer, "_producer", client)
    with writer:
        assert client.asked.wait(60)
    assert not writer._thread.is_alive()


def test_a_folder_that_is_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The demo removes its folder in the end, with everything in it.
    precious = tmp_path / "precious"
    precious.write_text("")
    assert diskraft.main(["demo", "--plain", "--dir", str(tmp_path)]) == 1
    assert f"{tmp_path} is not empty" in capsys.readouterr().err
    assert diskraft.main(["demo", "--plain", "--dir", str(precious)]) == 1
    assert f"{precious} cannot be used: it is not a directory" in capsys.readouterr().err
    assert precious.exists()


@pytest.mark.parametrize("nonsense", [("--rate", "0"), ("--rate", "-5"), ("--before", "-1"), ("--after", "nan")])
def test_a_demo_that_would_show_nothing_is_refused(nonsense: tuple[str, str], tmp_path: Path) -> None:
    # Without records there would be no loss either, and the demo would succeed.
    folder = tmp_path / "demo"
    with pytest.raises(SystemExit) as ended:
        diskraft.main(["demo", "--plain", "--dir", str(folder), *nonsense])
    assert ended.value.code == 1
    assert not folder.exists()
