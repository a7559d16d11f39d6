"""The command line: Kafka-named tools and `diskraft`."""
