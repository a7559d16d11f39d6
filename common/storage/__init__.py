"""The log on disk: segments, indexes, checkpoint files and meta.properties, in Apache Kafka's formats, over LogDir."""
