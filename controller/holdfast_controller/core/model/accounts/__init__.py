"""Users and their sessions, quotas, rates and shares: values and their folds.

What a call needs is decided in ``core.access``.
"""
