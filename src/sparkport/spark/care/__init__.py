"""The care of tables in the background, so that they stay small and fast."""
