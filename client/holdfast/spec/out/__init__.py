"""Writes a spec as canonical JSON or protobuf, and its JSON schema.

What is written can be read again to an equal spec.
"""
