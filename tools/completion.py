"""`diskraft completion`: prints a script that completes the command lines of all commands (shell)."""

import argparse
import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tools.command_words import Command, command
from tools.completion_scripts import bash_script, fish_script, zsh_script

# The installed commands, each with the module whose `command_line` returns the parser.
COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "diskraft": "tools.diskraft",
        "kafka-broker-api-versions": "tools.kafka.broker_api_versions",
        "kafka-cluster": "tools.kafka.cluster",
        "kafka-configs": "tools.kafka.configs",
        "kafka-console-consumer": "tools.kafka.console_consumer",
        "kafka-console-producer": "tools.kafka.console_producer",
        "kafka-consumer-groups": "tools.kafka.consumer_groups",
        "kafka-consumer-perf-test": "tools.kafka.consumer_perf_test",
        "kafka-delete-records": "tools.kafka.delete_records",
        "kafka-dump-log": "tools.kafka.dump_log",
        "kafka-features": "tools.kafka.features",
        "kafka-get-offsets": "tools.kafka.get_offsets",
        "kafka-leader-election": "tools.kafka.leader_election",
        "kafka-log-dirs": "tools.kafka.log_dirs",
        "kafka-metadata-quorum": "tools.kafka.metadata_quorum",
        "kafka-producer-perf-test": "tools.kafka.producer_perf_test",
        "kafka-reassign-partitions": "tools.kafka.reassign_partitions",
        "kafka-server-start": "tools.node.server_start",
        "kafka-storage": "tools.kafka.storage",
        "kafka-topics": "tools.kafka.topics",
    }
)
SCRIPTS: Final = MappingProxyType({"bash": bash_script, "zsh": zsh_script, "fish": fish_script})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the argument."""
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell that is to load the script")


def run(arguments: argparse.Namespace) -> int:
    """Prints the script."""
    print(SCRIPTS[arguments.shell](commands()), end="")
    return 0


def commands() -> list[Command]:
    """Returns all commands with their options."""
    return [command(name, importlib.import_module(module).command_line()) for name, module in COMMANDS.items()]
