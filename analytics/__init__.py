"""The history of a cluster for analysis: the metadata log as Parquet files, and reports on them (shell).

Needs the extra `analytics` (pyarrow, pyspark). Only the modules that use these packages import them; `requirements` reports
what is missing.
"""
