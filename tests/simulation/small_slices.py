"""Makes the slices of long work so small that a simulated cluster needs many of them (shell of the tests).

A simulated cluster has tens of partitions, and the daemons do that much in one slice. With small ones, everything else has
its turn in the middle of the same work: records arrive, leaders change, disks die, a term ends.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

_DAEMONS: Final = ("broker.", "common.", "controller.")
_SIZES: Final = (
    "ELEMENTS_PER_SLICE",
    "EVENTS_PER_SLICE",
    "GROUPS_PER_SLICE",
    "ITEMS_PER_SLICE",
    "PARTITIONS_PER_SLICE",
    "RECORDS_PER_SLICE",
    "RECORDS_PER_STEP",
    "SNAPSHOT_SLICE",
)


@contextmanager
def slices_of(size: int | None) -> Iterator[None]:
    """Lets every slice of the daemons end after `size` items. None: they stay as they are."""
    before = {} if size is None else {(module, name): getattr(module, name) for module, name in _places()}
    assert size is None or before, "there are no slices left to make small"
    for module, name in before:
        setattr(module, name, size)
    try:
        yield
    finally:
        for (module, name), usual in before.items():
            setattr(module, name, usual)


def _places() -> list[tuple[ModuleType, str]]:
    """Returns where the size of a slice stands, which is every module that imports it."""
    modules = [module for name, module in sys.modules.items() if name.startswith(_DAEMONS)]
    return [(module, name) for module in modules for name in _SIZES if name in vars(module)]
