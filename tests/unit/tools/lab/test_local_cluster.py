"""The folder of a local cluster: what is created in it, what a later command finds in it, and what deletion removes."""

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.diskraft import main
from tools.errors import ToolError
from tools.lab import local_cluster
from tools.lab.disk_lab import Disk
from tools.lab.local_cluster import (
    CLUSTER_FILE,
    CONTROLLER_ID,
    FREE_PORTS_COUNT,
    FREE_PORTS_FIRST,
    LocalCluster,
    LocalNode,
    NodeFiles,
    check_ports,
    free_ports,
)
from tools.node.configuration_file import read_config


@pytest.fixture
def tool_calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Replaces the processes of other tools by a function that answers at once. Returns the list of recorded calls."""
    calls: list[tuple[str, ...]] = []

    def tool(module: str, *arguments: str) -> str:
        calls.append((module, *arguments))
        return "the-cluster-id\n" if arguments == ("random-uuid",) else ""

    monkeypatch.setattr(local_cluster, "_tool", tool)
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    return calls


def make(folder: Path, **options: object) -> LocalCluster:
    return LocalCluster.create(folder, **{"brokers": 2, "disks": 3, "loop": False, "first_port": 9092, **options})  # type: ignore[arg-type]


# --- creating and loading --------------------------------------------------------------------------------------------


def test_every_node_gets_directories_and_a_configuration_that_loads(
    tmp_path: Path, tool_calls: list[tuple[str, ...]]
) -> None:
    """The cluster has two brokers with three disks each and a controller. All are formatted with one new cluster id and use
    consecutive ports."""
    cluster = make(tmp_path / "cluster", overrides={"num.partitions": "7"})
    assert cluster.cluster_id == "the-cluster-id"
    assert cluster.bootstrap == "127.0.0.1:9092,127.0.0.1:9093"
    for number, broker in enumerate(cluster.brokers, start=1):
        config = read_config(broker.files.config)
        home = tmp_path / "cluster" / f"broker-{number}"
        assert (config.node_id, config.process_roles, config.num_partitions) == (number, ("broker",), 7)
        assert config.log_dirs == tuple(str(home / f"disk-{disk}") for disk in (1, 2, 3))
        assert config.metadata_log_dir == str(home / "metadata")
        assert all(Path(path).is_dir() for path in config.all_log_dirs)
        assert [voter.port for voter in config.controller_quorum_voters] == [9094]
    controller = read_config(cluster.controller.files.config)
    assert (controller.node_id, controller.process_roles) == (CONTROLLER_ID, ("controller",))
    assert controller.log_dirs == (controller.metadata_log_dir,)
    formatted = [call[3] for call in tool_calls if call[1] == "format"]
    assert formatted == [node.files.config for node in cluster.nodes.values()]
    assert all(call[-1] == "the-cluster-id" for call in tool_calls if call[1] == "format")


def test_every_node_is_formatted_with_the_features_that_are_named(tmp_path: Path, tool_calls: list[tuple[str, ...]]) -> None:
    make(tmp_path / "cluster", features={"metadata.version": "3.8", "transaction.version": "1"})
    formatted = [call[-2:] for call in tool_calls if call[1] == "format"]
    assert formatted == [("--feature=metadata.version=3.8", "--feature=transaction.version=1")] * 3


@pytest.mark.usefixtures("tool_calls")
def test_a_later_command_finds_the_same_cluster(tmp_path: Path) -> None:
    """Everything that a later command needs is in cluster.json."""
    made = make(tmp_path / "cluster")
    loaded = LocalCluster.load(tmp_path / "cluster")
    assert (loaded.cluster_id, loaded.loop) == (made.cluster_id, made.loop)
    assert [node.files for node in loaded.nodes.values()] == [node.files for node in made.nodes.values()]
    assert loaded.broker(2).files.name == "broker-2"
    assert all(node.pid is None for node in loaded.nodes.values())


@pytest.mark.usefixtures("tool_calls")
def test_the_status_shows_whole_paths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a narrow terminal too: one row for each node, with the path of its log."""
    monkeypatch.setenv("COLUMNS", "40")
    made = make(tmp_path / "cluster")
    assert main(["local", "status", "--dir", str(tmp_path / "cluster")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == [
        [node.files.name, str(node.files.node_id), f"127.0.0.1:{node.files.port}", "-", "stopped", node.files.log]
        for node in made.nodes.values()
    ]


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"nodes": [{}]}'])
def test_a_folder_without_a_readable_cluster_is_an_error(tmp_path: Path, content: str | None) -> None:
    """The error says that the folder holds no cluster, or that its description is damaged."""
    if content is not None:
        (tmp_path / CLUSTER_FILE).write_text(content)
    with pytest.raises(ToolError, match="holds no cluster" if content is None else "is damaged"):
        LocalCluster.load(tmp_path)


@pytest.mark.usefixtures("tool_calls")
def test_a_cluster_is_not_made_over_another_one_or_over_somebodys_files(tmp_path: Path) -> None:
    """Otherwise `diskraft local up --dir .` followed by `down --delete` could delete the user's home folder."""
    make(tmp_path / "cluster")
    with pytest.raises(ToolError, match="already holds a cluster"):
        make(tmp_path / "cluster")
    (tmp_path / "letters").write_text("dear")
    with pytest.raises(ToolError, match="is not empty"):
        make(tmp_path)
    with pytest.raises(ToolError, match="cannot be used"):
        make(tmp_path / "letters")
    assert (tmp_path / "letters").read_text() == "dear"


def test_a_cluster_that_cannot_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second format fails. The directories, the configurations and the description of the cluster are removed again."""
    formats = 0

    def tool(_module: str, *arguments: str) -> str:
        nonlocal formats
        formats += arguments[0] == "format"
        if formats == 2:
            raise ToolError("no")
        return "the-cluster-id\n"

    monkeypatch.setattr(local_cluster, "_tool", tool)
    with pytest.raises(ToolError, match="no"):
        make(tmp_path / "cluster")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("tool_calls")
def test_other_ports_change_only_the_lines_of_the_ports(tmp_path: Path) -> None:
    """A user may have added lines to the files. A later command finds the new ports."""
    cluster = make(tmp_path / "cluster", overrides={"num.partitions": "7"})
    with Path(cluster.brokers[0].files.config).open("a") as file:
        file.write("# mine\nbroker.rack=r1\n")
    before = Path(cluster.brokers[0].files.config).read_text()
    cluster.change_ports(19000)
    loaded = LocalCluster.load(tmp_path / "cluster")
    for each in (cluster, loaded):
        assert each.bootstrap == "127.0.0.1:19000,127.0.0.1:19001"
        assert each.controller.files.port == 19002
    after = Path(cluster.brokers[0].files.config).read_text()
    assert after == before.replace(":9092", ":19000").replace(":9094", ":19002")
    config = read_config(cluster.controller.files.config)
    assert [listener.port for listener in config.controller_listeners] == [19002]


def test_a_port_must_exist_and_be_free() -> None:
    """The error names the port and the option that chooses another one."""
    (free,) = free_ports(1)
    check_ports([free])
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(ToolError, match=f"port {taken} is in use by another process; --port N takes another"):
            check_ports([free, taken])
    with pytest.raises(ToolError, match="port 65536 does not exist; --port takes 1 to 65535"):
        check_ports([65536])


def test_free_ports_are_distinct() -> None:
    """None is returned twice, also by a later call, and none may become the port of an outgoing connection."""
    first, second = free_ports(10), free_ports(10)
    assert len({*first, *second}) == 20
    assert min(first + second) >= FREE_PORTS_FIRST
    assert max(first + second) < FREE_PORTS_FIRST + FREE_PORTS_COUNT <= 32768
    check_ports(first + second)


def test_a_port_in_use_is_not_free() -> None:
    (last,) = free_ports(1)
    following = FREE_PORTS_FIRST + (last + 1 - FREE_PORTS_FIRST) % FREE_PORTS_COUNT
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", following)):
        assert free_ports(1) != [following]


OTHER_PROCESS = """
import itertools, sys
from tools.lab import local_cluster
local_cluster._port_numbers = itertools.count(5)
print(*local_cluster.free_ports(3), flush=True)
sys.stdin.read()
"""


def test_no_two_processes_choose_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both start looking at the same port, and neither listens on what it gets. When one ends, its ports are free."""
    command = [sys.executable, "-c", OTHER_PROCESS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        monkeypatch.setattr(local_cluster, "_port_numbers", itertools.count(5))
        assert theirs.isdisjoint(free_ports(3))
    monkeypatch.setattr(local_cluster, "_port_numbers", itertools.count(5))
    assert not theirs.isdisjoint(free_ports(6))


# --- deleting --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tool_calls")
def test_delete_removes_what_the_cluster_made(tmp_path: Path) -> None:
    """Removes the directories with their contents, the logs, and the folder of the cluster itself."""
    cluster = make(tmp_path / "cluster")
    (Path(cluster.brokers[0].files.data_dirs[0]) / "t-0").mkdir()
    Path(cluster.controller.files.log).write_text("{}\n")
    cluster.delete()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("tool_calls")
def test_delete_leaves_other_files(tmp_path: Path) -> None:
    """A file in the cluster's folder that the cluster did not create stays, and so does the folder."""
    cluster = make(tmp_path / "cluster")
    (tmp_path / "cluster" / "notes").write_text("mine")
    cluster.delete()
    assert [path.name for path in (tmp_path / "cluster").iterdir()] == ["notes"]


@pytest.mark.usefixtures("tool_calls")
def test_delete_stops_at_a_mounted_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a disk is mounted at one of the directories, the deletion is refused, and the disk's files stay."""
    cluster = make(tmp_path / "cluster")
    disk = Path(cluster.brokers[0].files.data_dirs[1])
    (disk / "data").write_text("precious")
    monkeypatch.setattr(Disk, "mounted_file_system", property(lambda self: "ext4" if self.path == disk else None))
    with pytest.raises(ToolError, match="disk-2 is still mounted"):
        cluster.delete()
    assert (disk / "data").read_text() == "precious"


# --- nodes -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path) -> LocalNode:
    """Returns a node whose files are in tmp_path and whose process does not run."""
    return LocalNode(
        NodeFiles(
            name="broker-1",
            node_id=1,
            role="broker",
            port=9092,
            config=str(tmp_path / "server.properties"),
            log=str(tmp_path / "broker-1.log"),
            pid_file=str(tmp_path / "pid"),
            data_dirs=(),
            metadata_dir=str(tmp_path),
        )
    )


Run = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def run() -> Iterator[Run]:
    """Returns a function that starts a waiting process with these arguments. All these processes are ended after the
    test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, code: str = "") -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-S", "-c", f"import sys; {code}print(flush=True); sys.stdin.read()", *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_events_are_whole_json_lines(node: LocalNode) -> None:
    """Lines of a node's output that are not JSON are skipped, and so is a last line that is not complete yet."""
    assert list(node.events()) == []
    Path(node.files.log).write_text('not json\n{"event": "a", "n": 1}\n{"event": "b"}\n{"event": "unfini')
    assert [event["event"] for event in node.events()] == ["a", "b"]
    assert node.wait_for("a", n=1) == {"event": "a", "n": 1}


def test_waiting_for_a_node_that_does_not_run(node: LocalNode) -> None:
    """The error gives the last line that the node printed as the reason."""
    with pytest.raises(ToolError, match="broker-1 ended before broker_running: it printed nothing"):
        node.wait_for("broker_running")
    Path(node.files.log).write_text('{"event": "a"}\nport 9092 is taken\n')
    with pytest.raises(ToolError, match="ended before broker_running: port 9092 is taken"):
        node.wait_for("broker_running")


def test_the_process_of_an_earlier_command_is_known_by_its_pid_file(node: LocalNode, run: Run) -> None:
    """The process in the pid file counts only if it runs this node, because the system reuses process ids."""
    assert node.pid is None
    process = run(node.files.config)
    Path(node.files.pid_file).write_text(f"{process.pid}\n")
    assert node.pid == process.pid
    with pytest.raises(ToolError, match=rf"broker-1 is already running \(process {process.pid}\)"):
        node.start()
    Path(node.files.pid_file).write_text(f"{os.getpid()}\n")
    assert node.pid is None
    Path(node.files.pid_file).write_text("not a number")
    assert node.pid is None


def test_ending_the_process_of_an_earlier_command(node: LocalNode, run: Run) -> None:
    """The process is not a child of this command, so `stop` cannot learn its exit status and returns None."""
    process = run(node.files.config)
    Path(node.files.pid_file).write_text(f"{process.pid}\n")
    assert node.stop() is None
    assert process.wait() == -signal.SIGTERM
    assert node.pid is None
    # Killing a process that has already ended is harmless.
    node.kill()


def test_a_process_that_does_not_end_is_an_error(node: LocalNode, run: Run) -> None:
    """The process ignores SIGTERM. After the time limit, the error names the process that is still running."""
    process = run(node.files.config, code="import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); ")
    Path(node.files.pid_file).write_text(f"{process.pid}\n")
    node.signal(signal.SIGTERM)
    with pytest.raises(ToolError, match=f"broker-1 did not end within 0.05 s .process {process.pid}."):
        node.wait_until_ended(seconds=0.05)


@pytest.mark.slow
def test_a_node_that_cannot_start_says_why(node: LocalNode) -> None:
    """Starts the real daemon with a configuration file that is missing. The daemon's line on stderr is in the log and in the
    error."""
    Path(node.files.log).write_text('{"event": "broker_running"}\n')
    node.start()
    with pytest.raises(ToolError, match="ended before broker_running: cannot read the configuration"):
        node.wait_for("broker_running")
    assert node.wait_until_ended() == 1
    assert json.loads(Path(node.files.log).read_text().splitlines()[0]) == {"event": "broker_running"}
