"""`diskraft local`: a cluster of real daemons on this machine, in one folder (shell).

`up` on a folder that holds a cluster starts what is there. Options that ask for another cluster are refused rather than
ignored, except for the ports of a cluster that is not running. A cluster that has never been ready holds no data, so `up`
with other options replaces it.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tools.errors import ToolError
from tools.lab.local_cluster import CLUSTER_FILE, LocalCluster, LocalNode, check_ports
from tools.node.configuration_file import overrides, read_config
from tools.text_table import text_table

DEFAULT_FOLDER = Path("diskraft-local")
DEFAULTS: Final[Mapping[str, Any]] = {"brokers": 3, "disks": 3, "loop": False, "disk_size": 256, "port": 9092}
# More than a machine can run. A mistyped number would fill its disk with folders first.
MOST: Final[Mapping[str, int]] = MappingProxyType({"brokers": 100, "disks": 1_000})
DISK_MIB_MIN: Final = 128
"""Room for the file system itself, for the floor, and for some records."""
FLOOR: Final = "diskraft.log.dir.free.bytes.floor"
COLUMNS: Final = ("node", "id", "listener", "pid", "state", "log")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the subcommands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    up = commands.add_parser("up", help="create the cluster if needed, and start every node that is not running")
    # None stands for an option that was not given: an existing cluster has values of its own.
    up.add_argument("--brokers", type=int, metavar="N", help="number of brokers (default 3)")
    up.add_argument("--disks", type=int, metavar="M", help="disks per broker (default 3)")
    up.add_argument(
        "--loop",
        action="store_true",
        default=None,
        help="use loop-mounted ext4 disks (root), which `diskraft disks` can kill",
    )
    up.add_argument("--disk-size", type=int, metavar="MIB", help="size of a loop-mounted disk, at least 128 (default 256)")
    up.add_argument("--port", type=int, help="port of the first broker; the others follow (default 9092)")
    up.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="add this line to every server.properties"
    )
    status = commands.add_parser("status", help="show which nodes are running and where they listen")
    status.add_argument("--format", choices=("table", "json"), default="table", help="json: one line (default table)")
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
            _up(folder, arguments)
        case "status":
            _print_status(LocalCluster.load(folder), arguments.format)
        case "down":
            cluster = LocalCluster.load(folder)
            cluster.stop()
            if arguments.delete:
                cluster.delete()
            print("stopped" + (" and deleted" if arguments.delete else ""))
    return 0


# --- up --------------------------------------------------------------------------------------------------------------


def _up(folder: Path, arguments: argparse.Namespace) -> None:
    given = _given(arguments)
    if (folder / CLUSTER_FILE).exists():
        cluster = _existing(LocalCluster.load(folder), given)
    else:
        cluster = _created(folder, {**DEFAULTS, **given})
    check_ports(node.files.port for node in cluster.nodes.values() if node.pid is None)
    is_new = not cluster.has_run
    try:
        cluster.start(on_ready=_print_ready)
    except (ToolError, KeyboardInterrupt):
        if is_new:
            # The nodes of a cluster that does not work would keep its ports.
            cluster.kill()
        raise
    print(f"{_count(len(cluster.brokers), 'broker')} and a controller are running; bootstrap servers: {cluster.bootstrap}")
    print(
        f"next: kafka-topics --bootstrap-server {cluster.brokers[0].files.address} --create --topic t --partitions 6 "
        f"--replication-factor {min(3, len(cluster.brokers))}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the options that the user gave. Raises ToolError if one of them is wrong."""
    given = {name: value for name in DEFAULTS if (value := getattr(arguments, name)) is not None}
    for name in ("brokers", "disks", "disk_size"):
        if given.get(name, 1) < 1:
            raise ToolError(f"--{name.replace('_', '-')} {given[name]} is not valid; it takes at least 1")
    for name, most in MOST.items():
        if given.get(name, 1) > most:
            raise ToolError(f"--{name} {given[name]} is not valid; it takes at most {most}")
    settings = overrides(arguments.set, "--set")
    if FLOOR not in settings and given.get("disk_size", DISK_MIB_MIN) < DISK_MIB_MIN:
        raise ToolError(
            f"--disk-size {given['disk_size']} is not valid; it takes at least {DISK_MIB_MIN}, because a broker places no "
            f"replica in a directory with less than {FLOOR} (64 MiB) of free space"
        )
    if settings:
        given["set"] = settings
    return given


