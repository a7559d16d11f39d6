"""The history of a cluster for analysis: the metadata log as Parquet, and reports over it (shell).

Needs the extra `analytics` (pyarrow, pyspark); only what needs them imports them. `requirements` says what is missing.
"""
