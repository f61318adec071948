"""Every decision that is made durable, one frozen class each, grouped by the entity it belongs to.

An event says what was decided, never how to act on it; the fold applies it and messages puts it into words.
"""
