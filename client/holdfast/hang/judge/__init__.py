"""From features to a verdict: rules, suspects, stages, and causes common to several jobs.

Pure; every constant is in ``tuning`` with its source.
"""
