"""A local cluster of real daemons in one folder: create, start, stop, kill and watch it (shell).

Used by `diskraft local`, by the demo and by the integration tests. Each node is a process of its own with a log file of JSON
lines; events in that file show when the node is ready. The folder outlives the process that created the cluster, so
everything that a later command needs is in `cluster.json` and in pid files.
"""

import contextlib
import errno
import fcntl
import itertools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tools.errors import ToolError
from tools.lab.disk_lab import Disk, make_disk, remove_disk

CLUSTER_FILE = "cluster.json"
CONTROLLER_ID = 100
PORT_MAX = 65535
# Below the ports that Linux gives to outgoing connections (from 32768): none of those takes the port of a node that is down.
FREE_PORTS_FIRST = 20_000
FREE_PORTS_COUNT = 12_000
# Processes begin at different ports, so that few of them meet.
FREE_PORTS_STEP = 997
POLL_SECONDS = 0.02
START_SECONDS = 120.0
STOP_SECONDS = 45.0
# Kafka's default of offsets.topic.replication.factor and transaction.state.log.replication.factor.
OFFSETS_REPLICATION_FACTOR = 3

_port_numbers = itertools.count(os.getpid() * FREE_PORTS_STEP)


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The paths and addresses of one node. `port` is the port of its listener."""

    name: str
    node_id: int
    role: str
    port: int
    config: str
    log: str
    pid_file: str
    data_dirs: tuple[str, ...]
    metadata_dir: str
    host: str = "127.0.0.1"

    @property
    def address(self) -> str:
        """The address that clients connect to."""
        return f"{self.host}:{self.port}"


class LocalNode:
    """One daemon process."""

    def __init__(self, files: NodeFiles) -> None:
        self.files = files
        self.prefix: tuple[str, ...] = ()
        """A command prefix to start the daemon with, for example to enter a network namespace."""
        self._process: subprocess.Popen[bytes] | None = None
        self._log_position = 0

    @property
    def pid(self) -> int | None:
        """The process id while the node is running, else None."""
        if self._process is not None:
            return self._process.pid if self._process.poll() is None else None
        try:
            pid = int(Path(self.files.pid_file).read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if self.files.config.encode() in command else None

    def command(self) -> list[str]:
        """Returns the command line of the daemon."""
        return [sys.executable, "-m", "tools.node.server_start", self.files.config]

    def start(self) -> None:
        """Starts the process. Use `wait_for` to wait until it is ready."""
        if self.pid is not None:
            raise ToolError(f"{self.files.name} is already running (process {self.pid})")
        log = Path(self.files.log)
        self._log_position = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*self.prefix, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=os.environ | {"LOG_FORMAT": "json", "PYTHONPATH": _source_root()},
            )
        Path(self.files.pid_file).write_text(f"{self._process.pid}\n")

    def wait_for(self, event: str, *, seconds: float = START_SECONDS, **fields: object) -> dict[str, Any]:
        """Waits for an event with this name and these fields since the last start. Raises ToolError if the process ends or
        time runs out first."""
        deadline = time.monotonic() + seconds
        while True:
            for found in self.events(mentioning=event):
                if found.get("event") == event and all(found.get(key) == value for key, value in fields.items()):
                    return found
            if self.pid is None:
                raise ToolError(f"{self.files.name} ended before {event}: {self.last_line()} (see {self.files.log})")
            if time.monotonic() > deadline:
                raise ToolError(f"{self.files.name} did not report {event} within {seconds:g} s (see {self.files.log})")
            time.sleep(POLL_SECONDS)

    def events(self, *, mentioning: str = "") -> Iterator[dict[str, Any]]:
        """Returns the events since the last start whose line contains this text, oldest first."""
        try:
            with Path(self.files.log).open("rb") as log:
                log.seek(self._log_position)
                lines = log.read().split(b"\n")
        except FileNotFoundError:
            return
        for line in lines[:-1]:
            if line.startswith(b"{") and mentioning.encode() in line:
                yield json.loads(line)

    def last_line(self) -> str:
        """Returns the last line of the log, for an error message."""
        log = Path(self.files.log)
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return lines[-1] if lines else "it printed nothing"

    def signal(self, number: int) -> None:
        """Sends a signal if the node is running."""
        pid = self.pid
        if pid is not None:
            # The process may be ending at this moment.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait_until_ended(self, *, seconds: float = STOP_SECONDS) -> int | None:
        """Waits for the process to end. Returns the exit status, or None if the process is not our child. Raises ToolError
        if it does not end in time."""
        if self._process is not None:
            try:
                return self._process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                raise ToolError(f"{self.files.name} did not end within {seconds:g} s (process {self.pid})") from None
        pid = self.pid
        if pid is None:
            return None
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        try:
            ready, _, _ = select.select([descriptor], [], [], seconds)
        finally:
            os.close(descriptor)
        if not ready:
            raise ToolError(f"{self.files.name} did not end within {seconds:g} s (process {pid})")
        return None

    def stop(self) -> int | None:
        """Sends SIGTERM, for a controlled shutdown, and waits for the process to end."""
        self.signal(signal.SIGTERM)
        return self.wait_until_ended()

    def kill(self) -> None:
        """Sends SIGKILL and waits for the process to end."""
        self.signal(signal.SIGKILL)
        self.wait_until_ended()


class LocalCluster:
    """A controller and brokers in one folder."""

    def __init__(
        self,
        folder: Path,
        cluster_id: str,
        nodes: list[NodeFiles],
        *,
        loop: bool,
        disk_mib: int | None = None,
        overrides: Mapping[str, str] | None = None,
        has_run: bool = True,
    ) -> None:
        self.folder = folder
        self.cluster_id = cluster_id
        self.loop = loop
        # None if cluster.json is of a version that did not store them.
        self.disk_mib = disk_mib
        self.overrides = overrides
        # Whether all nodes have been ready once. Before that, the cluster holds no data of a user.
        self.has_run = has_run
        self.nodes = {files.name: LocalNode(files) for files in nodes}

    @property
    def controller(self) -> LocalNode:
        return next(node for node in self.nodes.values() if node.files.role == "controller")

    @property
    def brokers(self) -> list[LocalNode]:
        return [node for node in self.nodes.values() if node.files.role == "broker"]

    @property
    def bootstrap(self) -> str:
        """The bootstrap.servers for clients."""
        return ",".join(node.files.address for node in self.brokers)

    def broker(self, node_id: int) -> LocalNode:
        return next(node for node in self.brokers if node.files.node_id == node_id)

    @classmethod
    def load(cls, folder: Path) -> "LocalCluster":
        """Loads the cluster that an earlier command created. Raises ToolError."""
        try:
            content = json.loads((folder / CLUSTER_FILE).read_text())
            nodes = [NodeFiles(**(node | {"data_dirs": tuple(node["data_dirs"])})) for node in content["nodes"]]
            return cls(
                folder,
                content["cluster_id"],
                nodes,
                loop=content["loop"],
                disk_mib=content.get("disk_mib"),
                overrides=content.get("overrides"),
                has_run=content.get("has_run", True),
            )
        except FileNotFoundError:
            raise ToolError(f"{folder} holds no cluster; `diskraft local up --dir {folder}` creates one") from None
        except OSError as error:
            raise ToolError(f"{folder / CLUSTER_FILE} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = str(error) if isinstance(error, ValueError) else repr(error)
            raise ToolError(f"{folder / CLUSTER_FILE} is damaged ({why}); restore it, or remove {folder}") from error

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        brokers: int,
        disks: int,
        loop: bool,
        disk_mib: int = 256,
        first_port: int | None = None,
        first_node_id: int = 1,
        controller_id: int = CONTROLLER_ID,
        overrides: Mapping[str, str] | None = None,
        features: Mapping[str, str] | None = None,
        on_formatted: Callable[[LocalNode], None] = lambda _node: None,
    ) -> "LocalCluster":
        """Creates folders, disks and configuration, and formats every node, with the defaults of `kafka-storage format` for
        what `features` does not name. Starts no node. Raises ToolError."""
        if (folder / CLUSTER_FILE).exists():
            raise ToolError(f"{folder} already holds a cluster; `diskraft local down --dir {folder} --delete` removes it")
        make_own_folder(folder)
        ports = free_ports(brokers + 1) if first_port is None else [first_port + index for index in range(brokers + 1)]
        cluster_id = _tool("tools.kafka.storage", "random-uuid").strip()
        nodes = [
            _node_files(folder, f"broker-{first_node_id + n}", first_node_id + n, "broker", ports[n], disks)
            for n in range(brokers)
        ]
        nodes.append(_node_files(folder, "controller", controller_id, "controller", ports[-1], 0))
        cluster = cls(folder, cluster_id, nodes, loop=loop, disk_mib=disk_mib, overrides=overrides or {}, has_run=False)
        # Write this first, so that a later command can remove the cluster even if the rest fails.
        cluster._store()
        try:
            for files in nodes:
                _make_directories(files, loop=loop, disk_mib=disk_mib)
                defaults = _internal_topics(brokers) | dict(overrides or {})
                text = _configuration(files, controller=nodes[-1], overrides=defaults)
                Path(files.config).write_text(text)
                levels = [f"--feature={name}={level}" for name, level in (features or {}).items()]
                _tool("tools.kafka.storage", "format", "--config", files.config, "--cluster-id", cluster_id, *levels)
                on_formatted(cluster.nodes[files.name])
        except (ToolError, KeyboardInterrupt):
            cluster.delete()
            raise
        return cluster

    def _store(self) -> None:
        description = {
            "cluster_id": self.cluster_id,
            "loop": self.loop,
            "disk_mib": self.disk_mib,
            "overrides": None if self.overrides is None else dict(self.overrides),
            "has_run": self.has_run,
            "nodes": [asdict(node.files) for node in self.nodes.values()],
        }
        unfinished = self.folder / f"{CLUSTER_FILE}.new"
        unfinished.write_text(json.dumps(description, indent=2) + "\n")
        unfinished.rename(self.folder / CLUSTER_FILE)

    def change_ports(self, first_port: int) -> None:
        """Gives the nodes other ports: the brokers first, the controller last. Lines of server.properties that were changed
        by hand are kept. The nodes must have ended."""
        controller = self.controller.files
        ports = {node.files.name: first_port + index for index, node in enumerate([*self.brokers, self.controller])}
        for name, node in self.nodes.items():
            old, new = node.files, replace(node.files, port=ports[name])
            changes = {
                _listeners_line(old): _listeners_line(new),
                _voters_line(controller): _voters_line(replace(controller, port=ports[controller.name])),
            }
            path = Path(old.config)
            lines = path.read_text().splitlines()
            path.write_text("".join(f"{changes.get(line, line)}\n" for line in lines))
            self.nodes[name] = LocalNode(new)
        self._store()

    def start(self, *, on_ready: Callable[[LocalNode], None] = lambda _node: None) -> None:
        """Starts every node that is not running and waits until each is ready."""
        started = [node for node in self.nodes.values() if node.pid is None]
        for node in started:
            node.start()
        # Brokers wait for the controller, so wait for it first.
        for node in sorted(started, key=lambda each: each.files.role != "controller"):
            node.wait_for("controller_active" if node.files.role == "controller" else "broker_running")
            on_ready(node)
        if not self.has_run:
            self.has_run = True
            self._store()

    def stop(self) -> None:
        """Shuts down the brokers cleanly, then the controller."""
        for node in self.brokers:
            node.signal(signal.SIGTERM)
        for node in self.brokers:
            node.wait_until_ended()
        self.controller.stop()

    def kill(self) -> None:
        """Kills every process at once."""
        for node in self.nodes.values():
            node.kill()

    def remove_disks(self) -> None:
        """Unmounts and deletes loop-mounted disks; plain directories stay. The nodes must have ended."""
        if self.loop:
            for node in self.nodes.values():
                for path in map(Path, node.files.data_dirs):
                    if Disk(path).exists:
                        remove_disk(path)

    def delete(self) -> None:
        """Removes the disks and everything the cluster created, then the folder if it is empty. The nodes must have
        ended."""
        self.remove_disks()
        for node in self.nodes.values():
            _remove_tree(Path(node.files.config).parent)
            Path(node.files.log).unlink(missing_ok=True)
        (self.folder / CLUSTER_FILE).unlink(missing_ok=True)
        # The user may keep other files in the folder; leave those alone.
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def free_ports(count: int) -> list[int]:
    """Returns ports that are free at this moment, and that no process which is still running has been given before. Raises
    ToolError."""
    ports: list[int] = []
    for number in itertools.islice(_port_numbers, FREE_PORTS_COUNT):
        port = FREE_PORTS_FIRST + number % FREE_PORTS_COUNT
        if _reserve(port) and is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ToolError(f"of {FREE_PORTS_COUNT} ports from {FREE_PORTS_FIRST} only {len(ports)} are free, of {count} needed")


def _reserve(port: int) -> bool:
    """Keeps other processes from choosing the port until this one ends, even if nothing listens on it. Returns False if
    another process has reserved it."""
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):
        return False
    return True


@cache
def _reservations() -> int:
    """Opens the file in which each process locks one byte for each of its ports. It is never closed, because that would
    release them."""
    path = Path(tempfile.gettempdir()) / f"diskraft-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def is_free(port: int) -> bool:
    """Returns whether a node could listen on the port."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def make_own_folder(folder: Path) -> None:
    """Creates the folder of a cluster, unless it is there and empty. What is in it is deleted with the cluster. Raises
    ToolError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ToolError(f"{folder} is not empty; a cluster needs a folder of its own, choose another one")
    except OSError as error:
        why = "it is not a directory" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise ToolError(f"{folder} cannot be used: {why}") from error


def check_ports(ports: Iterable[int]) -> None:
    """Raises ToolError for a port on which no process may listen, or on which another process listens already."""
    for port in ports:
        if not 0 < port <= PORT_MAX:
            raise ToolError(f"port {port} does not exist; --port takes 1 to {PORT_MAX}, with room for every node's port")
        with socket.socket() as probe:
            # As the daemons do. Otherwise a connection that was closed a minute ago would still occupy the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                probe.listen()
            except OSError as error:
                why = "in use by another process" if error.errno == errno.EADDRINUSE else f"not free ({error.strerror})"
                raise ToolError(f"port {port} is {why}; --port N takes another first port") from error


def _listeners_line(files: NodeFiles) -> str:
    listener = "CONTROLLER" if files.role == "controller" else "PLAINTEXT"
    return f"listeners={listener}://127.0.0.1:{files.port}"


def _voters_line(controller: NodeFiles) -> str:
    return f"controller.quorum.voters={controller.node_id}@127.0.0.1:{controller.port}"


def _node_files(folder: Path, name: str, node_id: int, role: str, port: int, disks: int) -> NodeFiles:
    home = folder / name
    return NodeFiles(
        name=name,
        node_id=node_id,
        role=role,
        port=port,
        config=str(home / "server.properties"),
        log=str(folder / f"{name}.log"),
        pid_file=str(home / "pid"),
        data_dirs=tuple(str(home / f"disk-{number}") for number in range(1, disks + 1)),
        metadata_dir=str(home / "metadata"),
    )


def _make_directories(files: NodeFiles, *, loop: bool, disk_mib: int) -> None:
    Path(files.metadata_dir).mkdir(parents=True)
    for path in files.data_dirs:
        if loop:
            make_disk(Path(path), size_mib=disk_mib)
        else:
            Path(path).mkdir()


def _internal_topics(brokers: int) -> dict[str, str]:
    """Returns the settings without which a cluster of one or two brokers could not create its internal topics."""
    if brokers >= OFFSETS_REPLICATION_FACTOR:
        return {}
    return {
        "offsets.topic.replication.factor": str(brokers),
        "transaction.state.log.replication.factor": str(brokers),
        "transaction.state.log.min.isr": "1",
    }


def _configuration(files: NodeFiles, *, controller: NodeFiles, overrides: Mapping[str, str]) -> str:
    lines = (
        f"process.roles={files.role}",
        f"node.id={files.node_id}",
        _voters_line(controller),
        "controller.listener.names=CONTROLLER",
        _listeners_line(files),
        f"log.dirs={','.join(files.data_dirs) or files.metadata_dir}",
        f"metadata.log.dir={files.metadata_dir}",
    )
    properties = dict(line.split("=", 1) for line in lines) | dict(overrides)
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def _tool(module: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": _source_root()},
    )
    if done.returncode != 0:
        raise ToolError((done.stderr or done.stdout).strip())
    return done.stdout


def _source_root() -> str:
    return str(Path(__file__).resolve().parents[2])


def _remove_tree(folder: Path) -> None:
    # Look for mounted disks before removing anything: rmtree would delete their contents.
    for parent, names, _ in os.walk(folder):
        for path in (Path(parent) / name for name in names):
            if Disk(path).is_mounted:
                raise ToolError(f"{path} is still mounted; `diskraft disks remove {path}` removes it")
    if folder.exists():
        shutil.rmtree(folder)
