"""The tools that have the same names as in Kafka (shell)."""
