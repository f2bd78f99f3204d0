"""The functions of the lake."""
