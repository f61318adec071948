"""What all commands share: the click groups, the client for a call, tables, durations, output formats.

No command lives here.
"""
