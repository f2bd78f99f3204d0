"""Iceberg without Spark: metadata, manifests, pruning, types, reading and writing of data files.

The server and Spark's workers use the same code. Nothing here imports pyspark.
"""
