"""A host's sessions with the controller, planned maintenance, shutdown and removal.

Moving a host's work elsewhere belongs to ``lifecycle.drain``.
"""
