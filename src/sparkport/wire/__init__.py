"""Bytes ↔ values: Flight, MessagePack, Arrow IPC, descriptors, tickets, filter JSON, status."""
