"""Shared by all commands: the click groups, the client for a call, tables, durations, output formats.

No command lives here.
"""
