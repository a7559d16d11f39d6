"""The tools named as in Kafka, and their admin client (shell)."""
