"""The connection to the controller: the control session, transfers, and conversion from and to protobuf.

Reconnecting is handled here; what is reported is decided in the core.
"""
