"""Everything outside the process, behind one object (DESIGN.md section 3): `interface` and the real one."""
