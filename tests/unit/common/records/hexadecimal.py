"""Golden bytes as annotated hex: hex on the left and its meaning on the right.

Everything from `#` to the end of a line is a comment. The bytes were derived by hand from Kafka's documented layout, so
encoder and decoder are both tested against bytes that neither of them produced.
"""


def from_annotated(text: str) -> bytes:
    """Decodes an annotated hex listing."""
    return bytes.fromhex(" ".join(line.partition("#")[0] for line in text.splitlines()))
