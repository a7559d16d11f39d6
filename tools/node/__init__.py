"""Production code of a node: its process, configuration file, image entry point and health check (shell)."""
