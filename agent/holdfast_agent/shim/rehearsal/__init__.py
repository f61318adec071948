"""Faults that a user puts into a rank of a job: begun, kept for their time, undone.

Of these only the form of an order is loaded before a fault is asked for.
"""
