"""Starts and ends the agent: the daemon, its subcommands, certificate renewal and host shutdown.

The only package that knows all the others.
"""
