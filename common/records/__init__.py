"""What is inside the logs: record batches, control records and the records of the metadata log (core)."""
