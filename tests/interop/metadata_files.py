"""Takes a copy of a running node's metadata directory, where segments and snapshots come and go."""

import shutil
from pathlib import Path


def copy_metadata(source: Path, target: Path) -> list[Path]:
    """The copies of all segments and snapshots of the metadata log, oldest first, and of the bootstrap snapshot."""
    target.mkdir()
    log = source / "__cluster_metadata-0"
    copies: list[Path] = []
    # Snapshots first: what they replace may go while we copy, and what follows them stays.
    for path in (source / "bootstrap.checkpoint", *sorted(log.glob("*.checkpoint")), *sorted(log.glob("*.log"))):
        try:
            copies.append(Path(shutil.copy(path, target / path.name)))
        except FileNotFoundError:
            # A newer snapshot has made it superfluous.
            continue
    return copies
