"""Sends each worker's features to the hang detector and records its samples.

Stack dumps and other evidence are taken in ``shell.evidence``.
"""
