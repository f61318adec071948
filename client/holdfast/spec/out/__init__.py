"""Writes a spec as protobuf, and its JSON Schema.

What is written can be read again to an equal spec; nothing is checked here.
"""
