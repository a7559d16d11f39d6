"""One module per controller operation, and the soft state they share (core). Nothing in here awaits, draws or writes."""
