"""Writing the lake: staging, files, commits."""
