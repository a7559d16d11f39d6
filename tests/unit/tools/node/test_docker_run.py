"""Tests where a container's configuration comes from, and when its directories are formatted."""

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest

from common.configuration.server import ServerConfig
from common.configuration.server_loading import load_server_config
from common.environment.real import RealEnvironment
from tests.simulation.environment import SimulatedWorld
from tools.errors import ToolError
from tools.kafka import storage
from tools.node import docker_run
from tools.node.configuration_file import read_properties
from tools.node.docker_run import DEFAULT_PROPERTIES, is_first_start, main, node_properties

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"


def config_of(folder: Path) -> ServerConfig:
    """Returns the configuration of a broker with two data directories and one for metadata."""
    return load_server_config(
        {
            "process.roles": "broker",
            "node.id": "7",
            "controller.quorum.voters": "100@controller:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://:9092",
            "log.dirs": f"{folder}/data-0,{folder}/data-1",
            "metadata.log.dir": f"{folder}/metadata",
        }
    )


def is_first(folder: Path) -> bool:
    async def run() -> bool:
        return await is_first_start(RealEnvironment("test"), config_of(folder))

    return asyncio.run(run())


def format_all(folder: Path) -> None:
    for name in ("data-0", "data-1", "metadata"):
        (folder / name).mkdir()
        (folder / name / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=7\n")


def test_a_start_without_any_formatted_directory_is_the_first(tmp_path: Path) -> None:
    """An empty volume of ext4 holds lost+found, which does not count."""
    (tmp_path / "data-0" / "lost+found").mkdir(parents=True)
    assert is_first(tmp_path)


def test_a_later_start_is_not(tmp_path: Path) -> None:
    """A later start finds formatted directories, so it must not count as the first."""
    format_all(tmp_path)
    assert not is_first(tmp_path)


def test_an_empty_volume_among_formatted_ones_is_named(tmp_path: Path) -> None:
    """An empty directory among formatted ones may be a volume that was not mounted. It must not be formatted."""
    format_all(tmp_path)
    (tmp_path / "data-1" / "meta.properties").unlink()
    with pytest.raises(ToolError, match=rf"^Log directory {tmp_path}/data-1 is empty while .* is formatted.*--format-empty"):
        is_first(tmp_path)


def test_a_damaged_volume_among_formatted_ones_is_left_to_the_broker(tmp_path: Path) -> None:
    """The broker starts without the damaged volume and reports it offline."""
    format_all(tmp_path)
    (tmp_path / "data-1" / "meta.properties").write_bytes(b"version=1\nnode.id=x\n")
    assert not is_first(tmp_path)


def test_a_volume_that_cannot_be_used_at_the_first_start_is_named(tmp_path: Path) -> None:
    """Otherwise the first start would skip the volume, and every later start would find it empty among formatted ones."""
    (tmp_path / "data-1").write_bytes(b"a file, not a directory")
    with pytest.raises(ToolError, match=rf"^Log directory {tmp_path}/data-1 cannot be used: .*make it writable for user"):
        is_first(tmp_path)


def test_a_volume_of_another_user_is_named() -> None:
    """Docker creates a missing folder of the host as root. The first start names it and the user who must own it. Later, it
    counts as a volume that was not mounted."""
    formatted = f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=7\n".encode()

    async def scenario(world: SimulatedWorld) -> None:
        env = world.node("docker-run")
        world.disk("/v/data-1").fail_with(errno.EACCES, ["lock"])
        with pytest.raises(
            ToolError, match=r"^Log directory /v/data-1 cannot be used: lock on .* failed with EACCES.*make it writable for"
        ):
            await is_first_start(env, config_of(Path("/v")))
        for path in ("/v/data-0", "/v/metadata"):
            log_dir = env.log_dir(path, operation_timeout_ns=10**9)
            await log_dir.attach(create=True)
            await log_dir.replace_file("meta.properties", formatted)
            await log_dir.close()
        with pytest.raises(ToolError, match=r"^Log directory /v/data-1 is empty while /v/data-0 is formatted"):
            await is_first_start(env, config_of(Path("/v")))

    SimulatedWorld(seed=1).run(scenario)


def test_the_node_is_configured_formatted_once_and_becomes_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Only environment variables are given, and an empty KAFKA_LISTENERS counts as not set. execv is recorded instead of
    called. Only the first start formats. A start without one of the volumes is refused until --format-empty formats it."""
    final = tmp_path / "config" / "server.properties"
    started: list[list[str]] = []
    monkeypatch.setattr("tools.node.docker_run.FINAL_FILE", final)
    monkeypatch.setattr("tools.node.docker_run.MOUNTED_FILE", tmp_path / "absent")
    monkeypatch.setattr("os.execv", lambda _path, arguments: started.append(arguments))
    variables = {
        "CLUSTER_ID": "AAAAAAAAAAAAAAAAAAAAZA",
        "KAFKA_PROCESS_ROLES": "broker",
        "KAFKA_NODE_ID": "7",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "100@controller:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENERS": "",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
        "KAFKA_LOG_DIRS": f"{tmp_path}/data-0,{tmp_path}/data-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main([]) == 0
    assert read_properties(str(final)).values["listeners"] == "PLAINTEXT://0.0.0.0:9092"
    assert "cluster.id=AAAAAAAAAAAAAAAAAAAAZA" in (tmp_path / "data-1" / "meta.properties").read_text()
    assert capfd.readouterr().out.count("Formatting ") == 2
    assert main([]) == 0
    assert capfd.readouterr().out == ""
    assert [arguments[1:] for arguments in started] == [["-m", "tools.node.server_start", str(final)]] * 2
    shutil.rmtree(tmp_path / "data-1")
    assert main([]) == 1
    assert f"Log directory {tmp_path}/data-1 is empty" in capfd.readouterr().err
    assert main(["--format-empty"]) == 0
    assert (tmp_path / "data-1" / "meta.properties").exists()
    assert len(started) == 2


def test_a_mounted_file_with_a_key_that_is_set_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The file that is written for the node has each key once, so the container itself warns."""
    mounted = tmp_path / "server.properties"
    mounted.write_text("node.id=1\nnode.id=2\n")
    assert node_properties({}, mounted) == {"node.id": "2"}
    warning = "node.id is set more than once (lines 1, 2); all but the last are ignored"
    assert capfd.readouterr().err == f"{mounted}: {warning}\n"


def test_without_any_configuration_it_is_one_complete_node(tmp_path: Path) -> None:
    """Variables of the shell and of the JVM do not count as configuration."""
    properties = node_properties({"PATH": "/bin", "KAFKA_HEAP_OPTS": "-Xmx1g"}, tmp_path / "absent")
    assert properties == DEFAULT_PROPERTIES
    assert load_server_config(properties).warnings == ()


def test_variables_beat_the_mounted_file_and_either_replaces_the_default(tmp_path: Path) -> None:
    """Variables override the mounted file. Either of the two replaces the default. Kafka's official image does the same."""
    mounted = tmp_path / "server.properties"
    mounted.write_text("node.id=1\nnum.partitions=3\n")
    assert node_properties({"KAFKA_NODE_ID": "2"}, mounted) == {"node.id": "2", "num.partitions": "3"}
    assert node_properties({"KAFKA_NODE_ID": "2"}, tmp_path / "absent") == {"node.id": "2"}


def test_listeners_follow_from_the_advertised_ones(tmp_path: Path) -> None:
    """Without KAFKA_LISTENERS, the listeners are the advertised ones with 0.0.0.0 in place of each host."""
    given = {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://broker-1:19092,OUT://127.0.0.1:29092"}
    properties = node_properties(given, tmp_path / "absent")
    assert properties["listeners"] == "PLAINTEXT://0.0.0.0:19092,OUT://0.0.0.0:29092"


def test_a_controller_advertises_nothing(tmp_path: Path) -> None:
    """Advertised listeners are refused for a controller, with an error that names the variable."""
    given = {"KAFKA_PROCESS_ROLES": "controller", "KAFKA_ADVERTISED_LISTENERS": "CONTROLLER://c:9093"}
    with pytest.raises(ToolError, match="KAFKA_ADVERTISED_LISTENERS"):
        node_properties(given, tmp_path / "absent")


@pytest.mark.parametrize(
    ("quorum", "flags"),
    [
        ("controller.quorum.voters=1@localhost:9093", []),
        ("controller.quorum.bootstrap.servers=localhost:9093", ["--standalone"]),
    ],
)
def test_a_controller_without_voters_is_formatted_as_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quorum: str, flags: list[str]
) -> None:
    """The mounted file may be that of Kafka 4.1. A container's user cannot pass --standalone."""
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    mounted = tmp_path / "mounted.properties"
    mounted.write_text(
        f"process.roles=broker,controller\nnode.id=1\n{quorum}\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://:9092,CONTROLLER://:9093\nlog.dirs={tmp_path / 'data'}\n"
    )
    calls: list[list[str]] = []
    monkeypatch.setattr(docker_run, "MOUNTED_FILE", mounted)
    monkeypatch.setattr(docker_run, "FINAL_FILE", tmp_path / "final.properties")
    monkeypatch.setattr(docker_run, "_become_server", lambda path: calls.append(["server", str(path)]))

    def format_(arguments: list[str]) -> int:
        calls.append(arguments[5:])
        return 0

    monkeypatch.setattr(storage, "main", format_)
    assert docker_run.main([]) == 0
    assert calls == [["--ignore-formatted", *flags], ["server", str(tmp_path / "final.properties")]]


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with a read-only root file system. A file stands where the folder should be, because root may write anywhere."""
    (tmp_path / "config").write_text("")
    monkeypatch.setattr(docker_run, "MOUNTED_FILE", tmp_path / "absent")
    monkeypatch.setattr(docker_run, "FINAL_FILE", tmp_path / "config" / "server.properties")
    assert docker_run.main([]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cannot write {tmp_path}/config/server.properties: ")
    assert f"mount a tmpfs at {tmp_path}/config that user {os.geteuid()} may write to" in line
