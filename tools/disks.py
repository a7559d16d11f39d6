"""`diskraft disks`: loop-mounted disks for trying out failures (shell)."""

import argparse
from pathlib import Path

from tools.disk_lab import FILE_SYSTEMS, kill_disk, make_disk, remove_disk, replace_disk, revive_disk


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the sub-commands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    make = commands.add_parser("make", help="make an image beside PATH, a file system on it, and mount it at PATH")
    make.add_argument("--size", type=int, default=256, metavar="MIB", help="size of each disk in MiB (default 256)")
    make.add_argument("--fs", choices=FILE_SYSTEMS, default="ext4", help="file system (default ext4)")
    actions = {
        "kill": "shut the file system down: every operation on it gives EIO at once",
        "revive": "mount a dead disk again, with what had been synced",
        "replace": "put an empty disk in the place of this one",
        "remove": "unmount and delete the disk and its image",
    }
    parsers = [make, *(commands.add_parser(name, help=text) for name, text in actions.items())]
    for sub_parser in parsers:
        sub_parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="mount point of the disk")


def run(arguments: argparse.Namespace) -> int:
    """Carries out one action on each disk named. Raises ToolError."""
    for path in arguments.paths:
        disk_path = path.absolute()
        match arguments.action:
            case "make":
                make_disk(disk_path, size_mib=arguments.size, file_system=arguments.fs)
            case "kill":
                kill_disk(disk_path)
            case "revive":
                revive_disk(disk_path)
            case "replace":
                replace_disk(disk_path)
            case "remove":
                remove_disk(disk_path)
        print(f"{disk_path}: {arguments.action} done")
    return 0
