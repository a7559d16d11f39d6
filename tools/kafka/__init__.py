"""The tools named as in Kafka (shell)."""
