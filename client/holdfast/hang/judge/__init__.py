"""From features to a verdict: what keeps a gang waiting and how long it may, suspects, stages, common causes.

Pure; every constant is in ``hang.thresholds`` with its source.
"""
