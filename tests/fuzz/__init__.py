"""Any bytes for every decoder: `make fuzz` looks for new ones with coverage, `make test` replays and varies the known."""
