"""The subcommands of `diskraft disks` for loop-mounted disks, on which failures can be tried out (shell)."""

import argparse
from pathlib import Path
from typing import Any

from tools.arguments import seconds
from tools.errors import ToolError
from tools.lab.disk_faults import HOWS, SECONDS, make_happen, make_room
from tools.lab.disk_lab import FILE_SYSTEMS, heal_disk, make_disk, remove_disk, replace_disk, revive_disk


def add_commands(commands: Any) -> None:
    """Declares the subcommands. `commands` is what argparse's add_subparsers returns."""
    make = commands.add_parser("make", help="create an image with a file system beside PATH and mount it at PATH")
    make.add_argument("--size", type=int, default=256, metavar="MIB", help="size of each disk in MiB (default 256)")
    make.add_argument("--fs", choices=FILE_SYSTEMS, default="ext4", help="file system (default ext4)")
    make.add_argument(
        "--faulty", action="store_true", help="put FUSE below it, so that its blocks can fail, hang or be slow"
    )
    kill = commands.add_parser(
        "kill",
        help="make the disk die, hang, fill up or vanish",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="HOW is one of\n" + "\n".join(f"  {name:18}{how.about}" for name, how in HOWS.items()),
    )
    kill.add_argument("--how", choices=HOWS, default="power-cut", metavar="HOW", help="how it fails (default power-cut)")
    kill.add_argument(
        "--seconds", type=seconds, default=SECONDS, metavar="S", help=f"longest time that it hangs (default {SECONDS:g})"
    )
    actions = {
        "heal": "undo injected faults: thaw the disk, make its blocks work, undo a swap, remove fillers",
        "revive": "mount a dead or vanished disk again, with the data that was synced",
        "replace": "replace the disk by an empty one",
        "remove": "unmount and delete the disk and its image",
    }
    parsers = [make, kill, *(commands.add_parser(name, help=text) for name, text in actions.items())]
    for sub_parser in parsers:
        sub_parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="mount point of the disk")


def run(arguments: argparse.Namespace) -> int:
    """Runs one subcommand on the given disks. Raises ToolError."""
    paths = [path.absolute() for path in arguments.paths]
    if Path("/") in paths:
        raise ToolError("/ is not a disk of the lab: its image could not stand beside it")
    if arguments.action == "kill":
        make_happen(arguments.how, paths, seconds=arguments.seconds)
    for path in paths:
        match arguments.action:
            case "make":
                make_disk(path, size_mib=arguments.size, file_system=arguments.fs, faulty=arguments.faulty)
            case "heal":
                heal_disk(path)
                make_room(path)
            case "revive":
                revive_disk(path)
            case "replace":
                replace_disk(path)
            case "remove":
                remove_disk(path)
        print(f"{path}: {arguments.action} done")
    return 0
