"""Reasons why a job waits, or could never start, in the words that users read.

Nothing here changes whether it waits: what is decided is in ``scheduling`` itself.
"""
