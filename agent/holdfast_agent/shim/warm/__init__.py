"""Warm starts: ranks that have done a program's imports ahead and are parked until the next restart in place.

Nothing here runs for a job that does not ask for them.
"""
