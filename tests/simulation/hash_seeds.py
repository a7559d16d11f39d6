"""Runs a program under several hash seeds. If its output differs, the simulation depends on the iteration order of a set."""

import os
import subprocess
import sys

from tests.architecture.test_house_rules import ROOT


def printed_under(hash_seeds: tuple[str, ...], program: str) -> list[str]:
    """Runs the program once for each hash seed, in a process of its own, and returns what each process printed."""
    return [
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in hash_seeds
    ]
