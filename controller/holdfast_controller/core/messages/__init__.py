"""Renders events as the sentences that users read in a job's history and in notifications.

Text only: whatever a program needs travels as a typed field of the event, never inside a sentence.
"""
