"""Kafka's wire protocol: declared messages, a compiled codec, sans-I/O framing, api keys and error codes (core)."""
