"""A daemon that cannot start: exit status 1, and one line on stderr that names the cause and the fix.

Every start here is a process of its own. Its log (one JSON object per line) goes to stderr too; the tests check the only
line that is not an event.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.cluster import run_tool, watched_cluster
from tools.kafka import storage
from tools.lab.local_cluster import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CLUSTER_ID = "kZk3AyqrRYW9yLq6qJbW4Q"
OTHER_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


@dataclass(slots=True)
class Prepared:
    """A formatted broker that would start if the test did not break something."""

    home: Path
    properties: dict[str, str]
    port: int

    @property
    def config(self) -> Path:
        return self.home / "server.properties"

    @property
    def first(self) -> Path:
        return self.home / "disk-1"

    @property
    def second(self) -> Path:
        return self.home / "disk-2"

    @property
    def metadata(self) -> Path:
        return self.home / "metadata"

    def write(self, **changes: str | None) -> None:
        """Writes server.properties with these changes ('_' for '.'). None removes a key."""
        renamed = {key.replace("_", "."): value for key, value in changes.items()}
        lines = [f"{key}={value}\n" for key, value in (self.properties | renamed).items() if value is not None]
        self.config.write_text("".join(lines))

    def format(self) -> None:
        """Formats without starting a new process, which would be too slow for so many tests."""
        assert storage.main(["format", "--config", str(self.config), "--cluster-id", CLUSTER_ID]) == 0


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    port, controller_port = free_ports(2)
    properties = {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": f"100@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": f"{tmp_path}/disk-1,{tmp_path}/disk-2",
        "metadata.log.dir": f"{tmp_path}/metadata",
    }
    made = Prepared(tmp_path, properties, port)
    made.write()
    made.format()
    return made


def refusal(config: Path) -> str:
    """Starts the daemon, checks that it refuses to start with exit status 1 and one line, and returns that line."""
    return one_line(run_tool("tools.node.server_start", str(config)))


def one_line(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    assert '"level": "critical"' not in done.stderr
    print(lines[0])
    return lines[0]


# --- server.properties -------------------------------------------------------------------------------------------------


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    """The line names the path and the kernel's error."""
    line = refusal(tmp_path / "missing.properties")
    assert str(tmp_path / "missing.properties") in line
    assert "No such file" in line


def test_a_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    """Root can read every file, so the test uses a folder instead of an unreadable file."""
    line = refusal(tmp_path)
    assert str(tmp_path) in line
    assert "directory" in line


@pytest.mark.parametrize("content", [b"node.id=\\u12\n", b"node.id=\xff\xfe\n"])
def test_a_configuration_that_is_no_properties_file(tmp_path: Path, content: bytes) -> None:
    """The line names the path and says that it is not a properties file."""
    config = tmp_path / "server.properties"
    config.write_bytes(content)
    line = refusal(config)
    assert str(config) in line
    assert "properties file" in line


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"node_id": None}, ["node.id"], id="missing key"),
        pytest.param({"process_roles": "leader"}, ["process.roles", "leader", "broker", "controller"], id="unknown role"),
        pytest.param({"broker_heartbeat_interval_ms": "soon"}, ["broker.heartbeat.interval.ms", "soon"], id="no number"),
        pytest.param({"log_segment_bytes": "1"}, ["log.segment.bytes", "1", "14"], id="too small"),
        pytest.param({"log_dirs": "disk-1"}, ["log.dirs", "disk-1", "absolute"], id="relative directory"),
        pytest.param({"log_dirs": "/d/1,/d/2,/d/1/"}, ["log.dirs", "/d/1"], id="duplicate directory"),
        pytest.param({"listeners": "PLAINTEXT:9092"}, ["listeners", "PLAINTEXT:9092"], id="malformed listener"),
        pytest.param({"controller_quorum_voters": "here"}, ["controller.quorum.voters", "here"], id="malformed voters"),
        pytest.param({"diskraft_prometheus_listener": "9404"}, ["diskraft.prometheus.listener", "9404"], id="no port"),
    ],
)
def test_a_bad_value_is_refused_with_the_file_the_key_and_what_is_allowed(
    prepared: Prepared, changes: dict[str, str | None], words: list[str]
) -> None:
    """The line names the file, the key, the value and the allowed values."""
    prepared.write(**changes)
    line = refusal(prepared.config)
    for word in [str(prepared.config), *words]:
        assert word in line


