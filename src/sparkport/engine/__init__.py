"""What the backends and the service compute with: DuckDB, types, filters, constraints."""
