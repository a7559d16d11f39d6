"""Arbitrary bytes for every decoder: `make fuzz` finds new inputs by coverage, `make test` replays and varies known ones."""
