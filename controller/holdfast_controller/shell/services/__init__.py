"""The gRPC services, one module each, and the streams and checks that they alone use.

A service translates a call into a command for the core and waits for its answer; it decides nothing.
"""