def test_a_port_that_is_taken(prepared: Prepared) -> None:
    """The line names the key and the value, and says that the address is in use."""
    with socket.create_server(("127.0.0.1", prepared.port)):
        line = refusal(prepared.config)
    assert f"listeners=PLAINTEXT://127.0.0.1:{prepared.port}" in line
    assert "in use" in line
    assert "stop what listens there" in line


@pytest.mark.parametrize(
    ("address", "words"),
    [
        # 192.0.2.0/24 is reserved for documentation (RFC 5737), .invalid for names that do not exist (RFC 6761).
        pytest.param("192.0.2.1:19092", ["Cannot assign", "name an address of this machine"], id="another machine"),
        pytest.param("broker.invalid:19092", ["correct the host, or make its name resolve"], id="unknown name"),
    ],
)
def test_an_address_that_is_not_of_this_machine(prepared: Prepared, address: str, words: list[str]) -> None:
    """The line names the key and the value, and what is wrong with the address. Nothing listens there to be stopped."""
    prepared.write(listeners=f"PLAINTEXT://{address}")
    line = refusal(prepared.config)
    assert f"listeners=PLAINTEXT://{address}" in line
    assert "stop what listens there" not in line
    for word in words:
        assert word in line


def test_a_metrics_port_that_is_taken(prepared: Prepared) -> None:
    """The line names the key and the value of the metrics listener, which is bound before the broker serves requests."""
    (port,) = free_ports(1)
    prepared.write(diskraft_prometheus_listener=f"127.0.0.1:{port}")
    with socket.create_server(("127.0.0.1", port)):
        line = refusal(prepared.config)
    assert f"diskraft.prometheus.listener=127.0.0.1:{port}" in line
    assert "in use" in line


# --- directories -------------------------------------------------------------------------------------------------------


