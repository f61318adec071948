"""Foundations that everything else may import: configuration files, identities, names, error statuses, failpoints.

Private, and importing nothing else of Holdfast but ``errors``.
"""
