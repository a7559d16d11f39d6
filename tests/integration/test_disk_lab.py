"""The disk lab on the kernel's loop devices: it creates disks, kills them while files are open, revives and removes them."""

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import until
from tests.integration.loop_disks import loop_devices_under, mounts_under, unmount_lazily
from tools.diskraft import main
from tools.errors import ToolError
from tools.lab import disk_faults, disk_lab
from tools.lab.disk_lab import (
    Disk,
    heal_disk,
    kill_disk,
    make_disk,
    remove_disk,
    replace_disk,
    revive_disk,
    why_no_loop_disks,
)

pytestmark = [pytest.mark.root, pytest.mark.slow]

EIO = rf"\[Errno {errno.EIO}\]"


@pytest.fixture
def lab(loop_disks: None, tmp_path: Path) -> Iterator[Path]:
    """A folder for disks. Afterwards every mount and loop device in it is removed."""
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
    """The disk has a file system of its own with the requested size. Missing parent folders are created."""
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
    """An empty folder may become a disk. An existing disk or a folder with files in it may not."""
    (lab / "empty").mkdir()
    make_disk(lab / "empty", size_mib=16)
    with pytest.raises(ToolError, match="is already a disk"):
        make_disk(lab / "empty", size_mib=16)
    (lab / "full").mkdir()
    (lab / "full" / "letters").write_text("dear")
    with pytest.raises(ToolError, match="is not empty"):
        make_disk(lab / "full", size_mib=16)
    assert not Disk(lab / "full").exists
    with pytest.raises(ToolError, match="letters"):
        make_disk(lab / "full" / "letters", size_mib=16)


@pytest.mark.parametrize(
    ("size_mib", "file_system", "text"),
    [
        (0, "ext4", "a disk of 0 MiB cannot be made; it takes at least 1 MiB"),
        (-5, "ext4", "a disk of -5 MiB cannot be made"),
        (16, "xfs", "mkfs.xfs"),
        (16, "ntfs", "unknown file system ntfs"),
    ],
)
def test_a_disk_that_cannot_be_made_leaves_nothing(lab: Path, size_mib: int, file_system: str, text: str) -> None:
    """The error is one line with the reason, and no part of a disk is left."""
    with pytest.raises(ToolError, match=text) as caught:
        make_disk(lab / "disk", size_mib=size_mib, file_system=file_system)
    assert "\n" not in str(caught.value)
    assert list(lab.iterdir()) == []


def test_killing_a_disk_fails_everything_that_is_open_on_it(lab: Path) -> None:
    """After the kill, writes, syncs and new files fail with EIO. Listing the disk still succeeds, so a
    listing does not show whether a disk is healthy."""
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
    """The kill is like a power cut: the journal is replayed, and data that was only in memory is lost."""
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


