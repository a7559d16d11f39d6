"""Copies a running node's metadata directory, while segments and snapshots come and go, and reads what is in such files."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop.our_tools import run_tool


def copy_metadata(source: Path, target: Path) -> list[Path]:
    """Copies all segments and snapshots of the metadata log, oldest first, and the bootstrap snapshot."""
    target.mkdir()
    log = source / "__cluster_metadata-0"
    copies: list[Path] = []
    # Copy snapshots first: segments that a snapshot replaces may be deleted meanwhile, but later ones stay.
    for path in (source / "bootstrap.checkpoint", *sorted(log.glob("*.checkpoint")), *sorted(log.glob("*.log"))):
        try:
            copies.append(Path(shutil.copy(path, target / path.name)))
        except FileNotFoundError:
            # The file was deleted because a newer snapshot replaced it.
            continue
    return copies


def records(files: list[Path]) -> Iterator[dict[str, Any]]:
    """Yields the metadata records of these files as the tool prints them."""
    dumped = run_tool("dump_log", "--cluster-metadata-decoder", "--files", ",".join(map(str, files)))
    assert dumped.status == 0, dumped
    for line in dumped.lines:
        _, found, payload = line.partition("payload: ")
        if found:
            yield json.loads(payload)
