"""Everything outside the process, behind one object (docs/DESIGN.md, "The environment"): `interface` and the real one."""
