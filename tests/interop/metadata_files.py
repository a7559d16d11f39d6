"""Copies a running node's metadata directory, while segments and snapshots come and go."""

import shutil
from pathlib import Path


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
