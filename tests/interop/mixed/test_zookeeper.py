"""A cluster of Apache Kafka comes from ZooKeeper to Diskraft, with a broker that has several directories (KIP-858,
"Migrating a cluster in ZK mode running with JBOD").

Diskraft copies nothing from ZooKeeper, so the last release that does makes the copy. Then Diskraft's controller goes on with
its files, and the broker is restarted out of ZooKeeper mode.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from admin.errors import AdminError
from common.storage.meta_properties import parse_meta_properties
from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import until
from tests.integration.traffic import assert_nothing_lost, write_some
from tests.interop.apache_kafka import DOWNLOAD_SECONDS_MAX
from tests.interop.mixed.cluster import END_LINES, READY_SECONDS, TERMINATED
from tests.interop.mixed.releases import ApacheNode, Release
from tests.interop.our_tools import run_tool
from tests.interop.topics import create_topic
from tools.lab.local_cluster import LocalNode, NodeFiles, free_ports

TOPIC, PARTITIONS, COUNT = "t", 4, 400
THEIRS, OURS, CONTROLLER = 1, 2, 101
BOTH = {THEIRS, OURS}
# Broker 2 becomes the second replica of each, and the preferred leader of two.
REPLICAS = {0: [THEIRS, OURS], 1: [OURS, THEIRS], 2: [THEIRS, OURS], 3: [OURS, THEIRS]}
STORY_SECONDS = 400

pytestmark = [pytest.mark.slow, pytest.mark.timeout(DOWNLOAD_SECONDS_MAX + STORY_SECONDS)]


class ZooKeeperNode(ApacheNode):
    """A ZooKeeper server. The nodes that need it wait for it."""

    def command(self) -> list[str]:
        return self.release.command("org.apache.zookeeper.server.quorum.QuorumPeerMain", self.files.config)


class Migration:
    """The nodes, and what is written into their configurations at each step."""

    def __init__(self, folder: Path, release: Release) -> None:
        self._folder = folder
        self._release = release
        self._ports = dict(zip(("zookeeper", THEIRS, OURS, CONTROLLER), free_ports(4), strict=True))
        self._quorum = {
            "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:{self._ports[CONTROLLER]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
        self._zookeeper = {"zookeeper.connect": f"127.0.0.1:{self._ports['zookeeper']}"}
        self._migrating = {"zookeeper.metadata.migration.enable": "true"}
        self.zookeeper = ZooKeeperNode(self._files("zookeeper", 0, disks=1), release)
        self.theirs = ApacheNode(self._files(THEIRS, THEIRS, disks=2), release)
        self.ours = LocalNode(self._files(OURS, OURS, disks=2))
        self._controller_files = self._files(CONTROLLER, CONTROLLER, disks=0)
        self.controller: LocalNode = ApacheNode(self._controller_files, release)
        (data,) = self.zookeeper.files.data_dirs
        zookeeper = {"dataDir": data, "clientPortAddress": "127.0.0.1", "clientPort": self._ports["zookeeper"]}
        self._write(self.zookeeper, zookeeper | {"admin.enableServer": "false"})

    def _files(self, name: str | int, node_id: int, *, disks: int) -> NodeFiles:
        home = self._folder / f"node-{name}"
        data_dirs = [home / f"disk-{number}" for number in range(1, disks + 1)]
        for path in (home / "metadata", *data_dirs):
            path.mkdir(parents=True)
        return NodeFiles(
            name=home.name,
            node_id=node_id,
            role="controller" if node_id == CONTROLLER else "broker",
            port=self._ports[name],
            config=str(home / "server.properties"),
            log=str(self._folder / f"{home.name}.log"),
            pid_file=str(home / "pid"),
            data_dirs=tuple(map(str, data_dirs)),
            metadata_dir=str(home / "metadata"),
        )

    @staticmethod
    def _write(node: LocalNode, properties: Mapping[str, object]) -> None:
        Path(node.files.config).write_text("".join(f"{key}={value}\n" for key, value in properties.items()))

    def _broker(self, node: LocalNode) -> dict[str, str]:
        return {
            "listeners": f"PLAINTEXT://{node.files.address}",
            "log.dirs": ",".join(node.files.data_dirs),
            "offsets.topic.replication.factor": "1",
        }

    @property
    def cluster_id(self) -> str:
        """The id that the broker in ZooKeeper mode has drawn. It may begin with a hyphen."""
        found = parse_meta_properties((Path(self.theirs.files.data_dirs[0]) / "meta.properties").read_bytes())
        assert found.cluster_id is not None
        return found.cluster_id

    # --- steps ---------------------------------------------------------------------------------------------------

    def start_in_zookeeper_mode(self, *, is_migrating: bool) -> None:
        properties = {"broker.id": str(THEIRS)} | self._broker(self.theirs) | self._zookeeper
        if is_migrating:
            properties |= self._quorum | self._migrating | {"inter.broker.protocol.version": "3.9"}
        self._write(self.theirs, properties)
        self.theirs.start()

    def start_out_of_zookeeper_mode(self) -> None:
        kraft = {"process.roles": "broker", "node.id": str(THEIRS)}
        self._write(self.theirs, kraft | self._broker(self.theirs) | self._quorum)
        self.theirs.start()

    def start_their_controller(self) -> None:
        kraft = {
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "listeners": f"CONTROLLER://{self.controller.files.address}",
            "log.dirs": self.controller.files.metadata_dir,
        }
        self._write(self.controller, kraft | self._quorum | self._zookeeper | self._migrating)
        # The option and its value are one argument, as Apache's tool needs it too if the id begins with a hyphen.
        done = self._release.run(
            "kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}", "-c", self.controller.files.config
        )
        assert done.status == 0, done
        self.controller.start()

    def start_our_broker(self) -> None:
        kraft = {"process.roles": "broker", "node.id": str(OURS), "diskraft.log.dir.free.bytes.floor": "0"}
        self._write(self.ours, kraft | self._broker(self.ours) | self._quorum)
        done = run_tool("storage", "format", "-c", self.ours.files.config, "-t", self.cluster_id)
        assert done.status == 0, done
        self.ours.start()

    def replace_their_controller(self) -> None:
        """Diskraft's controller goes on with the files and the configuration of Apache's."""
        self.stop(self.controller)
        self.controller = LocalNode(self._controller_files)
        self.controller.start()

    def stop(self, node: LocalNode) -> None:
        assert node.stop() in (0, TERMINATED), node.last_line()

    # --- looks ---------------------------------------------------------------------------------------------------

    def until_known(self, node: LocalNode, brokers: set[int]) -> None:
        """Waits until this broker lists exactly these."""

        def look() -> bool:
            assert node.pid is not None, f"{node.files.name} ended: {node.last_line()}"
            try:
                with BlockingAdmin(node.files.address) as admin:
                    return set(admin.brokers()) == brokers
            except AdminError:
                return False

        until(look, f"{node.files.name} lists the brokers {brokers}", seconds=READY_SECONDS)

    def until_isr(self, isr: set[int]) -> None:
        def look() -> bool:
            with BlockingAdmin(self.ours.files.address) as admin:
                (found,) = admin.metadata([TOPIC]).topics
            return len(found.partitions) == PARTITIONS and all(set(each.isr_nodes) == isr for each in found.partitions)

        until(look, f"every ISR is {isr}", seconds=READY_SECONDS)

    def places(self, node: LocalNode) -> dict[int, str]:
        """Returns the directory of each partition on a broker."""
        with BlockingAdmin(node.files.address) as admin:
            return {
                part.partition_index: result.log_dir
                for result in admin.log_dirs(node.files.node_id)
                for topic in result.topics
                if topic.name == TOPIC
                for part in topic.partitions
            }

    def tell(self) -> None:
        for node in (self.zookeeper, self.theirs, self.ours, self.controller):
            log = Path(node.files.log)
            if log.exists():
                print(f"--- {log}")
                print("\n".join(line[:400] for line in log.read_text(errors="replace").splitlines()[-END_LINES:]))


@contextmanager
def migration(folder: Path, release: Release) -> Iterator[Migration]:
    made = Migration(folder, release)
    is_fine = False
    try:
        yield made
        is_fine = True
    finally:
        if not is_fine:
            made.tell()
        for node in (made.theirs, made.ours, made.controller, made.zookeeper):
            node.kill()


def test_a_cluster_comes_from_zookeeper(older: Release, tmp_path: Path) -> None:
    """Brokers of both sides are in one ISR while one of them is in ZooKeeper mode. The controller of Diskraft keeps that one
    fenced until it has left that mode and reported the directories of its replicas. Nothing is lost."""
    with migration(tmp_path, older) as cluster:
        cluster.zookeeper.start()
        cluster.start_in_zookeeper_mode(is_migrating=False)
        cluster.until_known(cluster.theirs, {THEIRS})
        create_topic(cluster.theirs.files.address, TOPIC, partitions=PARTITIONS, replication_factor=1)
        promises = write_some(cluster.theirs.files.address, TOPIC, partitions=PARTITIONS, count=COUNT)
        places = cluster.places(cluster.theirs)
        assert set(places.values()) == {*cluster.theirs.files.data_dirs}
        cluster.stop(cluster.theirs)

        cluster.start_their_controller()
        cluster.start_in_zookeeper_mode(is_migrating=True)
        # It is refused until the metadata has come from ZooKeeper.
        cluster.start_our_broker()
        cluster.until_known(cluster.ours, BOTH)
        reassign(cluster.ours.files.address, tmp_path / "moves.json")
        cluster.until_isr(BOTH)
        ours = cluster.ours.files.address
        promises |= write_some(ours, TOPIC, partitions=PARTITIONS, count=COUNT, first=len(promises))

        cluster.stop(cluster.theirs)
        cluster.replace_their_controller()
        cluster.start_in_zookeeper_mode(is_migrating=True)
        cluster.controller.wait_for("broker_registered", broker_id=THEIRS, seconds=READY_SECONDS)
        cluster.controller.wait_for("broker_kept_fenced", broker_id=THEIRS, partitions=PARTITIONS, seconds=READY_SECONDS)
        cluster.until_isr({OURS})
        promises |= write_some(ours, TOPIC, partitions=PARTITIONS, count=COUNT, first=len(promises))

        # It is fenced, so it would not shut down cleanly before it is unfenced.
        cluster.theirs.kill()
        cluster.start_out_of_zookeeper_mode()
        cluster.controller.wait_for("broker_unfenced", broker_id=THEIRS, seconds=READY_SECONDS)
        cluster.until_isr(BOTH)
        assert cluster.places(cluster.theirs) == places
        cluster.stop(cluster.ours)
        assert_nothing_lost(cluster.theirs.files.address, TOPIC, promises, partitions=range(PARTITIONS))


def reassign(bootstrap: str, plan: Path) -> None:
    """Gives each partition its replicas with our tool. It asks in a version that the controller of Apache Kafka knows."""
    moves = [{"topic": TOPIC, "partition": index, "replicas": replicas} for index, replicas in REPLICAS.items()]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    at, file = ("--bootstrap-server", bootstrap), ("--reassignment-json-file", str(plan))
    done = run_tool("reassign_partitions", *at, *file, "--execute")
    assert done.status == 0, done
