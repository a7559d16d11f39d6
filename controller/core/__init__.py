"""One module per controller operation, and the soft state they share (core). No awaiting, no randomness, no I/O."""
