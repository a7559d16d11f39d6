"""Uses docker-compose.yml as a user would: starts the cluster, produces and consumes from this machine, and loses volumes.

One volume of the cluster is a loop-mounted disk, so that it can really die. On a machine without access to an image
registry, set BASE_IMAGE and PROMETHEUS_IMAGE to local images.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from common.protocol.messages.list_offsets import LATEST, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.blocking_admin import BlockingAdmin
from tests.integration.loop_disks import unmount_lazily
from tests.integration.monitoring import POLL_SECONDS, ROOT, Prometheus, need_program, not_testable, until
from tests.interop.topics import create_topic, wait_until_in_sync
from tools.lab.disk_lab import Disk, kill_disk, make_disk, remove_disk, why_no_loop_disks
from tools.lab.local_cluster import free_ports

pytestmark = [pytest.mark.root, pytest.mark.slow]

IMAGE = "diskraft-test"
BUILD_STAGE = "diskraft-test-build"
PROJECT = f"diskraft-test-{os.getpid()}"
LABEL = f"label=com.docker.compose.project={PROJECT}"
APPUSER = 1000
MIB = 1024 * 1024
PARTITIONS = 6
TOPIC = "t"
OFFLINE = "kafka_log_logmanager_logdirectoryoffline"


def run(*command: str, check: bool = True, seconds: float = 300) -> str:
    """Runs a command and returns its stdout. A failure shows all output."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds, stdin=subprocess.DEVNULL
    )
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Builds the image of this checkout, and removes it afterwards. The base image and Prometheus's image stay."""
    need_program("docker", "docker.io")
    if not run("docker", "info", "--format", "{{.ServerVersion}}", check=False).strip():
        not_testable("no Docker engine answers")
    base = os.environ.get("BASE_IMAGE", "python:3.11-slim-bookworm")
    for each in (base, os.environ.get("PROMETHEUS_IMAGE", "prom/prometheus:v2.55.1")):
        if not image_size(each):
            run("docker", "pull", "--quiet", each, check=False)
        if not image_size(each):
            not_testable(f"the image {each} is not here and cannot be had")
    arguments = ["--build-arg", f"BASE_IMAGE={base}"]
    if "PIP_INDEX_URL" in os.environ:
        arguments += ["--build-arg", "PIP_INDEX_URL"]
    command = ("docker", "build", "--quiet", "--file", "deploy/Dockerfile", *arguments)
    # Tag the first stage, so that it can be removed too.
    run(*command, "--target", "build", "--tag", BUILD_STAGE, ".")
    run(*command, "--tag", IMAGE, ".")
    size, base_size = image_size(IMAGE), image_size(base)
    print(f"image size: {size / MIB:.1f} MiB, {(size - base_size) / MIB:.1f} MiB of it above {base}")
    page = " ".join((ROOT / "docs" / "operations.md").read_text().split())
    said = re.search(r"about (\d+) MiB above its base image", page)
    assert said is not None and size - base_size == pytest.approx(int(said[1]) * MIB, rel=0.2)
    yield IMAGE
    run("docker", "image", "rm", IMAGE, BUILD_STAGE)


def image_size(name: str) -> int:
    return int(run("docker", "image", "inspect", "--format", "{{.Size}}", name, check=False).strip() or 0)


# --- the image ---------------------------------------------------------------------------------------------------------


@contextmanager
def container(image: str, *options: str) -> Iterator[str]:
    """Runs a container in the background. Removes it and its volumes afterwards."""
    name = run("docker", "run", "--detach", *options, image).strip()
    try:
        yield name
    finally:
        run("docker", "rm", "--force", "--volumes", name)


def health(name: str) -> str:
    return run("docker", "inspect", "--format", "{{.State.Health.Status}}", name).strip()


