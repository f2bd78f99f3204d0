"""Starting Spark: Java, jars, the warehouse, the session."""
