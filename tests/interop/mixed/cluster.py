"""One cluster of Diskraft's nodes and Apache Kafka's, each a process of its own.

A node is described by the software that it runs. That can change while the node is down: both read the same
server.properties and the same directories. Readiness is seen from outside, in what the other nodes answer.
"""

import json
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from admin.errors import AdminError
from admin.quorum import describe_request
from common.protocol.api_keys import ApiKey
from common.protocol.messages.describe_quorum import DescribeQuorumResponse
from common.protocol.messages.metadata import MetadataResponsePartition
from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import disks_taken_away, uninterrupted, until
from tests.interop.mixed.relay import Relay
from tests.interop.mixed.releases import ApacheNode, Release
from tests.interop.our_tools import run_tool
from tools.lab.disk_lab import Disk, make_disk, remove_disk
from tools.lab.local_cluster import LocalNode, NodeFiles, free_ports

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
# The level that both sides know and that Diskraft's nodes have by default.
COMMON_LEVEL = "3.9"
READY_SECONDS = 120.0
# Java's exit status after a clean shutdown on SIGTERM.
TERMINATED = 143
DISK_MIB = 64
END_LINES = 30


@dataclass(frozen=True, slots=True)
class Node:
    """How a node begins. `release` is that of Apache Kafka; None means Diskraft."""

    node_id: int
    role: str
    release: Release | None = None
    disks: int = 1
    loop: bool = False
    format_options: tuple[str, ...] = ()
    # Whether the node is started with the others.
    starts: bool = True
    # Whether the node reaches the controllers through relays, so that its assignments can be held back.
    is_relayed: bool = False


