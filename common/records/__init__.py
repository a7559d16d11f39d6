"""The content of the logs: record batches, control records and the records of the metadata log (core)."""