def test_without_configuration_it_is_a_node_that_ends_in_order(image: str) -> None:
    """The combined node becomes healthy, answers kafka-cluster, runs as an unprivileged user, and shuts down on SIGTERM."""
    with container(image) as name:
        until(lambda: health(name) == "healthy", "the node is healthy")
        assert run("docker", "exec", name, "id", "--user").strip() == str(APPUSER)
        assert "Cluster ID: 5L6g3nShT-eMCtK--X86sw" in run(
            "docker", "exec", name, "kafka-cluster", "cluster-id", "--bootstrap-server", "localhost:9092"
        )
        run("docker", "stop", "--time", "40", name)
        assert run("docker", "inspect", "--format", "{{.State.ExitCode}}", name).strip() == "0"
        logs = subprocess.run(["docker", "logs", name], capture_output=True, text=True, check=True, timeout=60).stderr
        assert '"broker_stopped"' in logs


def test_a_stop_right_after_the_start_is_not_lost(image: str) -> None:
    """The node ends cleanly, although it does not handle signals yet when SIGTERM comes."""
    with container(image) as name:
        run("docker", "stop", "--time", "40", name)
        assert run("docker", "inspect", "--format", "{{.State.ExitCode}}", name).strip() == "0"


def test_a_configuration_that_is_wrong_is_one_line(image: str) -> None:
    """The container exits with status 1 and no traceback."""
    done = subprocess.run(
        ["docker", "run", "--rm", "--env", "KAFKA_PROCESS_ROLES=brokr", image],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    (line,) = (done.stdout + done.stderr).splitlines()
    assert "process.roles=brokr is not valid" in line


# --- the cluster -------------------------------------------------------------------------------------------------------


class Compose:
    """The project of docker-compose.yml, with free ports and a loop-mounted disk as one volume."""

    def __init__(self, override: Path) -> None:
        ports = free_ports(4)
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports[:3])
        self.prometheus = Prometheus(ports[3])
        self._command = compose_command()
        self._files = ["--file", str(ROOT / "docker-compose.yml"), "--file", str(override)]
        self.environment = os.environ | {
            "DISKRAFT_IMAGE": IMAGE,
            **{f"BROKER_{number}_PORT": str(port) for number, port in enumerate(ports[:3], start=1)},
            "PROMETHEUS_PORT": str(ports[3]),
            # For commands of the pages, which name neither.
            "COMPOSE_FILE": f"{ROOT / 'docker-compose.yml'}:{override}",
            "COMPOSE_PROJECT_NAME": PROJECT,
        }

    def __call__(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [*self._command, *self._files, "--project-name", PROJECT, *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        output = done.stdout + done.stderr
        assert not check or done.returncode == 0, f"{' '.join(arguments)}: {output}"
        return output

    def container(self, service: str) -> str:
        """Returns the id of the service's container, running or not."""
        label = f"label=com.docker.compose.service={service}"
        one_off = "label=com.docker.compose.oneoff=False"
        names = run("docker", "ps", "--all", "--quiet", "--filter", LABEL, "--filter", label, "--filter", one_off).split()
        assert len(names) == 1, (service, names)
        return names[0]

    def wait_until_healthy(self, *services: str) -> None:
        for service in services:
            until(lambda service=service: health(self.container(service)) == "healthy", f"{service} is healthy")  # type: ignore[misc]


def compose_command() -> list[str]:
    """Returns the command of Compose v2 if it is installed, or else of v1."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False, timeout=60).returncode == 0:
        return ["docker", "compose"]
    return [need_program("docker-compose", "docker-compose")]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A loop-mounted disk that the image's user may write to."""
    reason = why_no_loop_disks(tmp_path)
    if reason is not None:
        not_testable(f"no loop-mounted disks here: {reason}")
    path = tmp_path / "disk"
    make_disk(path)
    os.chown(path, APPUSER, APPUSER)
    yield path
    if Disk(path).is_mounted:
        unmount_lazily(path)
    remove_disk(path)


@pytest.fixture
def compose(image: str, disk: Path, tmp_path: Path) -> Iterator[Compose]:
    """The Compose project. It is always removed afterwards, with its volumes."""
    override = tmp_path / "override.yml"
    options = {"type": "none", "o": "bind", "device": str(disk)}
    override.write_text(json.dumps({"volumes": {"broker-2-data-1": {"driver_opts": options}}}))
    made = Compose(override)
    try:
        yield made
    finally:
        made("down", "--volumes", "--timeout", "10", check=False)


def left_over() -> list[str]:
    """Returns the containers, volumes and networks of the project that still exist."""
    commands = (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
    return [name for command in commands for name in run("docker", *command, "--quiet", "--filter", LABEL).split()]


def produce(bootstrap: str, values: range) -> None:
    """Produces each of these values once, with acks=all. All must be acknowledged."""
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 60_000})
    for value in values:
        producer.produce(
            TOPIC,
            str(value),
            partition=value % PARTITIONS,
            on_delivery=lambda error, _: errors.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert errors == []


def consumed(compose: Compose, count: int) -> list[int]:
    """Consumes `count` records from the beginning, and returns their values sorted. If they do not come, the failure says
    how many came of each partition, and what the brokers know of it."""
    consumer = Consumer({"bootstrap.servers": compose.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: list[Message] = []

    def all_there() -> bool:
        for message in consumer.consume(count, timeout=1):
            assert message.error() is None, message.error()
            found.append(message)
        return len(found) >= count

    try:
        until(all_there, f"{count} records are read")
    except AssertionError as error:
        read = Counter(message.partition() for message in found)
        raise AssertionError(f"{error}\nread of each partition: {read}\n{state_of_topic(compose)}") from error
    finally:
        consumer.close()
    return sorted(int(message.value() or b"") for message in found)


def state_of_topic(compose: Compose) -> str:
    """Returns what the brokers say of each partition, and the last lines of every node's log."""
    lines: list[str] = []
    with BlockingAdmin(compose.bootstrap) as admin:
        for part in admin.metadata([TOPIC]).topics[0].partitions:
            asked = ListOffsetsPartition(partition_index=part.partition_index, timestamp=LATEST)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])
            end = admin.send(request, part.leader_id).topics[0].partitions[0] if part.leader_id >= 0 else None
            lines.append(f"{part}, end for consumers: {end}")
    return "\n".join([*lines, compose("logs", "--no-color", "--tail", "50", check=False)])


def test_up_produce_consume_lose_volumes_and_down(compose: Compose, disk: Path) -> None:
    """Goes through the whole life of the cluster in one test, because every step needs the one before."""
    compose("up", "--detach", "--no-build")
    compose.wait_until_healthy("controller", "broker-1", "broker-2", "broker-3", "prometheus")
    create_topic(compose.bootstrap, TOPIC, partitions=PARTITIONS)
    produce(compose.bootstrap, range(100))
    assert consumed(compose, 100) == list(range(100))
    until(lambda: compose.prometheus.value("sum(up)") == 4, "every node is scraped")
    until(lambda: compose.prometheus.value(f"count({OFFLINE} == 0)") == 9, "nine directories are online")

    replace_a_volume(compose)
    count = recreate_one_after_the_other(compose, 100)

    # The disk under a volume dies. The broker continues with its other directories, and no acknowledged record is lost.
    kill_disk(disk)
    dead = {"instance": "broker-2:9404", "logDirectory": "/var/lib/kafka/data-1"}
    until(lambda: offline_directories(compose) == [dead], "Prometheus shows the dead disk")
    until(lambda: compose.prometheus.firing("LogDirectoryOffline"), "the alert fires")
    produce(compose.bootstrap, range(count, count + 100))
    assert consumed(compose, count + 100) == list(range(count + 100))

    # docs/operations.md describes how to make a directory fail without a loop device: remove its permissions. It is another
    # directory of the same broker, so that every partition keeps two replicas. With fewer than min.insync.replicas, the high
    # watermark does not advance (KIP-966), and a new leader may not have learned yet that the last records are committed.
    compose("exec", "-T", "--user", "root", "broker-2", "chmod", "000", "/var/lib/kafka/data-0")
    locked = {"instance": "broker-2:9404", "logDirectory": "/var/lib/kafka/data-0"}
    until(lambda: offline_directories(compose) == [locked, dead], "Prometheus shows both")
    assert consumed(compose, count + 100) == list(range(count + 100))
    assert [health(compose.container(f"broker-{number}")) for number in (1, 2, 3)] == ["healthy"] * 3
    compose("exec", "-T", "--user", "root", "broker-2", "chmod", "755", "/var/lib/kafka/data-0")
    compose("restart", "broker-2")
    until(lambda: offline_directories(compose) == [dead], "the directory is back")

    compose("down", "--volumes")
    assert left_over() == []


def offline_directories(compose: Compose) -> list[dict[str, str]]:
    found = [labels for labels, _ in compose.prometheus.query(f"{OFFLINE} == 1")]
    wanted = ("instance", "logDirectory")
    return sorted(({key: labels[key] for key in wanted} for labels in found), key=lambda labels: tuple(labels.values()))


def replace_a_volume(compose: Compose) -> None:
    """Empties a volume of a broker. The broker refuses to start with it until an operator formats the volume."""
    path = "/var/lib/kafka/data-2"
    compose("stop", "broker-1")
    compose("run", "--rm", "--no-deps", "--user", "root", "broker-1", "sh", "-c", f"rm -r {path}/*")
    compose("start", "broker-1")
    name = compose.container("broker-1")
    assert run("docker", "wait", name, seconds=60).strip() == "1"
    assert f"Log directory {path} is empty while /var/lib/kafka/data-0 is formatted" in compose("logs", "broker-1")
    compose("run", "--rm", "--no-deps", "broker-1", "python", "-m", "tools.node.docker_run", "--format-empty")
    compose("start", "broker-1")
    compose.wait_until_healthy("broker-1")
    with BlockingAdmin(compose.bootstrap) as admin:
        wait_until_in_sync(admin, TOPIC, partitions=PARTITIONS, replication_factor=3)


def recreate_one_after_the_other(compose: Compose, count: int) -> int:
    """Runs the loop of docs/operations.md that updates the nodes, while a client writes the values from `count` on. The
    image is the same, so Compose has to be told to recreate the containers. Returns the number of values afterwards."""
    page = (ROOT / "docs" / "operations.md").read_text()
    loop = re.search(r"^    for node in controller broker-1 .*?^    done$", page, re.DOTALL | re.MULTILINE)
    assert loop is not None
    script = loop[0].replace("up -d", "up -d --force-recreate").replace("127.0.0.1:29092,127.0.0.1:39092", compose.bootstrap)
    script = script.replace("docker-compose", " ".join(compose_command()))
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    nodes = ("controller", "broker-1", "broker-2", "broker-3")
    before = [compose.container(node) for node in nodes]
    with subprocess.Popen(
        ["timeout", "300", "bash", "-c", script], cwd=ROOT, env=compose.environment | {"PATH": path}
    ) as update:
        while update.returncode is None:
            produce(compose.bootstrap, range(count, count + 10))
            count += 10
            with suppress(subprocess.TimeoutExpired):
                update.wait(POLL_SECONDS)
    assert update.returncode == 0
    assert not set(before) & {compose.container(node) for node in nodes}
    assert consumed(compose, count) == list(range(count))
    return count


def test_the_brokers_of_a_host(image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Follows docs/sizing.md, with folders and ports of the test. A folder that is missing is named by Compose, one of
    another user by the broker, which comes back by itself once that is mended. With the right folders both brokers are
    healthy."""
    ports = free_ports(5)
    folders = {name: tmp_path / name for name in ("METADATA_1", "METADATA_2", "DISK_1", "DISK_2", "DISK_3", "DISK_4")}
    values = {"HOST": "h", "ADDRESS": "127.0.0.1", "FIRST_ID": "1", "SECOND_ID": "2", "VOTERS": f"9@127.0.0.1:{ports[0]}"}
    for name, value in {**values, **{name: str(path) for name, path in folders.items()}, "DISKRAFT_IMAGE": image}.items():
        monkeypatch.setenv(name, value)
    override = tmp_path / "override.yml"
    services = {
        f"broker-{number}": {
            "environment": {
                "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{ports[2 * number - 1]}",
                "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{ports[2 * number - 1]}",
                "KAFKA_DISKRAFT_PROMETHEUS_LISTENER": f"127.0.0.1:{ports[2 * number]}",
            }
        }
        for number in (1, 2)
    }
    override.write_text(json.dumps({"services": services}))
    project = f"{PROJECT}-host"
    files = ("--file", "deploy/brokers-of-a-host.yml", "--file", str(override), "--project-name", project)

    def compose(*arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [*compose_command(), *files, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
        )
        output = done.stdout + done.stderr
        assert not check or done.returncode == 0, output
        return output

    def broker(number: int) -> str:
        label = f"label=com.docker.compose.service=broker-{number}"
        project_label = f"label=com.docker.compose.project={project}"
        return run("docker", "ps", "--all", "--quiet", "--filter", project_label, "--filter", label).strip()

    controller = [
        *("--network", "host", "--env", "KAFKA_PROCESS_ROLES=controller", "--env", "KAFKA_NODE_ID=9"),
        *("--env", "KAFKA_LOG_DIRS=/var/lib/kafka/metadata", "--env", f"KAFKA_LISTENERS=CONTROLLER://127.0.0.1:{ports[0]}"),
        *(
            "--env",
            "KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER",
            "--env",
            f"KAFKA_CONTROLLER_QUORUM_VOTERS={values['VOTERS']}",
        ),
    ]
    try:
        for name, path in folders.items():
            if name != "DISK_2":
                path.mkdir()
                os.chown(path, APPUSER, APPUSER)
        assert str(folders["DISK_2"]) in compose("up", "--detach", check=False)
        assert not folders["DISK_2"].exists()
        folders["DISK_2"].mkdir()
        with container(image, *controller):
            compose("up", "--detach")
            until(lambda: f"make it writable for user {APPUSER}" in compose("logs", "broker-1"), "the folder is named")
            assert "Log directory /var/lib/kafka/data-1 cannot be used" in compose("logs", "broker-1")
            # Docker starts the broker again, without a command.
            os.chown(folders["DISK_2"], APPUSER, APPUSER)
            for number in (1, 2):
                until(lambda number=number: health(broker(number)) == "healthy", f"broker {number} is healthy")  # type: ignore[misc]
            compose("down")
    finally:
        compose("down", "--timeout", "10", check=False)


def test_both_generations_of_compose_accept_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads docker-compose.yml and the example for a host with each installed version of Compose. The first needs neither
    variables nor a .env file, the second needs what its head says. No container's log can fill the system's disk."""
    known = [["docker-compose"]] if shutil.which("docker-compose") else []
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False, timeout=60).returncode == 0:
        known.append(["docker", "compose"])
    if not known:
        not_testable("neither docker-compose nor docker compose is here")

    def services(command: list[str], file: str) -> list[str]:
        found = sorted(run(*command, "--file", file, "config", "--services").split())
        assert run(*command, "--file", file, "config").count("max-size: 50m") == len(found), "every log is bounded"
        return found

    for command in known:
        assert services(command, "docker-compose.yml") == ["broker-1", "broker-2", "broker-3", "controller", "prometheus"]
    for name, value in (
        ("HOST", "h"),
        ("ADDRESS", "10.0.0.1"),
        ("FIRST_ID", "1"),
        ("SECOND_ID", "2"),
        ("VOTERS", "9@c:9093"),
    ):
        monkeypatch.setenv(name, value)
    for command in known:
        assert services(command, "deploy/brokers-of-a-host.yml") == ["broker-1", "broker-2"]
