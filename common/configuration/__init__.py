"""server.properties and topic configuration with Kafka's keys, types and defaults (core)."""
