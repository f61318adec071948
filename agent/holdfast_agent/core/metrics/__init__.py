"""The agent's metric families, and how they are counted from events and actions.

Serving them over HTTP is in ``holdfast._daemon.metrics``.
"""
