"""Spark's side: the session, the gateway to the JVM, jobs, the relay of rows, Spark's errors."""
