"""Readings on hosts for callers, piece by piece: output, samples, shells beside ranks; each with its credit.

``transfers`` keeps them all; what a caller gets to see of one is decided by the service that asked for it.
"""
