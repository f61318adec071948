"""Scheduling of jobs: admission, queue order, placement, preemption, backfill, and why a job waits.

What happens to a gang once it is placed belongs to ``lifecycle``.
"""
