"""`diskraft local`: what `up` does with a folder that holds a cluster, and what each command prints. No node is started."""

import json
import os
from pathlib import Path

import pytest

from tools import diskraft
from tools.errors import ToolError
from tools.lab import local, local_cluster
from tools.lab.local_cluster import CLUSTER_FILE, LocalCluster, LocalNode


class Run:
    """Runs `diskraft local` on one folder. The nodes become ready at once, unless `failure` is set."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.failure: str | None = None
        self.running: set[str] = set()
        self.taken: set[int] = set()
        self._capsys = capsys
        for name in [name for name in os.environ if name.startswith("KAFKA_")]:
            monkeypatch.delenv(name)
        monkeypatch.setattr(local_cluster, "_tool", lambda *_: "the-cluster-id\n")
        monkeypatch.setattr(local, "check_ports", self._check_ports)
        monkeypatch.setattr(LocalNode, "start", lambda node: self.running.add(node.files.name))
        monkeypatch.setattr(LocalNode, "kill", lambda node: self.running.discard(node.files.name))
        monkeypatch.setattr(LocalNode, "stop", lambda node: self.running.discard(node.files.name))
        monkeypatch.setattr(LocalNode, "signal", lambda node, _number: self.running.discard(node.files.name))
        monkeypatch.setattr(LocalNode, "wait_until_ended", lambda _node: None)
        monkeypatch.setattr(LocalNode, "wait_for", self._wait_for)
        monkeypatch.setattr(LocalNode, "pid", property(lambda node: 7 if node.files.name in self.running else None))

    def _check_ports(self, ports: list[int]) -> None:
        for port in ports:
            if port in self.taken:
                raise ToolError(f"port {port} is taken")

    def _wait_for(self, _event: str) -> None:
        if self.failure is not None:
            raise ToolError(self.failure)

    def __call__(self, action: str, *arguments: str) -> tuple[int, list[str], list[str]]:
        """Returns the exit status and the lines of stdout and stderr."""
        status = diskraft.main(["local", action, "--dir", str(self.folder), *arguments])
        captured = self._capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    @property
    def ports(self) -> list[int]:
        return [node.files.port for node in LocalCluster.load(self.folder).nodes.values()]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path / "cluster", capsys, monkeypatch)


def test_up_shows_its_progress_and_the_next_command(run: Run) -> None:
    """Each node is named when it is formatted and when it is ready. The last line is the command to type next."""
    status, out, err = run("up", "--brokers", "2", "--disks", "1")
    assert (status, err) == (0, [])
    assert out == [
        f"creating 2 brokers with 1 disk each, and a controller, in {run.folder}",
        "  broker-1 is formatted",
        "  broker-2 is formatted",
        "  controller is formatted",
        "  controller is ready on 127.0.0.1:9094",
        "  broker-1 is ready on 127.0.0.1:9092",
        "  broker-2 is ready on 127.0.0.1:9093",
        "2 brokers and a controller are running; bootstrap servers: 127.0.0.1:9092,127.0.0.1:9093",
        "next: kafka-topics --bootstrap-server 127.0.0.1:9092 --create --topic t --partitions 6 --replication-factor 2",
    ]


def test_a_mistyped_key_of_set_is_named(run: Run) -> None:
    """It is the same for all nodes, so it is named once."""
    status, _, err = run("up", "--brokers", "2", "--set", "num.partitoins=7")
    assert (status, err) == (0, ["num.partitoins is not a known key; it is ignored (is num.partitions meant?)"])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--brokers", "2"],
        ["--disks", "1", "--port", "9092", "--set", "num.partitions=7"],
    ],
)
def test_up_again_with_options_that_the_cluster_meets(run: Run, arguments: list[str]) -> None:
    """The cluster is started as it is. Options that are not given ask for nothing."""
    run("up", "--brokers", "2", "--disks", "1", "--set", "num.partitions=7", "--set", "broker.rack=r")
    run("down")
    before = (run.folder / CLUSTER_FILE).read_text()
    status, _, err = run("up", *arguments)
    assert (status, err) == (0, [])
    assert (run.folder / CLUSTER_FILE).read_text() == before


@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        (["--brokers", "5"], "with --brokers 2, not 5"),
        (["--disks", "2", "--loop"], "with --disks 1, not 2 and without --loop"),
        (["--disk-size", "150"], "with --disk-size 256, not 150"),
        (["--set", "num.partitions=8"], "without --set num.partitions=8"),
        (["--brokers", "5", "--port", "80"], "with --brokers 2, not 5 and with --port 9092, not 80"),
    ],
)
def test_up_with_options_of_another_cluster_is_refused(run: Run, arguments: list[str], difference: str) -> None:
    """One line names the difference and both ways out. What is there stays."""
    run("up", "--brokers", "2", "--disks", "1", "--set", "num.partitions=7")
    run("down")
    before = (run.folder / CLUSTER_FILE).read_text()
    status, out, (line,) = run("up", *arguments)
    assert (status, out) == (1, [])
    assert line == (
        f"{run.folder} already holds a cluster {difference}; without these options `up` starts it as it is, "
        f"`diskraft local down --dir {run.folder} --delete` removes it"
    )
    assert (run.folder / CLUSTER_FILE).read_text() == before
    assert run.running == set()


def test_another_port_for_a_cluster_that_is_stopped(run: Run) -> None:
    """A port that someone else has taken meanwhile must not make the cluster useless."""
    run("up", "--brokers", "1")
    run("down")
    run.taken = {9092}
    assert run("up") == (1, [], ["port 9092 is taken"])
    status, out, _ = run("up", "--port", "19092")
    assert (status, run.ports) == (0, [19092, 19093])
    assert "127.0.0.1:19092" in out[-1]


def test_another_port_for_a_cluster_that_is_running(run: Run) -> None:
    """The ports of a running node cannot change."""
    run("up", "--brokers", "1")
    status, out, (line,) = run("up", "--port", "19092")
    assert (status, out) == (1, [])
    assert line == (
        f"{run.folder} holds a cluster that is running with --port 9092, not 19092; "
        f"`diskraft local down --dir {run.folder}` stops it"
    )


def test_a_port_that_is_taken_creates_nothing(run: Run) -> None:
    """Otherwise the next `up` would find a cluster with the wrong port."""
    run.taken = {9093}
    assert run("up") == (1, [], ["port 9093 is taken"])
    assert not run.folder.exists()


def test_a_cluster_that_has_never_been_ready_is_replaced(run: Run) -> None:
    """The first start fails, for example because of a wrong --set. Its nodes are ended, and its logs are kept. The next `up`
    with other options starts from scratch, with the earlier options for those that are not given."""
    run.failure = "broker-1 ended before broker_running"
    status, _, err = run("up", "--brokers", "1", "--set", "num.partitions=7")
    assert (status, err) == (1, ["broker-1 ended before broker_running"])
    assert run.running == set()
    run.failure = None
    status, out, _ = run("up", "--port", "19092", "--set", "num.partitions=8")
    assert (status, run.ports) == (0, [19092, 19093])
    assert out[0] == f"the cluster in {run.folder} has never been ready, so it is replaced"
    assert LocalCluster.load(run.folder).overrides == {"num.partitions": "8"}
    run("down")
    status, _, err = run("up", "--brokers", "2")
    assert (status, len(err)) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--brokers", "0"], "--brokers 0 is not valid; it takes at least 1"),
        (["--disks", "-1"], "--disks -1 is not valid; it takes at least 1"),
        (["--brokers", "101"], "--brokers 101 is not valid; it takes at most 100"),
        (["--disks", "1001"], "--disks 1001 is not valid; it takes at most 1000"),
        (
            ["--disk-size", "64"],
            "--disk-size 64 is not valid; it takes at least 128, because a broker places no replica in a directory with "
            "less than diskraft.log.dir.free.bytes.floor (64 MiB) of free space",
        ),
        (["--disk-size", "0"], "--disk-size 0 is not valid; it takes at least 1"),
        (["--set", "num.partitions"], "--set num.partitions is not KEY=VALUE"),
        (["--set", "=3"], "--set =3 is not KEY=VALUE"),
    ],
)
def test_wrong_options(run: Run, arguments: list[str], text: str) -> None:
    """One line names the option. Nothing is created."""
    assert run("up", *arguments) == (1, [], [text])
    assert not run.folder.exists()


def test_a_small_disk_with_a_lower_floor(run: Run) -> None:
    """A disk may be small if brokers place replicas on it."""
    status, _, err = run("up", "--brokers", "1", "--disk-size", "64", "--set", "diskraft.log.dir.free.bytes.floor=0")
    assert (status, err) == (0, [])


def test_a_folder_that_is_a_file(run: Run) -> None:
    """Each command names the path."""
    run.folder.write_text("mine")
    for action in ("up", "status", "down"):
        status, _, (line,) = run(action)
        assert status == 1
        assert str(run.folder) in line
    assert run.folder.read_text() == "mine"


def test_status_is_never_cut_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The paths of the logs are whole however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "60")
    run("up", "--brokers", "1")
    status, out, _ = run("status")
    assert status == 0
    assert out[0] == "cluster the-cluster-id, bootstrap servers: 127.0.0.1:9092"
    assert out[1].split() == ["node", "id", "listener", "pid", "state", "log"]
    assert out[2].split() == ["broker-1", "1", "127.0.0.1:9092", "7", "running", f"{run.folder}/broker-1.log"]
    assert out[3].split()[:2] == ["controller", "100"]
    run("down")
    status, out, _ = run("status", "--format", "json")
    assert [node["state"] for node in json.loads(out[0])["nodes"]] == ["stopped", "stopped"]
