"""Hangs: the controller asks for evidence, restarts or notifies, and stores what was learned.

The detector itself is pure and shared, in ``holdfast.hang``.
"""
