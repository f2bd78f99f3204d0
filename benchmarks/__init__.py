"""Benchmarks: ratios within one run on one machine, printed as a table. Run with `make bench`."""