class MixedCluster:
    """Nodes by id. `mixed_cluster` creates one."""

    def __init__(
        self, folder: Path, nodes: Sequence[Node], overrides: Mapping[str, str], level: str, *, has_fixed_voters: bool
    ) -> None:
        self.folder = folder
        self._has_fixed_voters = has_fixed_voters
        self._level = level
        # The nodes of ours that may end by themselves.
        self.expected_ends: set[int] = set()
        self._relayed = {node.node_id for node in nodes if node.is_relayed}
        self._members = [node.node_id for node in nodes if node.starts]
        self.nodes: dict[int, LocalNode] = {}
        self._ports = {node.node_id: free_ports(2) for node in nodes}
        ports = {node.node_id: self._ports[node.node_id][1] for node in nodes if "controller" in node.role}
        self.relays = {
            number: Relay(port, ApiKey.ASSIGN_REPLICAS_TO_DIRS) for number, port in ports.items() if self._relayed
        }
        self._voters = {
            node.node_id: ",".join(
                f"{number}@127.0.0.1:{self.relays[number].port if node.is_relayed else port}"
                for number, port in ports.items()
            )
            for node in nodes
        }
        for node in nodes:
            self._create(node, overrides)

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers that run."""
        return ",".join(node.files.address for node in self.brokers.values() if node.pid is not None)

    @property
    def brokers(self) -> dict[int, LocalNode]:
        return {number: node for number, node in self.nodes.items() if "broker" in node.files.role}

    def _create(self, node: Node, overrides: Mapping[str, str]) -> None:
        home = self.folder / f"node-{node.node_id}"
        disks = [home / f"disk-{number}" for number in range(1, node.disks + 1)]
        files = NodeFiles(
            name=home.name,
            node_id=node.node_id,
            role=node.role,
            port=self._ports[node.node_id][0 if "broker" in node.role else 1],
            config=str(home / "server.properties"),
            log=str(self.folder / f"{home.name}.log"),
            pid_file=str(home / "pid"),
            data_dirs=tuple(map(str, disks)),
            metadata_dir=str(home / "metadata"),
        )
        Path(files.metadata_dir).mkdir(parents=True)
        for path in disks:
            if node.loop:
                make_empty_disk(path)
            else:
                path.mkdir()
        self._write_properties(files, overrides)
        self.use(files, node.release)
        self.format(node.node_id, *node.format_options)

    def _write_properties(self, files: NodeFiles, overrides: Mapping[str, str]) -> None:
        port, controller_port = self._ports[files.node_id]
        listeners = {"broker": f"PLAINTEXT://127.0.0.1:{port}", "controller": f"CONTROLLER://127.0.0.1:{controller_port}"}
        properties = {
            "process.roles": files.role,
            "node.id": str(files.node_id),
            **self._quorum(files.node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners[role] for role in files.role.split(",")),
            "log.dirs": ",".join(files.data_dirs) or files.metadata_dir,
            "metadata.log.dir": files.metadata_dir,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
        }
        Path(files.config).write_text("".join(f"{key}={value}\n" for key, value in (properties | dict(overrides)).items()))

    def _quorum(self, node_id: int) -> dict[str, str]:
        voters = self._voters[node_id]
        if self._has_fixed_voters:
            return {"controller.quorum.voters": voters}
        # The addresses alone. The voters are in the metadata log (KIP-853).
        return {"controller.quorum.bootstrap.servers": ",".join(each.partition("@")[2] for each in voters.split(","))}

    def set_property(self, node_id: int, key: str, value: str) -> None:
        """Sets a key in the node's server.properties, to which its next start keeps."""
        path = Path(self.nodes[node_id].files.config)
        lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{key}=")]
        path.write_text("".join(f"{line}\n" for line in [*lines, f"{key}={value}"]))

    def use(self, files: NodeFiles, release: Release | None) -> LocalNode:
        """Lets the node run this software from its next start on."""
        node = LocalNode(files) if release is None else ApacheNode(files, release)
        self.nodes[files.node_id] = node
        return node

    def format(self, node_id: int, *options: str) -> None:
        """Formats the node's empty directories with the tool of the software that it runs."""
        node = self.nodes[node_id]
        level = ("--release-version", self._level)
        if isinstance(node, ApacheNode):
            node.release.format(node.files.config, CLUSTER_ID, "--ignore-formatted", *level, *options)
            return
        # What the directories of a mere broker say about levels and numbering is never read.
        chosen = (*level, "--directory-numbering", "apache") if "controller" in node.files.role else ()
        flags = ("--config", node.files.config, "--cluster-id", CLUSTER_ID, "--ignore-formatted")
        done = run_tool("storage", "format", *flags, *chosen, *options)
        assert done.status == 0, done

    # --- running -------------------------------------------------------------------------------------------------

    def start(self, *node_ids: int) -> None:
        """Starts these nodes, or all members. Waits until every broker that runs is unfenced and lists all of them."""
        for node_id in node_ids or self._members:
            self.nodes[node_id].start()
        self.until_running()

    def until_running(self) -> None:
        """Waits until every broker whose process runs is unfenced, and each of them lists all."""
        wanted = {number for number, node in self.brokers.items() if node.pid is not None}

        def is_running() -> bool:
            self.fail_if_ended(wanted)
            for number in wanted:
                try:
                    with BlockingAdmin(self.nodes[number].files.address) as admin:
                        if set(admin.brokers()) != wanted:
                            return False
                except AdminError:
                    return False
            return True

        until(is_running, f"brokers {sorted(wanted)} are unfenced", seconds=READY_SECONDS)

    def fail_if_ended(self, node_ids: set[int]) -> None:
        """Fails with the last line of a node that has ended."""
        for number in node_ids:
            node = self.nodes[number]
            assert node.pid is not None, f"{node.files.name} ended: {node.last_line()}"

    def kill(self, node_id: int) -> None:
        """Kills the node's process."""
        self.nodes[node_id].kill()

    def shut_down(self, node_id: int) -> int | None:
        """Shuts the node down in order and returns its exit status."""
        self.nodes[node_id].signal(signal.SIGTERM)
        return self.nodes[node_id].wait_until_ended(seconds=READY_SECONDS)

    def stop(self) -> dict[int, int | None]:
        """Shuts every node down in order: the brokers, then the controllers at once. Returns their exit statuses by id."""
        statuses: dict[int, int | None] = {}
        for only_controllers in (False, True):
            stopping = {
                number: node for number, node in self.nodes.items() if (node.files.role == "controller") == only_controllers
            }
            for node in stopping.values():
                node.signal(signal.SIGTERM)
            statuses |= {number: self.nodes[number].wait_until_ended(seconds=READY_SECONDS) for number in stopping}
        return statuses

    def is_relayed(self, node_id: int) -> bool:
        return node_id in self._relayed

    @contextmanager
    def assignments_held(self) -> Iterator[None]:
        """No relayed node can report where its replicas are until the context ends."""
        with ExitStack() as stack:
            for relay in self.relays.values():
                stack.enter_context(relay.holding())
            yield

    # --- asking --------------------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> dict[int, MetadataResponsePartition]:
        """Returns the topic's partitions as some broker describes them."""
        with BlockingAdmin(self.bootstrap) as admin:
            (found,) = admin.metadata([topic]).topics
        return {part.partition_index: part for part in found.partitions}

    def until_isr(self, topic: str, wanted: Mapping[int, set[int]]) -> dict[int, int]:
        """Waits until each of these partitions has this ISR and a leader. Returns the leaders."""

        def look() -> dict[int, int] | None:
            found = self.partitions(topic)
            if all(set(found[index].isr_nodes) == isr and found[index].leader_id in isr for index, isr in wanted.items()):
                return {index: found[index].leader_id for index in wanted}
            return None

        return until(look, f"{topic} has the ISRs {dict(wanted)}", seconds=READY_SECONDS)

    def places(self, topic: str, node_id: int) -> dict[int, str]:
        """Returns the directory of each of the topic's partitions on a broker, leaving out copies of replicas that move."""
        with BlockingAdmin(self.nodes[node_id].files.address) as admin:
            return {
                part.partition_index: result.log_dir
                for result in admin.log_dirs(node_id)
                for found in result.topics
                if found.name == topic
                for part in found.partitions
                if not part.is_future_key
            }

    def leader_of_quorum(self, admin: BlockingAdmin) -> int:
        """Returns the id of the active controller."""
        response: DescribeQuorumResponse = admin.send(describe_request())
        return response.topics[0].partitions[0].leader_id

    def failures(self) -> list[str]:
        """Returns the events with which a daemon of ours ends, and those that carry an exception."""
        found: list[str] = []
        for node in (node for number, node in self.nodes.items() if number not in self.expected_ends):
            # Where the software has changed, lines of Apache Kafka stand between the events.
            log = Path(node.files.log)
            lines = log.read_text(errors="replace").splitlines() if log.exists() else []
            events = [json.loads(line) for line in lines if line.startswith("{")]
            found += [str(event) for event in events if event["level"] == "critical" or "exception" in event]
        return found

    def tell(self) -> None:
        """Prints the end of every node's log, for the report of a failed test."""
        for node in self.nodes.values():
            log = Path(node.files.log)
            if log.exists():
                print(f"--- {log}")
                print("\n".join(line[:400] for line in log.read_text(errors="replace").splitlines()[-END_LINES:]))


