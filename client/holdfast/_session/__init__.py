"""The vocabulary of the session between controller and agent, shared by both daemons.

Private; a change here is a change of the protocol's version.
"""
