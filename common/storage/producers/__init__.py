"""The producers of one log (KIP-98): what recognizes duplicates, and the snapshot files that carry it over a restart."""