def make_empty_disk(path: Path) -> None:
    """Mounts an empty disk at the path. A dead disk that is there is removed first."""
    if Disk(path).exists:
        remove_disk(path)
    make_disk(path, size_mib=DISK_MIB)
    # Apache Kafka does not start with a folder in its log.dirs that is no partition's.
    (path / "lost+found").rmdir()


@contextmanager
def mixed_cluster(
    folder: Path,
    nodes: Sequence[Node],
    *,
    overrides: Mapping[str, str] | None = None,
    level: str = COMMON_LEVEL,
    has_fixed_voters: bool = True,
) -> Iterator[MixedCluster]:
    """Creates and formats the nodes, starts them, and removes their processes and disks at the end. Without fixed voters,
    each controller's format options say whether it begins as one."""
    home = folder / "mixed"
    home.mkdir(parents=True)
    is_fine = False
    with disks_taken_away(home):
        cluster = MixedCluster(home, nodes, overrides or {}, level, has_fixed_voters=has_fixed_voters)
        try:
            cluster.start()
            yield cluster
            assert cluster.failures() == []
            is_fine = True
        finally:
            with uninterrupted():
                for node in cluster.nodes.values():
                    node.kill()
                for relay in cluster.relays.values():
                    relay.close()
            if not is_fine:
                cluster.tell()
    if is_fine and os.environ.get("DISKRAFT_KEEP") != "true":
        shutil.rmtree(home)
