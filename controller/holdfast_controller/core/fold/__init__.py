"""Applies an event to the state: one function per entity, called when the event is decided and at each replay.

A fold has no other effect and takes no decision, so replaying the log always gives the same state.
"""
