"""Declared Arrow types and the Iceberg types that hold their values."""
