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
from tools.lab.local_cluster import LocalCluster

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
        """Creates the files of a cluster and returns where its nodes will be."""
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

    def start_broker(self, *, node_id: int) -> Answer:
        node = self._running().broker(node_id)
        node.start()
        node.wait_for("broker_running")
        self._started.add(node.files.name)
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
        "stop_broker": server.stop_broker,
        "start_broker": server.start_broker,
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
