"""Local clusters, disks that can be killed, and the demo built from them (shell)."""
