"""Spark jobs whose workers send finished messages to the server."""
