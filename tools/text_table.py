"""Tables of plain text for people: columns as wide as their widest cell (core).

Nothing is cut off or folded, so that paths and ids can be copied; a narrow terminal wraps whole rows.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

_GAP = "  "


def text_table(rows: Iterable[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """Returns the rows as lines, each ending with a newline. A cell may have several lines. The cells of the columns in
    `right` stand at the right."""
    lines = [line for row in rows for line in zip_longest(*(cell.split("\n") for cell in row), fillvalue="")]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(_line(line, widths, right) for line in lines)


def _line(cells: Sequence[str], widths: Sequence[int], right: Collection[int]) -> str:
    padded = (
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return _GAP.join(padded).rstrip() + "\n"
