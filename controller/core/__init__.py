"""One module per controller operation, and the soft state they share (core). They never await, do no I/O, and take time and
randomness from the caller."""
