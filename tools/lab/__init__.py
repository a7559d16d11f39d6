"""Local clusters, disks that can be killed, and the demo made of them (shell)."""
