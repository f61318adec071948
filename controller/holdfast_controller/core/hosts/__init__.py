"""A host's sessions, checks and clock, health and faulty GPUs, fencing, maintenance, shutdown and removal.

Moving a host's work elsewhere belongs to ``lifecycle.drain``.
"""
