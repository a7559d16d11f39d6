"""The command line: Kafka-named tools and `diskraft`."""

from tools.errors import open_missing_streams

# Before any other import: structlog and `configure_logging` take the standard streams when they are imported.
open_missing_streams()