def _created(folder: Path, options: Mapping[str, Any]) -> LocalCluster:
    # The brokers and the controller, which comes last.
    check_ports(range(options["port"], options["port"] + options["brokers"] + 1))
    brokers, disks = _count(options["brokers"], "broker"), _count(options["disks"], "disk")
    print(f"creating {brokers} with {disks} each, and a controller, in {folder}")
    cluster = LocalCluster.create(
        folder,
        brokers=options["brokers"],
        disks=options["disks"],
        loop=options["loop"],
        disk_mib=options["disk_size"],
        first_port=options["port"],
        overrides=options.get("set"),
        on_formatted=lambda node: print(f"  {node.files.name} is formatted", flush=True),
    )
    configs = [read_config(node.files.config) for node in cluster.nodes.values()]
    for doubt in dict.fromkeys(doubt for config in configs for doubt in config.doubts):
        print(doubt, file=sys.stderr)
    return cluster


def _existing(cluster: LocalCluster, given: Mapping[str, Any]) -> LocalCluster:
    """Returns the cluster of the folder, with the given ports. Raises ToolError if other options would change it."""
    options = _options(cluster)
    different = {name: value for name, value in given.items() if not _is_met(value, options.get(name))}
    if not different:
        return cluster
    down = f"`diskraft local down --dir {cluster.folder}`"
    if any(node.pid is not None for node in cluster.nodes.values()):
        raise ToolError(f"{cluster.folder} holds a cluster that is running{_unlike(options, different)}; {down} stops it")
    if not cluster.has_run:
        print(f"the cluster in {cluster.folder} has never been ready, so it is replaced")
        new_options = {**DEFAULTS, **options, **given}
        check_ports(range(new_options["port"], new_options["port"] + new_options["brokers"] + 1))
        cluster.delete()
        return _created(cluster.folder, new_options)
    if different.keys() != {"port"}:
        raise ToolError(
            f"{cluster.folder} already holds a cluster{_unlike(options, different)}; without these options `up` starts it "
            f"as it is, {down[:-1]} --delete` removes it"
        )
    check_ports(range(given["port"], given["port"] + len(cluster.nodes)))
    cluster.change_ports(given["port"])
    return cluster


def _is_met(wanted: object, found: object) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and wanted.items() <= found.items()
    return wanted == found


def _options(cluster: LocalCluster) -> dict[str, Any]:
    """Returns the options of `up` with which the cluster was created, as far as they are known."""
    options = {
        "brokers": len(cluster.brokers),
        "disks": len(cluster.brokers[0].files.data_dirs),
        "loop": cluster.loop,
        "disk_size": cluster.disk_mib,
        "port": cluster.brokers[0].files.port,
        "set": cluster.overrides,
    }
    return {name: value for name, value in options.items() if value is not None}


def _unlike(options: Mapping[str, Any], different: Mapping[str, Any]) -> str:
    """Returns what the cluster has instead of the given options: ` with --brokers 3, not 5`."""
    parts = []
    for name, value in different.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "set":
            found = options.get("set", {})
            parts += [f"without {flag} {key}={text}" for key, text in value.items() if found.get(key) != text]
        elif name == "loop":
            parts.append(f"without {flag}")
        else:
            parts.append(f"with {flag} {options.get(name, '?')}, not {value}")
    return " " + " and ".join(parts)


def _print_ready(node: LocalNode) -> None:
    print(f"  {node.files.name} is ready on {node.files.address}", flush=True)


# --- status ----------------------------------------------------------------------------------------------------------


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
    print(f"cluster {cluster.cluster_id}, bootstrap servers: {cluster.bootstrap}")
    cells = [tuple("-" if row[column] is None else str(row[column]) for column in COLUMNS) for row in rows]
    print(text_table([COLUMNS, *cells]), end="")
