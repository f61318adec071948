"""The gRPC services, one module each, and what they share: authorisation, limits, idempotency, streams.

A service translates a call into a command for the core and waits for its answer; it decides nothing.
"""
