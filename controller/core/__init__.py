"""One module per controller operation, and the soft state they share (core). The modules never await, do no I/O, and take
time and randomness from the caller."""
