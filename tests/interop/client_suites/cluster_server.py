"""Runs clusters for tests that are written in Java: `python -m tests.interop.client_suites.cluster_server FOLDER`.

Each line on the standard input is a request, and each line on the standard output the answer to it, both in JSON. There is
one cluster at a time; those that are left when the input ends are killed. `junit/ClusterServer.java` is the other side.
"""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tools.errors import ToolError
from tools.lab.local_cluster import LocalCluster, LocalNode, NodeFiles, free_ports

# As in the clusters of Apache Kafka's tests.
FIRST_BROKER_ID, CONTROLLER_ID = 0, 3000
# Where Diskraft's default is another one than that of Apache Kafka 4.3, for whose servers these tests were written.
KAFKAS_DEFAULTS: Final = MappingProxyType({"group.consumer.assignment.interval.ms": "1000"})

Answer = Mapping[str, Any]


class ClusterServer:
    """Runs the cluster of one test at a time, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clusters = 0
        self._cluster: LocalCluster | None = None
        # The nodes that should be running.
        self._started: set[str] = set()

    def create(
        self,
        *,
        brokers: int,
        disks: int,
        features: dict[str, str],
        properties: dict[str, str],
        properties_of: dict[str, Any],
    ) -> Answer:
        """Creates the files of a cluster and returns where its nodes will be. Ends one that a failed test has left."""
        self.close()
        self._clusters += 1
        cluster = LocalCluster.create(
            self._folder / f"cluster-{self._clusters}",
            brokers=brokers,
            disks=disks,
            loop=False,
            first_node_id=FIRST_BROKER_ID,
            controller_id=CONTROLLER_ID,
            overrides={**KAFKAS_DEFAULTS, **properties},
            features=features,
        )
        self._started.clear()
        files = {node.files.node_id: node.files for node in cluster.nodes.values()}
        for node_id, own in properties_of.items():
            with Path(files[int(node_id)].config).open("a") as config:
                config.writelines(f"{key}={value}\n" for key, value in own.items())
        self._cluster = cluster
        return {
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller.files.address,
            "controller_id": CONTROLLER_ID,
            "brokers": [
                {
                    "id": node.files.node_id,
                    "port": node.files.port,
                    "config": node.files.config,
                    "log_dirs": ",".join(node.files.data_dirs),
                }
                for node in cluster.brokers
            ],
        }

    def start(self) -> Answer:
        cluster = self._running()
        cluster.start()
        self._started.update(cluster.nodes)
        return {}

    def stop(self) -> Answer:
        self._started.clear()
        self._running().stop()
        return {}

    def stop_broker(self, *, node_id: int) -> Answer:
        node = self._running().broker(node_id)
        self._started.discard(node.files.name)
        node.stop()
        return {}

    def start_broker(self, *, node_id: int, wait: bool) -> Answer:
        self._running().broker(node_id).start()
        return self.await_broker(node_id=node_id) if wait else {}

    def await_broker(self, *, node_id: int) -> Answer:
        node = self._running().broker(node_id)
        node.wait_for("broker_running")
        self._started.add(node.files.name)
        return {}

    def add_broker(self, *, node_id: int, log_dirs: str, metadata_dir: str, properties: dict[str, str]) -> Answer:
        """Writes the configuration of a broker, which may replace an earlier one. Its directories are there and formatted.
        Does not start it."""
        cluster = self._running()
        home = cluster.folder / f"broker-{node_id}"
        home.mkdir(exist_ok=True)
        files = NodeFiles(
            name=home.name,
            node_id=node_id,
            role="broker",
            port=free_ports(1)[0],
            config=str(home / "server.properties"),
            log=str(cluster.folder / f"{home.name}.log"),
            pid_file=str(home / "pid"),
            data_dirs=tuple(log_dirs.split(",")),
            metadata_dir=metadata_dir,
        )
        controller = cluster.controller.files
        own = {
            "process.roles": "broker",
            "node.id": node_id,
            "controller.quorum.voters": f"{CONTROLLER_ID}@{controller.address}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://localhost:{files.port}",
            "log.dirs": log_dirs,
            "metadata.log.dir": metadata_dir,
        }
        Path(files.config).write_text("".join(f"{key}={value}\n" for key, value in (properties | own).items()))
        cluster.nodes[files.name] = LocalNode(files)
        return {"id": node_id, "port": files.port, "config": files.config, "log_dirs": log_dirs}

    def is_running(self, *, node_id: int) -> Answer:
        """Returns whether the process of a broker is there. A test that asks may expect that it is not."""
        node = self._running().broker(node_id)
        if node.pid is None:
            self._started.discard(node.files.name)
        return {"answer": node.pid is not None}

    def stop_controller(self) -> Answer:
        node = self._running().controller
        self._started.discard(node.files.name)
        node.stop()
        return {}

    def delete(self) -> Answer:
        """Kills the daemons and removes their data. Their logs stay. Raises ToolError if one has ended by itself."""
        cluster, self._cluster = self._running(), None
        ended = [node for name, node in cluster.nodes.items() if name in self._started and node.pid is None]
        self._started.clear()
        cluster.kill()
        for node in cluster.nodes.values():
            shutil.rmtree(Path(node.files.config).parent)
        if ended:
            raise ToolError("; ".join(f"{node.files.name} ended by itself: {node.last_line()}" for node in ended))
        return {}

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.kill()

    def _running(self) -> LocalCluster:
        if self._cluster is None:
            raise ToolError("there is no cluster")
        return self._cluster


def main() -> None:
    server = ClusterServer(Path(sys.argv[1]))
    actions: dict[str, Callable[..., Answer]] = {
        "create": server.create,
        "start": server.start,
        "stop": server.stop,
        "add_broker": server.add_broker,
        "stop_broker": server.stop_broker,
        "is_running": server.is_running,
        "stop_controller": server.stop_controller,
        "start_broker": server.start_broker,
        "await_broker": server.await_broker,
        "delete": server.delete,
    }
    try:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = actions[request.pop("do")](**request)
            except ToolError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)
    finally:
        server.close()


if __name__ == "__main__":
    main()
