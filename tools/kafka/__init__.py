"""The tools that Kafka names, and the admin client under them (shell)."""
