"""What a node of a cluster runs: the process, its configuration file, the image's entry point and health check (shell)."""
