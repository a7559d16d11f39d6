"""Everything outside the process, as one object: its interface and the real one (docs/DESIGN.md, "The environment")."""
