"""Bytes ↔ values: Flight messages, MessagePack, Arrow IPC, descriptors, tickets, filter JSON,
status.
"""
