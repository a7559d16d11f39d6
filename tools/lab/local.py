"""`diskraft local`: a cluster of real daemons on this machine, in one folder (shell)."""

import argparse
import json
from pathlib import Path

from tools.errors import ToolError
from tools.lab.local_cluster import CLUSTER_FILE, LocalCluster

DEFAULT_FOLDER = Path("diskraft-local")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = commands.add_parser("up", help="create the cluster if needed, and start every node that is not running")
    up.add_argument("--brokers", type=int, default=3, metavar="N", help="number of brokers (default 3)")
    up.add_argument("--disks", type=int, default=3, metavar="M", help="disks per broker (default 3)")
    up.add_argument(
        "--loop", action="store_true", help="use loop-mounted ext4 disks (root), which `diskraft disks` can kill"
    )
    up.add_argument("--disk-size", type=int, default=256, metavar="MIB", help="size of a loop-mounted disk (default 256)")
    up.add_argument("--port", type=int, default=9092, help="port of the first broker; the others follow (default 9092)")
    up.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="add this line to every server.properties"
    )
    status = commands.add_parser("status", help="show which nodes are running and where they listen")
    status.add_argument("--format", choices=("table", "json"), default="table")
    down = commands.add_parser("down", help="shut down every node cleanly")
    down.add_argument("--delete", action="store_true", help="remove the disks and the folder afterwards")
    for parser_ in (up, status, down):
        parser_.add_argument(
            "--dir", type=Path, default=DEFAULT_FOLDER, help=f"the cluster's folder (default {DEFAULT_FOLDER})"
        )


def run(arguments: argparse.Namespace) -> int:
    """Runs one subcommand. Raises ToolError."""
    folder = arguments.dir.absolute()
    match arguments.action:
        case "up":
            cluster = _made_or_loaded(folder, arguments)
            cluster.start()
            print(f"{len(cluster.brokers)} brokers and a controller are running; bootstrap servers: {cluster.bootstrap}")
        case "status":
            _print_status(LocalCluster.load(folder), arguments.format)
        case "down":
            cluster = LocalCluster.load(folder)
            cluster.stop()
            if arguments.delete:
                cluster.delete()
            print("stopped" + (" and deleted" if arguments.delete else ""))
    return 0


def _made_or_loaded(folder: Path, arguments: argparse.Namespace) -> LocalCluster:
    if (folder / CLUSTER_FILE).exists():
        return LocalCluster.load(folder)
    if arguments.brokers < 1 or arguments.disks < 1:
        raise ToolError("--brokers and --disks must be at least 1")
    overrides: dict[str, str] = {}
    for line in arguments.set:
        key, separator, value = line.partition("=")
        if not separator:
            raise ToolError(f"--set {line} is not KEY=VALUE")
        overrides[key] = value
    return LocalCluster.create(
        folder,
        brokers=arguments.brokers,
        disks=arguments.disks,
        loop=arguments.loop,
        disk_mib=arguments.disk_size,
        first_port=arguments.port,
        overrides=overrides,
    )


def _print_status(cluster: LocalCluster, output_format: str) -> None:
    rows = [
        {
            "node": node.files.name,
            "id": node.files.node_id,
            "listener": f"127.0.0.1:{node.files.port}",
            "pid": node.pid,
            "state": "running" if node.pid is not None else "stopped",
            "directories": list(node.files.data_dirs or (node.files.metadata_dir,)),
            "log": node.files.log,
        }
        for node in cluster.nodes.values()
    ]
    if output_format == "json":
        print(json.dumps({"cluster_id": cluster.cluster_id, "bootstrap": cluster.bootstrap, "nodes": rows}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"cluster {cluster.cluster_id}", box=None)
    for column in ("node", "id", "listener", "pid", "state", "log"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            *(
                str(row[column]) if row[column] is not None else "-"
                for column in ("node", "id", "listener", "pid", "state", "log")
            )
        )
    Console().print(table)
