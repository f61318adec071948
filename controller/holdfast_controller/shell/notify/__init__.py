"""Delivers notifications: an outbox that survives a crash, rendering, and one sender per kind of channel.

Which events are notified is decided in the core.
"""
