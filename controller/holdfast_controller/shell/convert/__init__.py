"""Converts between the protobuf contract and the core's own types.

No validation and no decision; the only other package that touches protobuf messages is ``services``.
"""
