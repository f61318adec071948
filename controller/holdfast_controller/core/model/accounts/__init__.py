"""Users and their sessions, quotas and rates: values and their folds.

What a call needs is decided in ``core.access``.
"""
