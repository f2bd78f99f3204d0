"""Writing to the lake: staging, files, checks, commits."""
