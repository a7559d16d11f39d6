"""Golden bytes written for people: two columns, hex on the left and what it means on the right.

Everything from `#` to the end of a line is explanation. The bytes are worked out by hand from the layout in the
reference, so that encoder and decoder are both held against something that neither of them made.
"""


def from_annotated(text: str) -> bytes:
    """The bytes of an annotated hex listing."""
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in text.splitlines()))
