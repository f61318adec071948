"""Secrets at rest: the sealed store and its keys.

Who may read a secret is decided in ``core.access``.
"""