def empty(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def replace_line(path: Path, key: str, value: str | None) -> None:
    file = path / "meta.properties"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{key}=")]
    file.write_text("".join(f"{line}\n" for line in [*lines, *([f"{key}={value}"] if value is not None else [])]))


def write_properties(path: Path, content: str) -> None:
    (path / "meta.properties").write_text(content)


def copy_id(prepared: Prepared) -> None:
    (prepared.second / "meta.properties").write_bytes((prepared.first / "meta.properties").read_bytes())


def put_a_file_there(prepared: Prepared) -> None:
    shutil.rmtree(prepared.second)
    prepared.second.write_text("not a directory")


def leave_metadata_behind(prepared: Prepared) -> None:
    (prepared.second / "__cluster_metadata-0").mkdir()


SPOILED: dict[str, tuple[Callable[[Prepared], None], list[str]]] = {
    "unformatted": (lambda it: empty(it.second), ["disk-2", "kafka-storage format", "mounted"]),
    "missing": (lambda it: shutil.rmtree(it.second), ["disk-2", "does not exist", "kafka-storage format"]),
    "other cluster": (
        lambda it: replace_line(it.second, "cluster.id", OTHER_CLUSTER_ID),
        ["disk-2", CLUSTER_ID, OTHER_CLUSTER_ID, "log.dirs"],
    ),
    "other node": (lambda it: replace_line(it.second, "node.id", "7"), ["disk-2", "7", "node.id", "log.dirs"]),
    "duplicate directory.id": (copy_id, ["disk-1", "disk-2", "copy"]),
    "reserved directory.id": (
        lambda it: replace_line(it.second, "directory.id", "AAAAAAAAAAAAAAAAAAAAAQ"),
        ["disk-2", "reserved", "directory.id"],
    ),
    "no cluster.id in version 0": (
        lambda it: write_properties(it.second, ""),
        ["disk-2", "cluster.id", "format"],
    ),
    "damaged metadata directory": (
        lambda it: write_properties(it.metadata, "version=\n"),
        ["metadata", "version", "metadata.log.dir"],
    ),
    "misplaced metadata log": (leave_metadata_behind, ["disk-2", "__cluster_metadata-0", "metadata.log.dir"]),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_directory_that_must_not_be_used(prepared: Prepared, name: str) -> None:
    """The line names the directory, the problem and the fix."""
    spoil, words = SPOILED[name]
    spoil(prepared)
    line = refusal(prepared.config)
    for word in words:
        assert word in line, line


def test_every_data_directory_unusable(prepared: Prepared) -> None:
    """No directory is left to serve, so the line names every directory with its reason."""
    for path in (prepared.first, prepared.second):
        write_properties(path, "version=9\n")
    line = refusal(prepared.config)
    assert str(prepared.first) in line
    assert str(prepared.second) in line
    assert "Unknown meta.properties version" in line


def test_a_file_in_the_place_of_a_directory_starts_offline(prepared: Prepared) -> None:
    """The broker treats such a directory as offline. If it is the only one, the broker refuses to start."""
    put_a_file_there(prepared)
    prepared.write(log_dirs=str(prepared.second))
    line = refusal(prepared.config)
    assert str(prepared.second) in line
    assert "ENOTDIR" in line


@contextlib.contextmanager
def locked_like_apache_kafka(path: Path) -> Iterator[None]:
    """Locks the directory as Apache Kafka does: FileChannel.tryLock is a POSIX record lock on the whole file, like lockf."""
    descriptor = os.open(path / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("which", ["disk-1", "disk-2", "metadata"])
def test_a_directory_that_another_process_holds(prepared: Prepared, which: str) -> None:
    """The other process may be Apache Kafka. The line names the directory and the lock file. kafka-storage refuses to
    format the directory with the same explanation."""
    path = prepared.home / which
    with locked_like_apache_kafka(path):
        line = refusal(prepared.config)
        arguments = ["format", "-c", str(prepared.config), "-t", CLUSTER_ID, "-g"]
        formatting = one_line(run_tool("tools.kafka.storage", *arguments))
    for said in (line, formatting):
        assert str(path) in said
        assert ".lock" in said
        assert "top that" in said, "the way out"


def test_a_second_process_on_the_directories_of_a_running_broker(tmp_path: Path) -> None:
    """The second process refuses to start and the first keeps serving. Once the first has ended, a new one can start."""
    with watched_cluster(tmp_path, brokers=1, disks=2, loop=False) as cluster:
        broker = cluster.broker(1)
        line = refusal(Path(broker.files.config))
        assert "in use by another process" in line
        with cluster.admin() as admin:
            assert list(admin.brokers()) == [1]
        assert broker.stop() == 0
        broker.start()
        broker.wait_for("broker_running")


def test_a_second_process_with_the_node_id_of_a_running_broker(tmp_path: Path) -> None:
    """The second process has other directories and another port, but the same node.id. The controller refuses to register it
    while the first one is alive. The second process reports the refusal and exits, and the first keeps serving."""
    (port,) = free_ports(1)
    with watched_cluster(tmp_path, brokers=1, disks=1, loop=False) as cluster:
        broker = cluster.broker(1)
        text = Path(broker.files.config).read_text()
        twin = tmp_path / "twin"
        twin.mkdir()
        text = text.replace(str(cluster.folder / "broker-1"), str(twin)).replace(str(broker.files.port), str(port))
        config = twin / "server.properties"
        config.write_text(text + "initial.broker.registration.timeout.ms=3000\n")
        done = run_tool("tools.kafka.storage", "format", "--config", str(config), "--cluster-id", cluster.cluster_id)
        assert done.returncode == 0, done.stderr
        second = run_tool("tools.node.server_start", str(config))
        assert second.returncode == 1
        assert "Traceback" not in second.stderr
        assert "DUPLICATE_BROKER_REGISTRATION" in second.stderr
        assert "initial.broker.registration.timeout.ms" in second.stderr
        assert broker.pid is not None
        with cluster.admin() as admin:
            assert {id_: address.port for id_, address in admin.brokers().items()} == {1: broker.files.port}
