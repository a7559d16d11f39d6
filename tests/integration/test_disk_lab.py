"""The disk lab on the kernel's own loop devices: disks are made, die with everything open on them, come back and go."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.loop_disks import loop_devices_under, mounts_under, unmount_lazily
from tools.disk_lab import Disk, kill_disk, make_disk, remove_disk, replace_disk, revive_disk, why_no_loop_disks
from tools.diskraft import main
from tools.errors import ToolError

pytestmark = [pytest.mark.root, pytest.mark.slow]

EIO = rf"\[Errno {errno.EIO}\]"


@pytest.fixture
def lab(loop_disks: None, tmp_path: Path) -> Iterator[Path]:
    """A folder for disks. Whatever a test left, neither mount nor loop device stays behind."""
    yield tmp_path
    for point in mounts_under(tmp_path):
        unmount_lazily(point)
    for image in sorted(tmp_path.rglob("*.img")):
        image.unlink()
    assert mounts_under(tmp_path) == []
    assert loop_devices_under(tmp_path) == []


def file_system_at(path: Path) -> str:
    lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [kind for _device, point, kind, *_ in lines if point == str(path)][-1]


def test_a_disk_is_made_and_removed_without_a_trace(lab: Path) -> None:
    """A file system of its own, of the size that was asked for, below folders that did not exist."""
    path = lab / "new" / "disk-1"
    disk = make_disk(path, size_mib=16)
    assert disk.is_mounted
    assert file_system_at(path) == "ext4"
    assert path.stat().st_dev != lab.stat().st_dev
    assert disk.image.stat().st_size == 16 * 1024 * 1024
    assert loop_devices_under(lab) == [str(disk.image)]
    remove_disk(path)
    assert not path.exists()
    assert not disk.image.exists()
    assert loop_devices_under(lab) == []


def test_what_is_there_already_is_not_hidden(lab: Path) -> None:
    """A second disk at the same place, and a folder with files in it, are refused; an empty folder is taken."""
    (lab / "empty").mkdir()
    make_disk(lab / "empty", size_mib=16)
    with pytest.raises(ToolError, match="is a disk already"):
        make_disk(lab / "empty", size_mib=16)
    (lab / "full").mkdir()
    (lab / "full" / "letters").write_text("dear")
    with pytest.raises(ToolError, match="is not empty"):
        make_disk(lab / "full", size_mib=16)
    assert not Disk(lab / "full").exists
    with pytest.raises(ToolError, match="letters"):
        make_disk(lab / "full" / "letters", size_mib=16)


@pytest.mark.parametrize(("size_mib", "file_system", "text"), [(0, "ext4", "mkfs.ext4"), (16, "ntfs", "ntfs is not known")])
def test_a_disk_that_cannot_be_made_leaves_nothing(lab: Path, size_mib: int, file_system: str, text: str) -> None:
    """One line that says why, and no half of a disk."""
    with pytest.raises(ToolError, match=text) as caught:
        make_disk(lab / "disk", size_mib=size_mib, file_system=file_system)
    assert "\n" not in str(caught.value)
    assert list(lab.iterdir()) == []


def test_killing_a_disk_fails_everything_that_is_open_on_it(lab: Path) -> None:
    """From the return on: writes, syncs and new files end with EIO, while listing still succeeds and proves nothing."""
    path = lab / "disk"
    make_disk(path, size_mib=16)
    with (path / "file").open("wb", buffering=0) as file:
        file.write(b"before")
        os.fsync(file.fileno())
        kill_disk(path)
        with pytest.raises(OSError, match=EIO):
            file.write(b"after")
        with pytest.raises(OSError, match=EIO):
            os.fsync(file.fileno())
    with pytest.raises(OSError, match=EIO):
        (path / "new").touch()
    assert "file" in os.listdir(path)


def test_a_dead_disk_comes_back_with_what_was_synced(lab: Path) -> None:
    """The kill is a power cut: the journal is replayed, and what was only in memory is lost."""
    path = lab / "disk"
    make_disk(path, size_mib=16)
    with (path / "synced").open("wb") as file:
        file.write(b"kept")
        file.flush()
        os.fsync(file.fileno())
    (path / "unsynced").write_bytes(b"lost")
    kill_disk(path)
    revive_disk(path)
    assert (path / "synced").read_bytes() == b"kept"
    assert not (path / "unsynced").exists() or (path / "unsynced").read_bytes() == b""
    (path / "new").write_text("alive")


def test_a_disk_in_use_is_neither_revived_nor_removed(lab: Path) -> None:
    """Somebody still holds a file: one line that says what to do; afterwards it works."""
    path = lab / "disk"
    make_disk(path, size_mib=16)
    with (path / "file").open("wb"):
        kill_disk(path)
        for act in (revive_disk, replace_disk, remove_disk):
            with pytest.raises(ToolError, match="stop the broker that uses it"):
                act(path)
    revive_disk(path)
    assert Disk(path).is_mounted


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
def test_a_replaced_disk_is_empty_and_of_the_same_kind(lab: Path, file_system: str) -> None:
    """Same size, same file system, also where the path has a blank in it; nothing of the old content."""
    if shutil.which(f"mkfs.{file_system}", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        pytest.skip(f"mkfs.{file_system} is not installed, this was NOT tested")
    path = lab / "my disk"
    # The smallest that both file systems take.
    made = make_disk(path, size_mib=320, file_system=file_system)
    (path / "meta.properties").write_text("version=1\n")
    kill_disk(path)
    replace_disk(path)
    assert sorted(os.listdir(path)) == (["lost+found"] if file_system == "ext4" else [])
    assert made.image.stat().st_size == 320 * 1024 * 1024
    kinds = [line.split()[2] for line in Path("/proc/self/mounts").read_text().splitlines() if str(lab) in line]
    assert kinds == [file_system]


def test_what_is_no_disk_is_left_alone(lab: Path) -> None:
    """A plain folder: none of the verbs touches it."""
    (lab / "plain").mkdir()
    for act in (kill_disk, revive_disk, replace_disk, remove_disk):
        with pytest.raises(ToolError, match="is not a disk of the lab"):
            act(lab / "plain")
    assert (lab / "plain").is_dir()


def test_a_disk_that_somebody_unmounted(lab: Path) -> None:
    """The image is there: it cannot be killed, the message says how to mount it, and it can be removed."""
    path = lab / "disk"
    make_disk(path, size_mib=16)
    unmount_lazily(path)
    with pytest.raises(ToolError, match="is not mounted; `mount -o loop"):
        kill_disk(path)
    remove_disk(path)
    assert list(lab.iterdir()) == []


def test_the_trial_leaves_nothing(lab: Path) -> None:
    """Whether disks can be made is found by making one."""
    assert why_no_loop_disks(lab) is None
    assert list(lab.iterdir()) == []


def test_the_command_line(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every verb for two disks at once, and the status of a failure."""
    paths = [str(lab / "disk-1"), str(lab / "disk-2")]
    for action in ("make --size 16", "kill", "revive", "replace", "remove"):
        assert main(["disks", *action.split(), *paths]) == 0
        done = capsys.readouterr().out.splitlines()
        assert done == [f"{path}: {action.split()[0]} done" for path in paths]
    assert main(["disks", "kill", paths[0]]) == 1
    assert "is not a disk of the lab" in capsys.readouterr().err
