"""Tables of plain text: nothing is cut off, whatever the width of the terminal."""

from tools.text_table import text_table


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """The second column stands at the right. No line ends with blanks."""
    assert text_table([("disk", "size", "moves"), ("/a", "1", ""), ("/" + "b" * 200, "10", "t-0")], right=[1]) == (
        f"disk{' ' * 197}  size  moves\n/a{' ' * 199}     1\n/{'b' * 200}    10  t-0\n"
    )


def test_a_cell_may_have_several_lines() -> None:
    """The other cells of the row are empty in its further lines."""
    assert text_table([("1", "x\ny", "z")]) == "1  x  z\n   y\n"


def test_no_rows() -> None:
    """There is nothing to print."""
    assert text_table([]) == ""