def test_a_dead_disk_that_is_mounted_elsewhere_too_stays_dead(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container or another mount namespace keeps the dead file system. Once it has ended, the disk can be revived."""
    path = lab / "disk-1"
    make_disk(path, size_mib=16)
    # It unmounts when its standard input ends.
    holder = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo ready; cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "ready\n"
    kill_disk(path)
    monkeypatch.setattr(disk_lab, "RELEASE_SECONDS", 0.3)
    with pytest.raises(ToolError, match="also mounted elsewhere"):
        revive_disk(path)
    holder.communicate()
    monkeypatch.undo()
    revive_disk(path)
    (path / "file").write_bytes(b"alive")


def test_a_disk_in_use_is_neither_revived_nor_removed(lab: Path) -> None:
    """While a file on the disk is open, every action fails, and the error says what to do. Once the file is closed, the disk
    can be revived."""
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
    """The new disk has the same size and file system and none of the old content. The path may contain a blank."""
    if shutil.which(f"mkfs.{file_system}", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        pytest.skip(f"mkfs.{file_system} is not installed, this was NOT tested")
    path = lab / "my disk"
    # The smallest size that both file systems accept.
    made = make_disk(path, size_mib=320, file_system=file_system)
    (path / "meta.properties").write_text("version=1\n")
    kill_disk(path)
    replace_disk(path)
    assert sorted(os.listdir(path)) == (["lost+found"] if file_system == "ext4" else [])
    assert made.image.stat().st_size == 320 * 1024 * 1024
    kinds = [line.split()[2] for line in Path("/proc/self/mounts").read_text().splitlines() if str(lab) in line]
    assert kinds == [file_system]


def test_what_is_no_disk_is_left_alone(lab: Path) -> None:
    """No action of the lab touches a plain folder."""
    (lab / "plain").mkdir()
    for act in (kill_disk, revive_disk, replace_disk, remove_disk):
        with pytest.raises(ToolError, match="is not a disk of the lab"):
            act(lab / "plain")
    assert (lab / "plain").is_dir()


def test_a_freeze_that_is_over_before_it_begins_ends_too(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the watchdog may be quicker than the freeze. It thaws the disk all the same."""
    path = lab / "disk"
    make_disk(path, size_mib=16)
    real_run = disk_lab.run

    def late(*command: str) -> None:
        time.sleep(0.3)
        real_run(*command)

    monkeypatch.setattr(disk_faults, "run", late)
    disk_faults.freeze(path, 0.01)
    # Without the thaw this write never ends.
    (path / "file").write_text("written once the disk is thawed")
    assert (path / "file").read_text() == "written once the disk is thawed"
    remove_disk(path)


def test_a_disk_that_somebody_unmounted(lab: Path) -> None:
    """If the image exists but is not mounted, the disk cannot be killed, and the error names the command that mounts it. The
    disk can still be removed."""
    path = lab / "disk"
    make_disk(path, size_mib=16)
    write_synced(path / "kept", b"kept")
    unmount_lazily(path)
    for act in (kill_disk, heal_disk):
        with pytest.raises(ToolError, match=f"is not mounted; `diskraft disks revive {path}` mounts it"):
            act(path)
    revive_disk(path)
    assert (path / "kept").read_bytes() == b"kept"
    unmount_lazily(path)
    (path / "mine").write_text("not the disk's")
    remove_disk(path)
    assert list(lab.iterdir()) == [path]
    assert (path / "mine").read_text() == "not the disk's"


@pytest.mark.parametrize(("file_system", "size_mib"), [("ext4", 16), ("xfs", 320)])
def test_a_vanished_disk_is_replaced(lab: Path, file_system: str, size_mib: int) -> None:
    """The empty disk is of the same kind as the one that has vanished."""
    path = lab / "disk"
    made = make_disk(path, size_mib=size_mib, file_system=file_system)
    write_synced(path / "gone", b"gone")
    disk_faults.vanish(path)
    replace_disk(path)
    assert made.mounted_file_system == file_system
    assert not (path / "gone").exists()
    remove_disk(path)


def test_the_trial_leaves_nothing(lab: Path) -> None:
    """`why_no_loop_disks` tries to create a disk, and removes that disk again."""
    assert why_no_loop_disks(lab) is None
    assert list(lab.iterdir()) == []


def test_every_verb_of_the_command_line_takes_several_disks(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs every action on two disks at once, and checks the exit status of a failure."""
    paths = [str(lab / "disk-1"), str(lab / "disk-2")]
    for action in ("make --size 16", "kill", "revive", "replace", "remove"):
        assert main(["disks", *action.split(), *paths]) == 0
        done = capsys.readouterr().out.splitlines()
        assert done == [f"{path}: {action.split()[0]} done" for path in paths]
    assert main(["disks", "kill", paths[0]]) == 1
    assert "is not a disk of the lab" in capsys.readouterr().err


@pytest.fixture
def faulty(lab: Path) -> Path:
    """A disk of 32 MiB whose blocks can be made to fail."""
    path = lab / "faulty"
    make_disk(path, size_mib=32, faulty=True)
    return path


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def codes_of_fsync(path: Path, times: int) -> list[int]:
    """Writes new blocks, then syncs `times` times. Returns the errno of each sync, 0 for success."""
    codes = []
    with (path / "synced").open("ab", buffering=0) as file:
        file.write(bytes(1 << 20))
        for _ in range(times):
            try:
                os.fsync(file.fileno())
            except OSError as error:
                codes.append(error.errno or -1)
            else:
                codes.append(0)
    return codes


def test_a_faulty_disk_works_and_leaves_nothing(lab: Path, faulty: Path) -> None:
    """A faulty disk works like any other until a fault is set. Removing it also ends the process that serves its image."""
    assert codes_of_fsync(faulty, 2) == [0, 0]
    revive_disk(faulty)
    assert (faulty / "synced").stat().st_size == 1 << 20
    replace_disk(faulty)
    assert os.listdir(faulty) == ["lost+found"]
    assert codes_of_fsync(faulty, 1) == [0]
    remove_disk(faulty)
    assert list(lab.iterdir()) == []


def test_blocks_that_cannot_be_written(faulty: Path) -> None:
    """Writes succeed and syncs fail. Data that was synced before is there after the disk is healed and mounted again."""
    write_synced(faulty / "kept", b"kept")
    disk_faults.fail_writes(faulty)
    assert codes_of_fsync(faulty, 2) == [errno.EIO, errno.EIO]
    revive_disk(faulty)
    assert (faulty / "kept").read_bytes() == b"kept"
    assert codes_of_fsync(faulty, 1) == [0]


def test_blocks_that_cannot_be_read(faulty: Path) -> None:
    """Cached data can be read and everything can be written. Only reading the blocks fails, with EIO."""
    write_synced(faulty / "file", b"x" * 4096)
    disk_faults.fail_reads(faulty)
    assert (faulty / "file").read_bytes() == b"x" * 4096
    assert codes_of_fsync(faulty, 1) == [0]
    with (faulty / "file").open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with pytest.raises(OSError, match=EIO):
            file.read()


def test_blocks_that_hang_have_an_end(faulty: Path) -> None:
    """The hang ends after `seconds`. The sync then returns, although the test has not healed the disk."""
    disk_faults.hang_blocks(faulty, seconds=0.5)
    began = time.monotonic()
    assert codes_of_fsync(faulty, 1) == [0]
    assert 0.4 < time.monotonic() - began < 10


def test_slow_blocks_delay_a_sync_and_fail_nothing(faulty: Path) -> None:
    """Reads and writes of blocks are delayed, but none fails."""
    disk_faults.slow_blocks(faulty, delay_ms=100)
    began = time.monotonic()
    assert codes_of_fsync(faulty, 1) == [0]
    assert time.monotonic() - began > 0.1


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
def test_one_fsync_tells_of_lost_data_and_the_next_succeeds(lab: Path, file_system: str) -> None:
    """A thin volume runs out of blocks while the kernel writes back. The first fsync reports the error. The next one
    succeeds although the data is lost, which is why the daemons never retry an fsync."""
    path = lab / "thin"
    make_disk(path, size_mib=320 if file_system == "xfs" else 32, file_system=file_system, faulty=True)
    disk_faults.run_out_of_blocks(path)
    assert codes_of_fsync(path, 3) == [errno.ENOSPC, 0, 0]


@pytest.mark.parametrize("file_system", ["ext4", "xfs"])
@pytest.mark.parametrize(
    "shut_down", [disk_faults.cut_power, disk_faults.shut_down_flushing, disk_faults.shut_down_flushing_journal]
)
def test_three_ways_to_shut_down(lab: Path, file_system: str, shut_down: Callable[[Path], None]) -> None:
    """After each kind of shutdown fsync fails with EIO. Only `shut_down_flushing` keeps unsynced data."""
    path = lab / "disk"
    make_disk(path, size_mib=320 if file_system == "xfs" else 16, file_system=file_system)
    (path / "unsynced").write_bytes(b"x" * 4096)
    with (path / "file").open("wb", buffering=0) as file:
        shut_down(path)
        with pytest.raises(OSError, match=EIO):
            os.fsync(file.fileno())
    revive_disk(path)
    unsynced = path / "unsynced"
    kept = unsynced.exists() and unsynced.read_bytes() == b"x" * 4096
    assert kept == (shut_down is disk_faults.shut_down_flushing)


def test_a_file_system_that_makes_itself_read_only(lab: Path) -> None:
    """Every change fails with EROFS, and reads still work. Mounting the disk again makes it writable."""
    path = lab / "disk"
    make_disk(path, size_mib=16)
    (path / "file").write_bytes(b"kept")
    disk_faults.make_read_only(path)
    with pytest.raises(OSError, match=rf"\[Errno {errno.EROFS}\]"):
        (path / "new").touch()
    assert (path / "file").read_bytes() == b"kept"
    revive_disk(path)
    (path / "new").touch()


def test_a_disk_without_room(lab: Path) -> None:
    """Fills the disk and heals it, then uses up its inodes and heals it again."""
    path = lab / "disk"
    make_disk(path, size_mib=16)
    disk_faults.fill(path)
    (path / "new").touch()
    with pytest.raises(OSError, match=rf"\[Errno {errno.ENOSPC}\]"):
        (path / "new").write_bytes(b"x")
    disk_faults.make_room(path)
    (path / "new").write_bytes(b"x")
    disk_faults.use_up_inodes(path)
    assert os.statvfs(path).f_bavail > 0
    with pytest.raises(OSError, match=rf"\[Errno {errno.ENOSPC}\]"):
        (path / "newer").touch()
    (path / "new").write_bytes(b"xy")
    disk_faults.make_room(path)
    assert sorted(os.listdir(path)) == ["lost+found", "new"]


def test_a_freeze_has_an_end(lab: Path) -> None:
    """The watchdog thaws the disk if the test does not heal it first. It leaves no pid file: when the disk is
    healed later, the pid may be that of another process."""
    path = lab / "disk"
    make_disk(path, size_mib=16)
    disk_faults.freeze(path, seconds=0.5)
    began = time.monotonic()
    (path / "file").touch()
    assert 0.3 < time.monotonic() - began < 10
    until(lambda: None if Disk(path).watchdog.exists() else True, "the watchdog removed its pid file")
    disk_faults.freeze(path, seconds=60)
    heal_disk(path)
    (path / "other").touch()
    assert not Disk(path).watchdog.exists()


def test_disks_that_are_not_where_they_were(lab: Path) -> None:
    """Two disks are swapped and swapped back. Then one is replaced by a fresh disk and the other is unmounted. A file that
    was opened before can still be read from the old disk."""
    first, second = lab / "first", lab / "second"
    for path in (first, second):
        make_disk(path, size_mib=16)
        (path / "name").write_text(path.name)
    disk_faults.swap(first, second)
    assert ((first / "name").read_text(), (second / "name").read_text()) == ("second", "first")
    for path in (first, second):
        heal_disk(path)
        assert (path / "name").read_text() == path.name
    with (first / "name").open() as file:
        disk_faults.put_fresh(first)
        assert os.listdir(first) == ["lost+found"]
        assert file.read() == "first"
    disk_faults.vanish(second)
    assert os.listdir(second) == []


def test_every_way_to_kill_from_the_command_line(lab: Path, faulty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`heal` or `revive` undoes what each `--how` does. If `--how` needs two disks or a faulty disk, the error says so."""
    plain = lab / "plain"
    make_disk(plain, size_mib=16)
    for how in disk_faults.HOWS:
        if how in ("swap", "vanish"):
            continue
        assert main(["disks", "kill", "--how", how, "--seconds", "5", str(faulty)]) == 0, capsys.readouterr().err
        assert main(["disks", "heal" if how in ("full", "no-inodes") else "revive", str(faulty)]) == 0, how
        (faulty / "alive").write_text("x")
    assert main(["disks", "kill", "--how", "swap", str(faulty), str(plain)]) == 0
    assert main(["disks", "heal", str(faulty), str(plain)]) == 0
    assert main(["disks", "kill", "--how", "swap", str(faulty)]) == 1
    assert "two disks" in capsys.readouterr().err
    assert main(["disks", "kill", "--how", "hang", str(plain)]) == 1
    assert "diskraft disks make --faulty" in capsys.readouterr().err
    assert main(["disks", "kill", "--how", "vanish", str(plain)]) == 0
