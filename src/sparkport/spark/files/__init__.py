"""Iceberg's metadata and data files: planning a scan and reading its parts, in the server and in
Spark's workers.
"""
