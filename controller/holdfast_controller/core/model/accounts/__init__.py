"""Users and their sessions, quotas, rates, shares and receivers of notifications: values and their folds.

What a call needs is decided in ``core.access``.
"""
